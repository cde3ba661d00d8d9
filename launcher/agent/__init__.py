"""The agent: one process a host that owns a run's tasks there.

It is never installed. The launcher sends these modules' source down an SSH channel or a local
pipe (`launcher/bootstrap.py`), so they use the standard library of Python 3.8 only and import
nothing but each other:

    entry     what runs at the end of the channel: finds or makes the agent, hands it the channel
    guardian  the agent's parent: ends everything when the agent dies or freezes
    server    the agent's loop: one connection, tasks, kills, lease, logs
    tasks     starting a task and knowing how it ended
    drain     task output into files, in a thread of its own
    kills     TERM, grace, KILL, and the look that proves it
    proc      /proc: who belongs to which task
    ports     who listens where; picking free ports
    stage     files from the launcher
    stats     CPU, memory and GPUs
    probe     what a preflight asks of a host
    reach     whether hosts reach each other
    state     what one agent leaves for the next
    folders   where a run lives on a host
    notes     the agent's own log
    wire      frames
"""
