"""Engines: programs that queue a request for nodes, give them, and take them back.

`engine` is the interface, `registry` has the engines; `session.allocation` uses them.
"""
