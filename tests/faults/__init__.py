"""Everything that can go wrong between a launcher, its hosts and their tasks, on real processes.

What a test says of survivors it has from its own look at `/proc`, what it says of logs from the
checksum that each task keeps of its own output (`tasks`), never from the agent's word.
"""
