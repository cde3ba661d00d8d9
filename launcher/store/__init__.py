"""Files of a run: logs, events, metrics; written and read again."""
