"""Agent: one process a host that owns a run's tasks there.

It is never installed. The launcher sends these modules down an SSH channel or a local pipe
(`hosts/bootstrap.py`), so they use the standard library of Python 3.8 only and import
nothing but each other:

    start       the process at the end of a channel finds the agent, or makes it
    watchdog    the agent's parent: ends everything when the agent dies or freezes
    loop        requests, kills, lease; it never touches a disk
    channel     the launchers' channels: frames in and out, log bytes by credit
    attempts    starting tasks and learning of their ends; the states of an attempt
    executables whether a program can be started, and if not, why
    not_found   which program a shell could not start
    kills       TERM, grace, KILL, and the receipt
    processes   what /proc and waitpid say, to which task each process belongs, exact signals
    signals     signals that are for tasks alone
    log_end     the end of a log that has reached its limit
    task_logs   task output into files, and how far these have grown
    terminals   whether a program waits for input
    ports       which process listens on a port, and whether one is free
    stats       CPU and memory
    nvidia_smi  GPUs and the processes on them
    kernel_log  whom the kernel has killed for want of memory, Xid errors of GPUs
    stack_taker where the processes of tasks stand
    threads     the threads for what may hang, and `agent.log`
    folders     where a run is kept on a host, and the word that one agent leaves for the next
    tree        staged files that are kept for the next launch
    wire        frames: length, type, body (what is in them: `hosts/frames.py`)
"""
