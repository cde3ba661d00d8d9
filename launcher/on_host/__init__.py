"""Programs that run on hosts: standard library only, Python 3.8.

`transfer` is sent as the agent is, over a session of its own, for one request
(`hosts/programs.py`); `pipe` is what it speaks with. `prepare` and `warm` are copied beside the
trees of a run, and run as tasks or in front of them.
"""
