"""A door to the launcher of a run on this machine, for other screens that look at it.

One JSON object a line over a Unix socket: `{"wish": "kill"}`, `{"wish": "restart", "task":
"worker:1", "hard": false}`, `{"wish": "signal", "task": "worker:1", "name": "TERM"}`. They are
not answered: what comes of them stands in the run's events, which every screen reads. After
`{"wish": "watch"}` the launcher sends each new snapshot (`shown`), a few a second: what it knows
beside the events, such as what is being waited for, loads of hosts, and the kill's countdown. And
`{"questions": […]}` whenever those that wait for a person are others than before (`questions`);
`{"wish": "answer", "id": 3, "text": "yes"}` answers one.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from ..agent.folders import local_folder
from ..ids import TaskId
from ..run.snapshot import Snapshot
from .control import RunControl
from .questions import Asked, Questions
from .shown import decode, encode

_LONGEST = 4096
_MOST_CLIENTS = 64
_MOST_WISHES = 100
"""In a second, of one client: more is no person's doing."""
_READ_SECONDS = 10.0
"""A client that has not read so long is let go; it may come again."""
_ASKED = TypeAdapter(dict[str, tuple[Asked, ...]])
_QUESTIONS = b'{"questions":'
_CHUNK = 1 << 18
_PACE = 0.2
"""Seconds between two snapshots: encoding one of 256 tasks takes 13 ms of the launcher's loop."""


def door(run_id: str) -> Path:
    """The socket of a run's launcher, in a folder that only its user may enter."""
    digest = hashlib.sha256(run_id.encode()).hexdigest()[:24]
    return Path(local_folder()) / f"{digest}.door"


def wish(run_id: str, **what: Any) -> bool:
    """Says a wish to the run's launcher; False when none listens."""
    try:
        with _knock(run_id) as link:
            link.sendall(json.dumps(what).encode() + b"\n")
    except OSError:
        return False
    return True


class Watch:
    """What the run's launcher shows, as it changes. Blocking: for a thread of its own."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._link: socket.socket | None = None
        self._rest = b""
        self.questions: tuple[Asked, ...] = ()
        """What the launcher wants to know from a person now."""

    @property
    def connected(self) -> bool:
        """A launcher is there and will say what changes."""
        return self._link is not None

    def next(self, timeout: float) -> Snapshot | None:
        """The newest snapshot that came within `timeout` seconds. Returns at once when the
        launcher has gone or none is there; the next call looks again."""
        try:
            if self._link is None:
                self._link = _knock(self._run_id)
                self._link.sendall(b'{"wish": "watch"}\n')
            self._link.settimeout(timeout)
            data = self._link.recv(_CHUNK)
        except TimeoutError:
            return None
        except OSError:
            data = b""
        if not data:
            self.close()
            return None
        *lines, self._rest = (self._rest + data).split(b"\n")
        shown = [line for line in lines if not line.startswith(_QUESTIONS)]
        with contextlib.suppress(ValueError, KeyError):
            for line in lines:
                if line.startswith(_QUESTIONS):
                    self.questions = _ASKED.validate_json(line)["questions"]
            return decode(shown[-1]) if shown else None
        return None

    def close(self) -> None:
        """Stops looking."""
        if self._link is not None:
            self._link.close()
        self._link, self._rest, self.questions = None, b"", ()


@contextlib.asynccontextmanager
async def open_door(run_id: str, control: RunControl, questions: Questions) -> AsyncIterator[None]:
    """Hears wishes and answers while it is entered. A launcher that takes the run over takes the
    door too: the new socket stands in the place of the old one."""
    path = door(run_id)
    new = path.with_suffix(f".{os.getpid()}")
    new.unlink(missing_ok=True)

    telling_all = _Telling(control, questions)
    clients: dict[asyncio.StreamWriter, asyncio.Task[None]] = {}

    async def hear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        clients[writer] = task
        telling: asyncio.Task[None] | None = None
        heard, since = 0, time.monotonic()
        try:
            if len(clients) > _MOST_CLIENTS:
                return
            while line := await reader.readline():
                heard += 1
                if heard > _MOST_WISHES:
                    if time.monotonic() - since < 1.0:
                        break
                    heard, since = 0, time.monotonic()
                what = json.loads(line)
                if what == {"wish": "watch"}:
                    telling = telling or asyncio.create_task(telling_all.tell(writer))
                elif what["wish"] == "answer":
                    questions.answer(what["id"], what["text"])
                else:
                    _grant(control, what)
        except (ValueError, KeyError, TypeError, OSError):
            pass  # whoever says what nobody understands is not listened to any longer
        finally:
            del clients[writer]
            if telling is not None:
                telling.cancel()
            writer.transport.abort()  # what it has not read is dropped

    server = await asyncio.start_unix_server(hear, new, limit=_LONGEST)
    inode = new.stat().st_ino
    new.chmod(0o600)
    new.rename(path)
    try:
        yield
    finally:
        server.close()
        hearing = list(clients.values())
        for writer in list(clients):
            writer.transport.abort()  # they end by themselves then
        if hearing:
            await asyncio.wait(hearing, timeout=1.0)
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_ino == inode:
                path.unlink()


class _Telling:
    """Sends each new snapshot to those who watch. One that reads slowly misses some, and delays
    nobody; a snapshot is encoded once for all."""

    def __init__(self, control: RunControl, questions: Questions) -> None:
        self._control = control
        self._questions = questions
        self._newest: tuple[Snapshot | None, bytes] = (None, b"")

    async def tell(self, writer: asyncio.StreamWriter) -> None:
        """Goes on until the client has gone, or no longer reads."""
        told: Snapshot | None = None
        asked: tuple[Asked, ...] = ()
        self._questions.watchers += 1
        try:
            while True:
                now = self._control.snapshot()
                if now is not told:
                    told = now
                    writer.write(self._encoded(now))
                if self._questions.open != asked:
                    asked = self._questions.open
                    writer.write(_ASKED.dump_json({"questions": asked}) + b"\n")
                async with asyncio.timeout(_READ_SECONDS):
                    await writer.drain()
                await asyncio.sleep(_PACE)
        except OSError:  # a TimeoutError is one: it looks no more
            writer.transport.abort()
        finally:
            self._questions.watchers -= 1

    def _encoded(self, snapshot: Snapshot) -> bytes:
        if self._newest[0] is not snapshot:
            self._newest = (snapshot, encode(snapshot))
        return self._newest[1]


def _knock(run_id: str) -> socket.socket:
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        link.settimeout(2.0)
        link.connect(str(door(run_id)))
    except OSError:
        link.close()
        raise
    return link


def _grant(control: RunControl, what: dict[str, Any]) -> None:
    match what:
        case {"wish": "kill"}:
            control.kill_all()
        case {"wish": "restart", "task": str(task)}:
            control.restart(TaskId.parse(task), hard=bool(what.get("hard")))
        case {"wish": "signal", "task": str(task), "name": "TERM" | "KILL" as name}:
            control.signal(TaskId.parse(task), name)
