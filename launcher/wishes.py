"""A door to the launcher of a run on this machine, for other screens that look at it.

One JSON object a line over a Unix socket: `{"wish": "kill"}`, `{"wish": "restart", "task":
"worker:1", "hard": false}`, `{"wish": "signal", "task": "worker:1", "name": "TERM"}`. Nothing is
answered: what comes of it stands in the run's events, which every screen reads.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from .agent.folders import private
from .control import RunControl
from .ids import TaskId

_LONGEST = 4096


def door(run_id: str) -> Path:
    """The socket of a run's launcher, in a folder that only its user may enter."""
    digest = hashlib.sha256(run_id.encode()).hexdigest()[:24]
    return Path(private(f"/tmp/tfmux-{os.getuid()}")) / f"{digest}.door"


def wish(run_id: str, **what: Any) -> bool:
    """Says a wish to the run's launcher; False when none listens."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
            link.settimeout(2.0)
            link.connect(str(door(run_id)))
            link.sendall(json.dumps(what).encode() + b"\n")
    except OSError:
        return False
    return True


@contextlib.asynccontextmanager
async def open_door(run_id: str, control: RunControl) -> AsyncIterator[None]:
    """Hears wishes while it is entered. A launcher that takes the run over takes the door too:
    the new socket stands in the place of the old one."""
    path = door(run_id)
    new = path.with_suffix(f".{os.getpid()}")
    new.unlink(missing_ok=True)

    async def hear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ValueError, KeyError, TypeError, OSError):
            while line := await reader.readline():
                _grant(control, json.loads(line[:_LONGEST]))
        writer.close()

    server = await asyncio.start_unix_server(hear, new)
    inode = new.stat().st_ino
    new.chmod(0o600)
    new.rename(path)
    try:
        yield
    finally:
        server.close()
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_ino == inode:
                path.unlink()


def _grant(control: RunControl, what: dict[str, Any]) -> None:
    match what:
        case {"wish": "kill"}:
            control.kill_all()
        case {"wish": "restart", "task": str(task)}:
            control.restart(TaskId.parse(task), hard=bool(what.get("hard")))
        case {"wish": "signal", "task": str(task), "name": "TERM" | "KILL" as name}:
            control.signal(TaskId.parse(task), name)
