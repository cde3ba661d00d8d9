"""Results brought back at the end of a run: what `collect` names, from every host.

The agent reads the files as one stream over the run's own channel; here they are unpacked as
they come, never stored twice. After a cut it goes on at the byte where it stopped. A host's
results count as brought when everything that it announced is here with its size; what could not
be brought is said, and stays on the host.
"""

from __future__ import annotations

import asyncio
import os
import posixpath
import queue
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ..agent import wire
from ..errors import AgentError, HostError, TfmuxError
from ..hosts.link import Link
from ..hosts.messages import ArchiveAnswer, CollectedAnswer
from ..plan.plan import HostPlan
from ..run import events as ev
from .unpacking import Announcement, Unpacker, UnpackError, shown

NUMBER = 0xFFFF
"""The number under which the stream's bytes come; no log has it."""
PATIENCE = 60.0
_READ_SECONDS = 600.0
_TELL_SECONDS = 0.1
_WINDOW = 4 << 20
"""Bytes that may be on their way to the disk: the host is asked for no more."""
_SAID = 10


class Results:
    """The results of a run: brought from each host at its end, into `folder`/collected/HOST.

    `feed` gets what there is to say, `progress` each host's bytes so far and in all.
    """

    def __init__(
        self,
        folder: Path,
        feed: Callable[[ev.Event], None],
        progress: Callable[[str, int, int], None],
    ) -> None:
        self._folder = folder / "collected"
        self._feed = feed
        self._progress = progress
        self._work: set[asyncio.Task[Brought]] = set()

    async def bring(self, host: HostPlan, link: Link) -> bool:
        """Brings one host's results; False when some could not be brought and stay there."""
        if host.ssh is None:
            self._say(f"results stay where they are on this machine: {', '.join(host.collect)}")
            return True
        folder = self._folder / host.name
        progress = partial(self._progress, host.name)
        work = asyncio.create_task(bring_back(link, host.collect, folder, progress))
        self._work.add(work)
        try:
            await asyncio.wait([work])
            brought = work.result()
        except asyncio.CancelledError:
            if not work.cancelled():  # it is we who are to end
                work.cancel()
                raise
            return self._missing(host, "nobody waited for them")
        except Exception as error:  # whatever it is, the host's copy must not go
            return self._missing(host, _reason(error))
        finally:
            self._work.discard(work)
        for path in brought.absent:
            self._say(f"{host.name}: nothing to collect at {shown(path)}")
        for refused in brought.refused[:_SAID]:
            self._say(f"{host.name}: not brought back: {refused}")
        if brought.files:
            size = f"{brought.bytes / 1e6:.1f} MB"
            self._say(f"{host.name}: {brought.files} files ({size}) are in {brought.folder}")
        if brought.problems:
            return self._missing(host, "; ".join(map(shown, brought.problems[:_SAID])))
        return True

    def stop(self) -> None:
        """Whoever waits has had enough: what has not come stays on its host."""
        for work in self._work:
            work.cancel()

    def _missing(self, host: HostPlan, reason: str) -> bool:
        self._feed(ev.ResultsMissing(time.time(), host.name, reason, host.collect))
        return False

    def _say(self, text: str) -> None:
        self._feed(ev.NoteAdded(time.time(), text))


@dataclass(frozen=True)
class Brought:
    """What came from a host: how much, where it is, what was not there, and what is missing."""

    folder: Path
    files: int
    bytes: int
    absent: tuple[str, ...]
    problems: tuple[str, ...]
    refused: tuple[str, ...]
    """Links that lead out of the results; they say nothing here."""


async def bring_back(
    link: Link, paths: Sequence[str], folder: Path, progress: Callable[[int, int], None]
) -> Brought:
    """Brings paths of a host into `folder`, each under its last part.

    `folder` is made when all is there; until then its name ends in `.partial`. `progress` gets
    bytes and the total, at most ten times a second, and at the end.

    Raises:
        AgentError: the host did not come back in time, or its agent refused.
        UnpackError: what came is not what was announced.
        OSError: it could not be stored here.
    """
    host = link.settings.host
    wanted = named(paths)
    receiving: _Receiving | None = None
    session = -1
    moved = (0, 0)
    told, heard = 0.0, time.monotonic()
    try:
        while receiving is None or not receiving.ended.is_set():
            if link.connected and link.sessions != session:
                session = link.sessions
                try:
                    body = {"paths": wanted}
                    answer = await link.ask(wire.COLLECT, body, ArchiveAnswer, _READ_SECONDS)
                except AgentError:
                    if _connected(link):
                        raise
                    continue  # cut off once more
                announced = Announcement(answer.size, answer.files, answer.links, answer.absent)
                if receiving is None:
                    receiving = _Receiving(folder, announced)
                elif announced != receiving.announced:
                    raise AgentError(host, "the results changed meanwhile")
                link.receive(NUMBER, receiving.take)
                opened = {"open": NUMBER, "from": receiving.received}
                link.send(wire.COLLECT, {**opened, "upto": receiving.more()})
                heard = time.monotonic()
            elif receiving is not None and receiving.has_room:
                link.send(wire.COLLECT, {"upto": receiving.more()})
            if receiving is None:
                await asyncio.sleep(_TELL_SECONDS)
            else:
                await receiving.wait(_TELL_SECONDS)
                if moved != (moved := (receiving.received, receiving.stored)):
                    heard = time.monotonic()
                if time.monotonic() - told >= _TELL_SECONDS:
                    told = time.monotonic()
                    progress(receiving.stored, receiving.announced.size)
            if time.monotonic() - heard > PATIENCE:
                stalled = receiving is not None and receiving.received > receiving.stored
                what = "the disk here took nothing" if stalled else "nothing came"
                raise AgentError(host, f"{what} for {PATIENCE:.0f} s")
        if receiving.error is not None:
            raise receiving.error
        announced = receiving.announced
        progress(announced.size, announced.size)
        done = await link.ask(wire.COLLECT, {"done": True}, CollectedAnswer)
        return Brought(
            receiving.folder,
            announced.files + announced.links - len(receiving.refused),
            announced.size,
            announced.absent,
            done.problems,
            tuple(receiving.refused),
        )
    finally:
        link.receive(NUMBER, None)
        if receiving is not None:
            receiving.abandon()
        link.send(wire.COLLECT, {"done": True, "id": 0})  # it may have more to send than we want


def _connected(link: Link) -> bool:
    return link.connected


def _reason(error: BaseException) -> str:
    if isinstance(error, HostError):
        return error.reason
    if isinstance(error, OSError):
        where = f"{shown(os.fsdecode(error.filename))}: " if error.filename is not None else ""
        return f"{where}{error.strerror or error}"
    return str(error) if isinstance(error, TfmuxError) else f"{type(error).__name__}: {error}"


def named(paths: Sequence[str]) -> list[tuple[str, str]]:
    """Each path with the name that it gets here: its last part, numbered where that is taken."""
    names: dict[str, str] = {}
    for path in paths:
        base = posixpath.basename(posixpath.normpath(path))
        base = "root" if base in ("", ".", "..") else base
        name, number = base, 1
        while name in names:
            number += 1
            name = f"{base}-{number}"
        names[name] = path
    return list(names.items())


class _Receiving:
    """A thread that unpacks the stream, and the bytes on their way to it. The loop never waits
    for the thread: a disk that hangs holds up nothing but these results."""

    def __init__(self, folder: Path, announced: Announcement) -> None:
        self.announced = announced
        self.folder = folder
        """Where the results are, when all is there."""
        self.received = 0
        self.stored = 0
        """Bytes that the disk has taken."""
        self.refused: list[str] = []
        self.error: Exception | None = None
        self.ended = asyncio.Event()
        self._asked = 0
        self._chunks: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._news = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        threading.Thread(target=self._run, name="unpack", daemon=True).start()

    @property
    def has_room(self) -> bool:
        """More may be asked for."""
        room = self.stored + _WINDOW - self._asked
        return self._asked < self.announced.size and room >= _WINDOW // 2

    def more(self) -> int:
        """The byte up to which the host may send now."""
        self._asked = max(self._asked, min(self.announced.size, self.stored + _WINDOW))
        return self._asked

    async def take(self, offset: int, chunk: bytes) -> None:
        """Takes the bytes at `offset`, without waiting for the disk."""
        if offset != self.received or not chunk:
            return  # what was still on its way from before a cut
        if offset + len(chunk) > self._asked:
            self._fail(UnpackError("the host sent more than was asked for"))
            return
        self.received += len(chunk)
        self._chunks.put(chunk)

    async def wait(self, timeout: float) -> None:
        """Waits until there is something to do, at most so long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._news.wait()
        self._news.clear()

    def abandon(self) -> None:
        """No more bytes come."""
        self._chunks.put(b"")

    def _fail(self, error: Exception) -> None:
        self.error = self.error or error
        self.ended.set()
        self._news.set()

    # --- the thread -----------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._unpack()
        except Exception as error:
            self._tell(self._fail, error)

    def _unpack(self) -> None:
        self.folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        partial = _made(self.folder.with_name(f"{self.folder.name}.partial"))
        unpacker = Unpacker(partial, self.announced)
        self.refused = unpacker.refused
        told = 0
        try:
            while self.stored < self.announced.size:
                chunk = self._chunks.get()
                if not chunk:
                    return  # nobody waits for it any longer
                unpacker.feed(chunk)
                self.stored += len(chunk)
                if self.stored - told >= _WINDOW // 4:
                    told = self.stored
                    self._tell(self._news.set)
            unpacker.finish()
            self.folder = _moved(partial, self.folder)
        except OSError as error:
            raise _About(unpacker.name, error) from error
        finally:
            unpacker.close()
            with suppress(OSError):
                partial.rmdir()  # nothing has come
        self._tell(self.ended.set)
        self._tell(self._news.set)

    def _tell(self, call: Callable[..., None], *arguments: Any) -> None:
        with suppress(RuntimeError):  # the loop has ended: nobody waits
            self._loop.call_soon_threadsafe(call, *arguments)


class _About(UnpackError):
    """A member could not be stored."""

    def __init__(self, name: str, error: OSError) -> None:
        super().__init__(f"{shown(name)}: {error.strerror}" if name else str(error.strerror))


def _made(folder: Path) -> Path:
    """Makes the folder, under the next free name where that is taken."""
    while True:
        try:
            folder = _free(folder)
            folder.mkdir(mode=0o700)
        except FileExistsError:
            continue
        return folder


def _moved(partial: Path, folder: Path) -> Path:
    folder = _free(folder)
    partial.rename(folder)
    return folder


def _free(path: Path) -> Path:
    free, number = path, 1
    while os.path.lexists(free):
        number += 1
        free = path.with_name(f"{path.name}-{number}")
    return free
