"""Everything between a cluster file and dead processes.

The data goes one way: a cluster file becomes a `Cluster` (`spec`), a `Plan` (`plan`), and the
pure `Run` (`run`), which is fed events by the links to each host's agent and answers with
instructions. Log bytes go beside it: agent → link → `logs` (disk first) → whoever shows them.
The terminal and TensorFlow are unknown here.
"""
