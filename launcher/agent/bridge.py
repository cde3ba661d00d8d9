"""Bridge: the process at the end of the channel, which connects it with the agent.

It finds the agent of this run and host, or makes one, hands it the channel's descriptors and
sleeps until the agent lets go. The agent outlives it, sshd and the launcher.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import socket
import struct
import sys
import time
from contextlib import suppress
from typing import MutableMapping

from . import state
from .config import AgentConfig
from .descriptors import close_others, raise_limit
from .fields import Json
from .folders import FolderError, Folders, lock_within
from .log import log_traceback
from .messages import Gone, Refusal
from .proc import AGENT_TAG, read_process, send, variable
from .process_tracker import ProcessTracker
from .task_id import TaskId
from .watchdog import end_everything, guard

ANSWER_SECONDS = 12.0
"""How long an agent may take to answer a bridge: longer than its watchdog needs to find out
that it froze, so that only an agent that nobody guards any more is replaced."""

NO_FOLDER_STATUS = 73
"""Exit status where an engine starts an agent that has no place for its files (`sysexits.h`)."""
_AGENTS_TRIED = 3
_SLICE = 1.0
_LOOK_AGAIN = 0.05
_OF_A_STEP = (
    "SLURM_PROCID SLURM_LOCALID SLURM_NODEID SLURM_NTASKS SLURM_NPROCS SLURM_TASK_PID "
    "SLURM_GTIDS SLURM_TASKS_PER_NODE SLURM_NTASKS_PER_NODE"
).split()
"""Variables by which a framework believes that srun has launched it as one of several tasks."""
_WATCHDOG_SECONDS = 5.0
"""How long the watchdog of an agent that has died is waited for."""
_CLAIM_SECONDS = 6.5
"""How long the address of an agent is waited for that is about to go; longer than it waits for its
disk."""


def main(sent: Json) -> None:
    """Connects the channel on descriptors 0 and 1 with the agent; `sent` is an `AgentConfig`."""
    config = AgentConfig.from_json(sent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    umask = os.umask(0o077)  # the login's, for tasks; what is ours is private
    try:
        if config.by_engine:
            _forget_step(os.environ)
        folders = Folders(config.run_id, config.host, config.logs, dict(os.environ))
        if config.by_engine:
            _start_by_engine(config, umask, folders)
            return
        link = _connected(config, umask, folders)
    except (FolderError, OSError) as error:
        os.write(1, Refusal(str(error)).encode())
        if config.by_engine:
            sys.exit(NO_FOLDER_STATUS)
        return
    if link is None:
        failure = _pop_failure(folders)
        gone = Gone(by="", left=_left(config.run_id, folders))
        os.write(1, (Refusal(failure) if failure else gone).encode())
        return
    # Our own 0 and 1 keep sshd's side open meanwhile.
    if not _let_go(link):
        _end_agent(link, config.run_id)
        end_everything(ProcessTracker(config.run_id), ours=False)  # what has a tag, before any disk
        end_everything(_load_tracker(config.run_id, folders), ours=False)


def _connected(config: AgentConfig, umask: int, folders: Folders) -> socket.socket | None:
    """The connection to an agent that has taken our channel; None when there is no agent and none
    shall be made. One that is about to go, or is frozen, is followed by the next.

    Raises:
        OSError: no agent answers.
    """
    _wake_watchdog(folders)
    if config.end_before:
        before = _connect(folders)
        if before is not None:
            _end_agent(before, config.run_id)
    for _ in range(_AGENTS_TRIED):
        link = _reach(config, umask, folders)
        if link is None:
            return None
        try:
            if _hand_over(link):
                return link
        except socket.timeout:
            _end_agent(link, config.run_id)
        link.close()
    raise OSError("the agent does not answer")


def _let_go(link: socket.socket) -> bool:
    """Sleeps until the agent lets go of the channel.

    False when the channel has ended and the agent has not noticed in `ANSWER_SECONDS`: it is
    frozen, nobody guards it, and nobody else is left to end what it watched. The time is
    counted in slices, so that a machine that slept does not count as an agent that did.
    """
    link.settimeout(None)
    both = select.poll()
    both.register(link, select.POLLIN)
    both.register(0, select.POLLRDHUP)
    while not any(fd == 0 for fd, _ in both.poll()):
        if not link.recv(1):
            return True
    link.settimeout(_SLICE)
    for _ in range(int(ANSWER_SECONDS / _SLICE)):
        try:
            if not link.recv(1):
                return True
        except socket.timeout:
            continue
    return False


def _load_tracker(run_id: str, folders: Folders) -> ProcessTracker:
    """Processes that a dead agent of the run has recorded, and others with the run's tag."""
    tracker = ProcessTracker(run_id)
    state.load(folders, tracker)
    return tracker


def _left(run_id: str, folders: Folders) -> tuple[TaskId | None, ...]:
    """The tasks (None where it is not known) of processes that have outlived their agent."""
    names = {name for _, name in _load_tracker(run_id, folders).scan().values()}
    return tuple(map(TaskId.from_frame, sorted(names)))


def _hand_over(link: socket.socket) -> bool:
    """Gives the agent our descriptors 0 and 1; False when it goes without taking them.

    Raises:
        socket.timeout: it does not answer.
    """
    rights = struct.pack("2i", 0, 1)
    link.settimeout(ANSWER_SECONDS)
    try:
        link.sendmsg([b"c"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        return bool(link.recv(1))
    except (BrokenPipeError, ConnectionResetError):
        return False


def _end_agent(link: socket.socket, run_id: str) -> None:
    """Kills the agent behind a link, such as one that does not answer and that no watchdog has
    ended. Its watchdog, if it has one, then ends all that it has started."""
    pid = _peer(link)[0]
    link.close()
    agent = read_process(pid)
    if agent is not None and variable(pid, AGENT_TAG) == f"{run_id};".encode():
        send(agent, (signal.SIGKILL,))
        deadline = time.monotonic() + ANSWER_SECONDS  # a thread of it may wait in the kernel
        while (
            time.monotonic() < deadline
            and (left := read_process(pid))
            and left.start == agent.start
            and not left.dead
        ):
            time.sleep(0.01)


def _reach(config: AgentConfig, umask: int, folders: Folders) -> socket.socket | None:
    """A connection to the agent; two bridges at once make one agent. None when there is none and
    none shall be made."""
    deadline = time.monotonic() + config.wait
    while True:
        with open(folders.lock, "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            link = _connect(folders)
            if link is None and config.make:
                return _make_agent(config, umask, folders)
        if link is not None or time.monotonic() >= deadline or os.path.exists(folders.failure):
            return link
        time.sleep(_LOOK_AGAIN)


def _connect(folders: Folders) -> socket.socket | None:
    for address in (folders.socket, folders.name):
        link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with suppress(OSError):  # nobody listens there
            link.connect(address)
            if _peer(link)[1] == os.getuid():  # the second address anybody could have taken
                return link
        link.close()
    return None


def _peer(link: socket.socket) -> tuple[int, int, int]:
    """The pid, uid and gid of who listens."""
    pid, uid, gid = struct.unpack("3i", link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return pid, uid, gid


def _make_agent(config: AgentConfig, umask: int, folders: Folders) -> socket.socket:
    """Forks the watchdog, which forks the agent; a connection to the agent once it listens.

    Nobody but the agent itself listens on the socket: that is what makes the kernel name the
    agent's pid as that of the peer.

    Raises:
        OSError: the agent did not start.
    """
    listeners, link = _bind(folders)
    if link is not None:
        return link
    new = folders.make()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        for listener in listeners:
            listener.close()
        return _await_agent(folders, pid)
    try:
        os.setsid()
        _guard(config, umask, folders, listeners, new)
    except BaseException:
        log_traceback()
    finally:
        os._exit(0)


def _start_by_engine(config: AgentConfig, umask: int, folders: Folders) -> None:
    """Runs an agent that an engine starts; bridges that look for it are told why there is none."""
    try:
        _guard_here(config, umask, folders)
    except (FolderError, OSError) as error:
        with suppress(OSError):
            with open(folders.failure, "w", errors="replace") as file:
                file.write(str(error))
        raise


def _pop_failure(folders: Folders) -> str:
    """Takes away the recorded reason for which the engine could not start the agent, if there is
    one."""
    try:
        with open(folders.failure, errors="replace") as file:
            text = file.read(1000)
        os.unlink(folders.failure)
    except OSError:
        return ""
    return text


def _guard_here(config: AgentConfig, umask: int, folders: Folders) -> None:
    """Makes this process the watchdog of a new agent, and returns when that has gone; at once
    where there is an agent already."""
    with open(folders.lock, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        listeners, link = _bind(folders)
    if link is None:
        new = folders.make()
        _guard(config, umask, folders, listeners, new)


def _forget_step(environ: MutableMapping[str, str]) -> None:
    """Takes out what tasks must not inherit of the job step."""
    for name in list(environ):
        if name in _OF_A_STEP or name.startswith(("SLURM_STEP", "SLURM_SRUN", "SLURM_LAUNCH")):
            del environ[name]


def _bind(folders: Folders) -> tuple[list[socket.socket], socket.socket | None]:
    """The agent's sockets, bound; or a connection to an agent that has them."""
    second, link = _claim(folders)
    if link is not None:
        return [], link
    with suppress(FileNotFoundError):  # the usual case: no agent was here before
        os.unlink(folders.socket)
    listeners = [socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)]
    old = os.umask(0o177)
    listeners[0].bind(folders.socket)
    os.umask(old)
    if second is not None:
        listeners.append(second)
    return listeners, None


def _guard(
    config: AgentConfig, umask: int, folders: Folders, listeners: list[socket.socket], new: bool
) -> None:
    """Lets go of whatever this process was started with, and becomes the watchdog; `new`: the
    run's folder was not there before."""
    os.chdir("/")
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    null = os.open("/dev/null", os.O_RDWR)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
    errors = os.open(folders.errors, flags, 0o600)
    os.dup2(null, 0)
    os.dup2(errors, 1)
    os.dup2(errors, 2)
    close_others((0, 1, 2, *(listener.fileno() for listener in listeners)))
    watch = _follow_watchdog(folders)
    certain = folders.begin(new)

    def run(pulse: int) -> None:
        os.close(watch)  # only the watchdog's end lets go of the lock
        _run_agent(config, umask, folders, listeners, pulse, certain)

    if guard(config.run_id, listeners, run) and certain:
        folders.prove_end()


def _follow_watchdog(folders: Folders) -> int:
    """A descriptor with the lock of the host's watchdog. One of an agent that has died may still
    be ending what that had started, and have a word to leave; it is waited for, but not for ever:
    its disk may hang, or a debugger may hold it."""
    watch = os.open(folders.watch, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    lock_within(watch, _WATCHDOG_SECONDS)
    me = read_process(os.getpid())
    os.ftruncate(watch, 0)
    os.write(watch, b"%d %d" % (os.getpid(), me.start if me else 0))
    return watch


def _wake_watchdog(folders: Folders) -> None:
    """Has the host's watchdog go on, if somebody has stopped it: its agent may be frozen or dead,
    and nobody else would end what that has started."""
    with suppress(OSError, ValueError):  # there is none
        with open(folders.watch) as file:
            pid, start = map(int, file.read().split())
        watchdog = read_process(pid)
        if watchdog is not None and watchdog.start == start:
            send(watchdog, (signal.SIGCONT,))


def _claim(folders: Folders) -> tuple[socket.socket | None, socket.socket | None]:
    """The second address, bound: the kernel gives it to one process only and as long as that
    lives, so there are no two agents even where a cleaner has taken sockets and locks away. Or a
    connection to the agent that has it; or nothing, when it is somebody else's."""
    deadline = time.monotonic() + _CLAIM_SECONDS
    while time.monotonic() < deadline:
        second = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            second.bind(folders.name)
            return second, None
        except OSError:
            second.close()
        link = _connect(folders)
        if link is not None:
            return None, link
        time.sleep(0.005)
    return None, None


def _await_agent(folders: Folders, watchdog: int) -> socket.socket:
    while True:
        link = _connect(folders)
        if link is not None:
            return link
        if os.waitpid(watchdog, os.WNOHANG)[0]:
            raise OSError(f"the agent did not start; see {folders.errors}")
        time.sleep(0.002)


def _run_agent(
    config: AgentConfig,
    umask: int,
    folders: Folders,
    listeners: list[socket.socket],
    pulse: int,
    certain: bool,
) -> None:
    try:
        if config.by_engine:
            os.setsid()  # the watchdog leads the step's group, and slurmstepd knows it by that
        raise_limit()
        from .server import Agent  # most bridges find an agent and need none of it

        for listener in listeners:
            listener.listen(8)
        Agent(config, umask, folders, listeners, pulse, certain=certain).run()
    except BaseException:
        log_traceback()  # the watchdog then ends what is left
        os._exit(1)
