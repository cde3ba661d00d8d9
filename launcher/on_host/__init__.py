"""Programs that run on hosts: standard library only, Python 3.8.

    program      sent as the agent is, over a session of its own (`hosts/programs.py`)
    pipe         what it speaks with
    probe        answers to questions
    linked       with which MPI library it is linked
    reach        whether hosts reach each other
    transfer     files of a run, to the host and back

`prepare` and `warm` are copied beside the trees of a run, and run as tasks or in front of them.
"""
