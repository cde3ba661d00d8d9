"""Agent: one process a host that owns a run's tasks there.

It is never installed. The launcher sends these modules down an SSH channel or a local pipe
(`hosts/bootstrap.py`), so they use the standard library of Python 3.8 only and import
nothing but each other:

    bridge      the process at the end of the channel: finds or makes the agent
    watchdog    the agent's parent: ends everything when the agent dies or freezes
    server      the agent's loop: requests, kills, lease; it never touches a disk
    channels, channel  the launchers' channels: frames in and out, log bytes by credit
    tasks       starting tasks, learning of their ends, and what is left of them
    children    whether a process has children at all (waitpid: ECHILD), and killing them
    kills       TERM, grace, KILL, and the proof that nothing is left
    process_tracker  to which task each process belongs
    proc        /proc: which processes there are
    descriptors  the limit of open files, and those that tasks may not have
    drain       task output into files, in a thread of its own
    task_logs   the logs of the tasks
    workers     threads for what may hang, and waking the loop
    ports       which process listens on a port; picking free ports
    tree        staged files that are kept for the next launch
    stats       CPU, memory and GPUs
    state       the state file that one agent leaves for the next
    folders     where a run is kept on a host
    log         the agent's own log

The protocol, which the launcher uses as well:

    wire        frames: length, type, body
    fields      records that are read from JSON, each field checked
    config      what is sent with the agent's modules
    requests    frames of a launcher
    messages    frames of an agent
    task_id     names of tasks
"""
