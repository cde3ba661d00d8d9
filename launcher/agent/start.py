"""Start on a host: the process at the end of a channel finds the agent of its run, or makes one.

This process, the bridge, hands the agent the channel's descriptors and sleeps until the agent lets
go. The agent outlives it, sshd and the launcher. Where an engine starts the agent there is no
channel, and this process becomes the agent's watchdog.
"""

from __future__ import annotations

import os
import signal
import socket
import struct
import sys
import time
from contextlib import suppress
from typing import Callable, Mapping, MutableMapping

from . import wire
from .folders import FolderError, Folders, Word, lock_file, lock_within
from .processes import (
    AGENT_TAG,
    Process,
    ProcessTracker,
    close_others,
    raise_limit,
    read_process,
    send,
    variable,
)
from .signals import block_signals
from .threads import error_text, log_traceback
from .watchdog import guard
from .wire import FROZEN_SECONDS, KILL_SECONDS, Json

_GREETING_SECONDS = FROZEN_SECONDS + 4.0
"""How long an agent may take to answer a bridge: longer than its watchdog needs to find out
that it froze."""

_LOOK_AGAIN = 0.05
_MOST_SAID = 1000
"""Bytes of the reason why an agent has not started."""
_GO_ON_SECONDS = 1.0
"""How long an agent may take to go on that was stopped; one that a debugger holds does not."""
_OF_A_STEP = (
    "SLURM_PROCID SLURM_LOCALID SLURM_NODEID SLURM_NTASKS SLURM_NPROCS SLURM_TASK_PID "
    "SLURM_GTIDS SLURM_TASKS_PER_NODE SLURM_NTASKS_PER_NODE"
).split()
"""Variables by which a framework believes that srun has launched it as one of several tasks."""
_STOPPED = "Tt"
"""States of a process that was stopped, or is held by a debugger."""
_OF_A_NODE = (
    *("SLURM_CPUS_ON_NODE", "SLURM_GPUS_ON_NODE", "SLURM_JOB_GPUS"),
    *("SLURM_TOPOLOGY_ADDR", "SLURM_TOPOLOGY_ADDR_PATTERN"),
)
"""Variables whose values on this node only a step here has; it has all of the job's part."""
_OF_A_JOB = ("SLURM_JOB", "SLURM_CLUSTER", "SLURM_CONF", "SLURM_JWT")
"""Beginnings of what srun sets from the job, where that is named from elsewhere."""
_WATCHDOG_SECONDS = KILL_SECONDS + 1.5
"""How long the watchdog of an earlier agent is waited for: its agent may still be cleaning up, or
it may be ending what a dead one had started, and have a word to leave. Not for ever: its disk may
hang, or a debugger may hold it. Then the new agent looks for that word (`Agent`)."""


def main(config: Json) -> None:
    """Connects the channel on descriptors 0 and 1 with the agent; `config` is made by
    the launcher (`hosts.bootstrap.LinkSettings`)."""
    by_engine = bool(config.get("by_engine"))
    # In a job step its TERM is for the agent, whose last words go through this bridge.
    in_step = not by_engine and "SLURM_STEP_ID" in os.environ
    block_signals(*((signal.SIGTERM,) if in_step else ()))
    umask = os.umask(0o077)  # the login's, for tasks; what is ours is private
    try:
        if by_engine:
            _forget_step(os.environ)
        folders = Folders(config["run_id"], config["host"], config.get("logs"), dict(os.environ))
        if by_engine:
            _start_by_engine(config, umask, folders)
            return
        link = _connected(config, umask, folders)
    except (FolderError, OSError) as error:
        _say(wire.ERROR, {"text": error_text(error)})
        if by_engine:
            sys.exit(wire.NO_FOLDER_STATUS)
        return
    if link is None:
        failure = _pop_failure(folders)
        if failure:
            _say(wire.ERROR, {"text": failure})
        else:
            doubt, left = folders.in_doubt(), _left(config["run_id"], folders)
            why = folders.last_words
            _say(wire.GONE, {"by": "", "left": left, "doubt": doubt, "why": why})
        return
    link.settimeout(None)
    link.recv(1)  # until the agent lets go; our own 0 and 1 keep sshd's side open meanwhile


def _say(kind: int, body: Mapping[str, object]) -> None:
    os.write(1, wire.encode(kind, body))


def _connected(config: Json, umask: int, folders: Folders) -> socket.socket | None:
    """The connection to an agent that has taken our channel; None when there is no agent and none
    shall be made. One that is about to go, or that its watchdog has ended, is followed by the next.

    Raises:
        OSError: no agent answers.
    """
    _wake_watchdog(folders)
    if config.get("end_before") or config.get("rouse"):
        before = _connect(folders)
        if before is not None:
            agent = _agent_behind(before, config["run_id"])
            before.close()
            if agent is not None and (config.get("end_before") or not _rouse(agent)):
                _end_agent(agent)
    until = time.monotonic() + _GREETING_SECONDS + _WATCHDOG_SECONDS
    while time.monotonic() < until:
        link = _reach(config, umask, folders)
        if link is None:
            return None
        try:
            if _hand_over(link):
                return link
        except socket.timeout:
            break
        link.close()
        time.sleep(_LOOK_AGAIN)
    raise OSError("the agent does not answer")


def _left(run_id: str, folders: Folders) -> list[str | None]:
    """The tasks (None where it is not known) of processes that have outlived their agent."""
    tracker = ProcessTracker(run_id)
    tracker.known_processes = folders.left()
    names = {name for _, name in tracker.scan().values()}
    return [name if wire.TASK_NAME.fullmatch(name) else None for name in sorted(names)]


def _hand_over(link: socket.socket) -> bool:
    """Gives the agent our descriptors 0 and 1; False when it goes without taking them.

    Raises:
        socket.timeout: it does not answer.
    """
    rights = struct.pack("2i", 0, 1)
    link.settimeout(_GREETING_SECONDS)
    try:
        link.sendmsg([b"c"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        return bool(link.recv(1))
    except (BrokenPipeError, ConnectionResetError):
        return False


def _agent_behind(link: socket.socket, run_id: str) -> Process | None:
    """The agent of the run at the other end of a link."""
    pid = struct.unpack("3i", link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
    agent = read_process(pid)
    return agent if variable(pid, AGENT_TAG) == f"{run_id};".encode() else None


def _rouse(agent: Process) -> bool:
    """Has an agent go on that somebody has stopped: the run is being ended, and it gives its tasks
    their grace. False where it stays as it is."""
    if agent.state not in _STOPPED:
        return True
    send(agent, (signal.SIGCONT,))
    return _changes(agent, _GO_ON_SECONDS, lambda now: now.state not in _STOPPED)


def _end_agent(agent: Process) -> None:
    """Kills an agent, which speaks another version, or does not go on. Its watchdog then ends all
    that it has started."""
    send(agent, (signal.SIGKILL,))
    _changes(agent, _GREETING_SECONDS, lambda now: now.dead)  # a thread may wait in the kernel


def _changes(process: Process, seconds: float, has: Callable[[Process], bool]) -> bool:
    """Whether a process has changed in time, or gone."""
    deadline = time.monotonic() + seconds
    while (now := read_process(process.pid)) and now.start == process.start and not has(now):
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.01)
    return True


def _reach(config: Json, umask: int, folders: Folders) -> socket.socket | None:
    """A connection to the agent; two bridges at once make one agent. None when there is none and
    none shall be made."""
    deadline = time.monotonic() + config.get("wait", 0.0)
    while True:
        lock = lock_file(folders.lock)
        try:
            link = _connect(folders)
            if link is None and config.get("make", True):
                return _make_agent(config, umask, folders)
        finally:
            os.close(lock)
        if link is not None or time.monotonic() >= deadline or os.path.exists(folders.failure):
            return link
        time.sleep(_LOOK_AGAIN)


def _connect(folders: Folders) -> socket.socket | None:
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        link.connect(folders.socket)
        return link
    except OSError:  # nobody listens there
        link.close()
        return None


def _make_agent(config: Json, umask: int, folders: Folders) -> socket.socket:
    """Forks the watchdog, which forks the agent; a connection to the agent once it listens.

    Nobody but the agent itself listens on the socket: that is what makes the kernel name the
    agent's pid as that of the peer.

    Raises:
        OSError: the agent did not start.
    """
    watch = lock_file(folders.watch, _WATCHDOG_SECONDS)
    listener = _bind(folders)
    new = folders.make()
    sys.stdout.flush()
    sys.stderr.flush()
    why, trouble = os.pipe()
    pid = os.fork()
    if pid:
        os.close(watch)  # the watchdog has it
        os.close(trouble)
        listener.close()
        return _await_agent(folders, pid, why)
    try:
        os.setsid()
        _guard(config, umask, folders, listener, watch, new, trouble)
    except Exception as error:
        os.write(trouble, error_text(error).encode()[:_MOST_SAID])
        log_traceback()
    except BaseException:
        log_traceback()
    finally:
        os._exit(0)


def _start_by_engine(config: Json, umask: int, folders: Folders) -> None:
    """Makes this process the watchdog of a new agent, and returns when that has gone; at once
    where there is an agent already. Bridges that look for it are told why there is none."""
    lock = -1
    try:
        lock = lock_file(folders.lock)
        if _connect(folders) is None:
            watch = lock_file(folders.watch, _WATCHDOG_SECONDS)
            listener = _bind(folders)
            new = folders.make()
            os.close(lock)
            _guard(config, umask, folders, listener, watch, new)
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


def _forget_step(environ: MutableMapping[str, str]) -> None:
    """Takes out what tasks must not inherit of the job step: what srun has set or changed has the
    job's value again, or goes, unless it describes the job or this node."""
    said = environ.pop(wire.SLURM_OF_JOB, None)
    if said is not None:
        lines = [line for line in said.splitlines() if line.startswith("SLURM_") and "=" in line]
        job = dict(line.split("=", 1) for line in lines)
        for name in [name for name in environ if name.startswith("SLURM_")]:
            if name in _OF_A_NODE:
                job.pop(name, None)
            elif name not in job and not name.startswith(_OF_A_JOB):
                del environ[name]
        environ.update(job)
    for name in list(environ):
        if name in _OF_A_STEP or name.startswith(("SLURM_STEP", "SLURM_SRUN", "SLURM_LAUNCH")):
            del environ[name]


def _bind(folders: Folders) -> socket.socket:
    """The agent's socket; called under the lock, where nobody listens."""
    with suppress(FileNotFoundError):  # the usual case: no agent was here before
        os.unlink(folders.socket)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    old = os.umask(0o177)
    try:
        listener.bind(folders.socket)
    except OSError as error:  # which names no file
        raise OSError(error.errno, error.strerror, folders.socket) from error
    finally:
        os.umask(old)
    return listener


def _guard(
    config: Json,
    umask: int,
    folders: Folders,
    listener: socket.socket,
    watch: int,
    new: bool,
    trouble: int = -1,
) -> None:
    """Lets go of whatever this process was started with, and becomes the watchdog, which keeps the
    lock `watch` once that of an earlier agent has ended; `new`: the run's folder was not there. Why
    the agent does not listen goes to the pipe `trouble`."""
    os.chdir("/")
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    null = os.open("/dev/null", os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)  # the channel, on which no traceback may come
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
    errors = os.open(folders.errors, flags, 0o600)
    os.dup2(errors, 1)
    os.dup2(errors, 2)
    close_others((0, 1, 2, listener.fileno(), watch, trouble))
    me = read_process(os.getpid())
    with suppress(OSError):  # a full disk: then nobody wakes this process if it is stopped
        os.ftruncate(watch, 0)
        os.write(watch, b"%d %d" % (os.getpid(), me.start if me else 0))
    before = folders.begin(new, alone=lock_within(watch, 0.0))
    if not config.get("local"):
        folders.write_tools(config.get("tools", {}))

    def run(pulse: int, signals: int) -> None:
        try:
            if config.get("by_engine"):
                os.setsid()  # the watchdog leads the step's group, slurmstepd knows it by that
            raise_limit()
            from .loop import Agent  # most bridges find an agent and need none of it

            listener.listen(8)
            if trouble >= 0:
                os.close(trouble)
            Agent(config, umask, folders, listener, pulse, signals, before, watch).run()
        except BaseException as error:
            if isinstance(error, Exception):
                with suppress(OSError):  # it had listened
                    os.write(trouble, error_text(error).encode()[:_MOST_SAID])
            log_traceback()  # the watchdog then ends what is left
            os._exit(1)

    death = guard(config["run_id"], listener, run)
    if death is not None:
        known = Word.PROVEN in (before.word, folders.word(before.began, alone=True))
        folders.write_ended(death.why, proven=death.proven and known)


def _wake_watchdog(folders: Folders) -> None:
    """Has the host's watchdog go on, if somebody has stopped it: its agent may be frozen or dead,
    and nobody else would end what that has started."""
    with suppress(OSError, ValueError):  # there is none
        with open(folders.watch) as file:
            pid, start = map(int, file.read().split())
        watchdog = read_process(pid)
        if watchdog is not None and watchdog.start == start:
            send(watchdog, (signal.SIGCONT,))


def _await_agent(folders: Folders, watchdog: int, why: int) -> socket.socket:
    while True:
        link = _connect(folders)
        if link is not None:
            os.close(why)
            return link
        if os.waitpid(watchdog, os.WNOHANG)[0]:
            said = os.read(why, _MOST_SAID).decode(errors="replace")
            raise OSError(f"the agent did not start: {said or f'see {folders.errors}'}")
        time.sleep(0.002)
