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
from typing import Any

from . import wire
from .folders import FolderError, Folders
from .guardian import guard
from .server import Agent


def main(config: dict[str, Any]) -> None:
    """Connects the channel on descriptors 0 and 1 with the agent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        folders = Folders(config["run_id"], config["host"], config.get("logs"), dict(os.environ))
        link = _reach(config, folders)
        if link is None:
            os.write(1, wire.encode(wire.GONE, {"by": ""}))
            return
    except (FolderError, OSError) as error:
        os.write(1, wire.encode(wire.ERROR, {"text": str(error)}))
        return
    rights = struct.pack("2i", 0, 1)
    link.sendmsg([b"c"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
    # Sleep until the agent lets go of the channel; our own 0 and 1 keep sshd's side open.
    while link.recv(1):
        continue


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
        errors = os.open(folders.errors, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(null, 0)
        os.dup2(errors, 1)
        os.dup2(errors, 2)
        _close_others(keep=(0, 1, 2, listener.fileno()))
        guard(config, listener, lambda pulse: _agent(config, folders, listener, pulse))
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        os._exit(0)


def _agent(config: dict[str, Any], folders: Folders, listener: socket.socket, pulse: int) -> None:
    try:
        Agent(config, folders, listener, pulse).run()
    except BaseException:
        import traceback

        traceback.print_exc()  # into agent.log; the guardian then ends what is left
        os._exit(1)


def _close_others(keep: tuple[int, ...]) -> None:
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in keep:
            try:
                os.close(int(name))
            except OSError:
                continue  # the listing's own descriptor
