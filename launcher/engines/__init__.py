"""Engines: programs that queue a request for nodes, give them, and take them back.

`engine` is the interface, `slurm` the engine; `session.allocation` uses it.
"""
