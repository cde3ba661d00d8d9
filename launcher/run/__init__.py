"""The run as a pure state machine: events in, instructions and snapshots out."""
