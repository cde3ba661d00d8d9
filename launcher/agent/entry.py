"""What runs at the end of the channel: the bridge.

It finds the agent of this run and host, or makes one, hands it the channel's descriptors and
sleeps until the agent lets go. The agent outlives it, sshd and the launcher.
"""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import struct
import sys
import time
from typing import Any

from . import state, wire
from .folders import FolderError, Folders
from .guardian import guard
from .notes import say_traceback
from .proc import AGENT_TAG, Census, read_process, send, variable
from .server import Agent

ANSWER_SECONDS = 12.0
"""How long an agent may take to answer a bridge: longer than its guardian needs to find out
that it froze, so that only an agent that nobody guards any more is replaced."""


def main(config: dict[str, Any]) -> None:
    """Connects the channel on descriptors 0 and 1 with the agent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        folders = Folders(config["run_id"], config["host"], config.get("logs"), dict(os.environ))
        link = _reach(config, folders)
        if link is not None and not _hand_over(link):
            _end_frozen(link, config["run_id"])
            link = _reach(config, folders)
            if link is not None and not _hand_over(link):
                raise OSError("the agent does not answer")
    except (FolderError, OSError) as error:
        os.write(1, wire.encode(wire.ERROR, {"text": str(error)}))
        return
    if link is None:
        os.write(1, wire.encode(wire.GONE, {"by": "", "left": _left(config["run_id"], folders)}))
        return
    # Sleep until the agent lets go of the channel; our own 0 and 1 keep sshd's side open.
    link.settimeout(None)
    while link.recv(1):
        continue


def _left(run_id: str, folders: Folders) -> list[str]:
    """The tasks ("" where it is not known) of processes that have outlived their agent."""
    census = Census(run_id)
    state.load(folders, census)
    return sorted({who for _, who in census.take().values()})


def _hand_over(link: socket.socket) -> bool:
    """Gives the agent our descriptors 0 and 1; False when it does not take them."""
    rights = struct.pack("2i", 0, 1)
    link.settimeout(ANSWER_SECONDS)
    try:
        link.sendmsg([b"c"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        return bool(link.recv(1))
    except socket.timeout:
        return False


def _end_frozen(link: socket.socket, run_id: str) -> None:
    """Kills the agent behind a link: it does not answer, and no guardian has ended it."""
    pid = struct.unpack("3i", link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
    link.close()
    agent = read_process(pid)
    if agent is not None and variable(pid, AGENT_TAG) == f"{run_id};".encode():
        send(agent, (signal.SIGKILL,))
        while (left := read_process(pid)) and left.start == agent.start and not left.dead:
            time.sleep(0.01)


def _reach(config: dict[str, Any], folders: Folders) -> socket.socket | None:
    """A connection to the agent's socket; two bridges at once make one agent. None when there
    is none and none shall be made."""
    with open(folders.lock, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        link = _connect(folders)
        if link is None and not config.get("make", True):
            return None
        if link is None:
            _make_agent(config, folders)
            link = _connect(folders)
        if link is None:
            raise OSError(f"the agent did not start; see {folders.errors}")
        return link


def _connect(folders: Folders) -> socket.socket | None:
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        link.connect(folders.socket)
    except OSError:
        link.close()
        return None
    return link


def _make_agent(config: dict[str, Any], folders: Folders) -> None:
    """Forks the guardian, which forks the agent; returns when the agent's socket listens."""
    try:
        os.unlink(folders.socket)
    except FileNotFoundError:
        pass  # the usual case: no agent was here before
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    old = os.umask(0o177)
    listener.bind(folders.socket)
    os.umask(old)
    listener.listen(8)
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        listener.close()
        return
    try:
        os.setsid()
        os.chdir("/")
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE):
            signal.signal(number, signal.SIG_IGN)
        null = os.open("/dev/null", os.O_RDWR)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
        errors = os.open(folders.errors, flags, 0o600)
        os.dup2(null, 0)
        os.dup2(errors, 1)
        os.dup2(errors, 2)
        _close_others(keep=(0, 1, 2, listener.fileno()))
        guard(config, listener, lambda pulse: _agent(config, folders, listener, pulse))
    except BaseException:
        say_traceback()
    finally:
        os._exit(0)


def _agent(config: dict[str, Any], folders: Folders, listener: socket.socket, pulse: int) -> None:
    listener.listen(8)  # once more, and the kernel tells bridges the agent's own pid
    try:
        Agent(config, folders, listener, pulse).run()
    except BaseException:
        say_traceback()  # the guardian then ends what is left
        os._exit(1)


def _close_others(keep: tuple[int, ...]) -> None:
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in keep:
            try:
                os.close(int(name))
            except OSError:
                continue  # the listing's own descriptor
