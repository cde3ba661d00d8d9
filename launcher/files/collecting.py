"""Results brought back at the end of a run: what `collect` names, from every host.

The agent reads the files as one archive over the run's own channel, by credit like the logs;
here it is unpacked as it comes, never stored twice. After a cut it goes on at the byte where it
stopped. What could not be brought is said, and stays on the host.
"""

from __future__ import annotations

import asyncio
import posixpath
import queue
import tarfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..agent import wire
from ..errors import AgentError, HostError, TfmuxError
from ..hosts.link import Link
from ..hosts.messages import ArchiveAnswer, CollectedAnswer
from ..plan.plan import HostPlan
from ..printable import printable
from ..run import events as ev

NUMBER = 0xFFFF
"""The number under which the archive's bytes come; no log has it."""
PATIENCE = 60.0
_READ_SECONDS = 600.0
_TELL_SECONDS = 0.1
_QUEUED = 64


class Results:
    """The results of a run: brought from each host at its end, into `folder`/collected/HOST.

    `feed` gets the progress and what there is to say.
    """

    def __init__(self, folder: Path, feed: Callable[[ev.Event], None]) -> None:
        self._folder = folder / "collected"
        self._feed = feed
        self._work: set[asyncio.Task[Brought]] = set()

    async def bring(self, host: HostPlan, link: Link) -> bool:
        """Brings one host's results; False when some could not be brought and stay there."""
        if host.ssh is None:
            self._say(f"results stay where they are on this machine: {', '.join(host.collect)}")
            return True
        folder = self._folder / host.name

        def tell(done: int, total: int) -> None:
            self._feed(ev.CollectProgress(time.time(), host.name, done, total))

        work = asyncio.create_task(bring_back(link, host.collect, folder, tell))
        self._work.add(work)
        try:
            await asyncio.wait([work])
            brought = work.result()
        except asyncio.CancelledError:
            if not work.cancelled():  # it is we who are to end
                work.cancel()
                raise
            self._say(
                f"{host.name}: results not brought back; {', '.join(host.collect)} stay there"
            )
            return False
        except (TfmuxError, OSError) as error:
            reason = error.reason if isinstance(error, HostError) else str(error)
            self._say(f"{host.name}: results not brought back, they stay there: {reason}")
            return False
        finally:
            self._work.discard(work)
        for path in brought.absent:
            self._say(f"{host.name}: nothing to collect at {path}")
        for problem in (*brought.problems, *brought.refused)[:10]:
            self._say(f"{host.name}: not brought back: {problem}")
        if brought.files:
            size = f"{brought.bytes / 1e6:.1f} MB"
            self._say(f"{host.name}: {brought.files} files ({size}) are in {folder}")
        return not brought.problems

    def stop(self) -> None:
        """Whoever waits has had enough: what has not come stays on its host."""
        for work in self._work:
            work.cancel()

    def _say(self, text: str) -> None:
        self._feed(ev.Noted(time.time(), text))


@dataclass(frozen=True)
class Brought:
    """What came from a host: how much, what was not there, and what could not be brought."""

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

    `progress` gets bytes and the total, at most ten times a second, and at the end.

    Raises:
        AgentError: the host did not come back in time, or its agent refused.
        TfmuxError: it could not be stored here.
    """
    wanted = named(paths)
    unpacking = _Unpacking(folder)
    told = heard = 0.0
    session = -1
    size = files = 0
    absent: tuple[str, ...] = ()
    try:
        while not unpacking.failed and (not size or unpacking.received < size):
            heard = heard or time.monotonic()
            if link.connected and link.sessions != session:
                session = link.sessions
                try:
                    body = {"paths": wanted}
                    answer = await link.ask(wire.COLLECT, body, ArchiveAnswer, _READ_SECONDS)
                except AgentError:
                    if not _cut_off(link):
                        raise
                    continue  # cut off once more
                if size and answer.size != size:
                    raise AgentError(link.settings.host, "the results changed meanwhile")
                size, files, absent = answer.size, answer.files, answer.absent
                link.receive(NUMBER, unpacking.take)
                opened = {"open": NUMBER, "from": unpacking.received}
                link.send(wire.COLLECT, opened)
                heard = time.monotonic()
            if await unpacking.news(_TELL_SECONDS):
                heard = time.monotonic()
            elif time.monotonic() - heard > PATIENCE:
                raise AgentError(link.settings.host, f"nothing came for {PATIENCE:.0f} s")
            if time.monotonic() - told >= _TELL_SECONDS:
                told = time.monotonic()
                progress(unpacking.received, size)
        await asyncio.to_thread(unpacking.finish)
        progress(unpacking.received, size)
        done = await link.ask(wire.COLLECT, {"done": True}, CollectedAnswer)
        refused = tuple(map(printable, unpacking.refused))
        return Brought(files, size, absent, done.problems, refused)
    finally:
        link.receive(NUMBER, None)
        unpacking.abandon()
        link.send(wire.COLLECT, {"done": True, "id": 0})  # it may have more to send than we want


def _cut_off(link: Link) -> bool:
    return not link.connected


def named(paths: Sequence[str]) -> list[tuple[str, str]]:
    """Each path with the name that it gets here: its last part, numbered where that is taken."""
    names: dict[str, str] = {}
    for path in paths:
        base = posixpath.basename(posixpath.normpath(path)) or "root"
        name, number = base, 1
        while name in names:
            number += 1
            name = f"{base}-{number}"
        names[name] = path
    return list(names.items())


class _Unpacking:
    """A thread that unpacks the archive, and the bytes on their way to it."""

    def __init__(self, folder: Path) -> None:
        self.received = 0
        self.refused: list[str] = []
        self._folder = folder
        self._error: BaseException | None = None
        self._chunks: queue.Queue[bytes] = queue.Queue()
        self._rest = b""
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, name="unpack", daemon=True)
        self._thread.start()

    @property
    def failed(self) -> bool:
        """It could not be stored; `finish` says why."""
        return self._error is not None

    async def take(self, offset: int, chunk: bytes) -> None:
        """Takes the bytes at `offset`; waits while the disk is slower than the network."""
        if offset != self.received:
            return  # what was still on its way from before a cut
        self.received += len(chunk)
        self._chunks.put(chunk)
        self._news.set()
        if self._chunks.qsize() > _QUEUED:
            self._room.clear()
            await self._room.wait()

    async def news(self, timeout: float) -> bool:
        """Waits until bytes have come; False when none came in time."""
        try:
            async with asyncio.timeout(timeout):
                await self._news.wait()
        except TimeoutError:
            return False
        self._news.clear()
        return True

    def finish(self) -> None:
        """Waits until all is unpacked.

        Raises:
            TfmuxError: something could not be stored.
        """
        self.abandon()
        self._thread.join()
        if isinstance(self._error, OSError):
            where = self._error.filename or self._folder
            raise TfmuxError(f"{where}: {self._error.strerror}") from self._error
        if self._error is not None:
            raise TfmuxError(f"{self._folder}: {self._error}") from self._error

    def abandon(self) -> None:
        """No more bytes come."""
        self._chunks.put(b"")

    def read(self, count: int) -> bytes:
        """The archive as a file; called by the thread."""
        while not self._rest:
            self._rest = self._chunks.get()
            if self._chunks.qsize() <= _QUEUED // 2:
                self._loop.call_soon_threadsafe(self._room.set)
            if not self._rest:
                return b""
        data, self._rest = self._rest[:count], self._rest[count:]
        return data

    def _run(self) -> None:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            source: Any = self
            with tarfile.open(fileobj=source, mode="r|", bufsize=1 << 16) as archive:
                archive.extractall(self._folder, filter=self._keep)
        except (OSError, tarfile.TarError) as error:
            self._error = error
        while self.read(1 << 16):
            continue  # nobody must wait for room that never comes

    def _keep(self, member: tarfile.TarInfo, folder: str) -> tarfile.TarInfo | None:
        """Results are data: nothing is written elsewhere, and nothing is a device."""
        try:
            return tarfile.data_filter(member, folder)
        except tarfile.FilterError as error:
            self.refused.append(str(error))
            return None
