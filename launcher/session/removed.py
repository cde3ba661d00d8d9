"""Runs that go on although somebody has removed their folder: their launcher processes listen, and
hold the lock file that was in it."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress

from ..agent.folders import FolderError, local_folder
from ..paths import runs_home

_SECONDS = 2.0
_LOCK = "launcher.lock (deleted)"
"""The name by which `/proc` has it."""
_PEER: int = getattr(socket, "SO_PEERCRED", -1)
"""Only Linux has it."""


def removed_runs() -> list[str]:
    """Ids of the runs of this machine's folder of runs that have a launcher process and no folder;
    none where there is no `/proc` that says so."""
    try:
        folder = local_folder()
        names = os.listdir(folder)
    except (FolderError, OSError):
        return []
    home, found = os.path.realpath(runs_home()), set[str]()
    for name in names:
        if name.endswith(".control") and (pid := _listener(os.path.join(folder, name))):
            found.update(_removed(pid, home))
    return sorted(found)


def _listener(path: str) -> int:
    """The process that listens on a socket; 0 where none does, or that cannot be seen."""
    with suppress(OSError), socket.socket(socket.AF_UNIX) as link:
        link.settimeout(_SECONDS)
        link.connect(path)
        raw = link.getsockopt(socket.SOL_SOCKET, _PEER, struct.calcsize("3i"))
        return int(struct.unpack("3i", raw)[0])
    return 0


def _removed(pid: int, home: str) -> Iterator[str]:
    """Ids of the runs whose lock file a process holds although it is not there any more."""
    with suppress(OSError):
        for fd in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                folder, name = os.path.split(os.readlink(f"/proc/{pid}/fd/{fd}"))
                above, run_id = os.path.split(folder)
                if name == _LOCK and above == home:
                    yield run_id
