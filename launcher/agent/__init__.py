"""The agent: one process a host that owns a run's tasks there.

It is never installed. The launcher sends these modules' source down an SSH channel or a local
pipe (`launcher/bootstrap.py`), so they use the standard library of Python 3.8 only and import
nothing but each other:

    entry       what runs at the end of the channel: finds or makes the agent, hands it the channel
    watchdog    the agent's parent: ends everything when the agent dies or freezes
    server      the agent's loop: what launchers log_line, kills, lease; it never touches a disk
    channels, channel  the launchers' channels: frames in and out, log bytes by credit
    attempts    starting tasks, hearing of their ends, and who still lives
    reaper      one process a task: the parent of all that the task leaves behind
    tasks       a task's process: what it executes, and how it ended
    children    whether a process has children at all (the kernel's word), and killing them
    kills       TERM, grace, KILL, and the proof that nothing is left
    tracker      to which task each process belongs
    proc        /proc: which processes there are
    drain       task output into files, in a thread of its own
    outputs     the logs of the tasks
    log_reader  log bytes for the launcher, read in a thread
    workers     threads for what may hang
    ports       who listens where; picking free ports
    files, stage, tree, collect  files from the launcher, and results for it
    stats       CPU, memory and GPUs
    probe       what a preflight asks of a host
    reach       whether hosts reach each other
    state       what one agent leaves for the next
    folders     where a run lives on a host
    notes       the agent's own log
    wire        frames
"""
