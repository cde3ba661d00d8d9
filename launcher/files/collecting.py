"""Fetching of results at the end of a run: the paths in `collect`, from every host.

The agent sends the files as one stream over the run's own channel; they are unpacked as they
arrive, never stored twice. After a lost connection the stream continues at the same byte. A host's
results are complete when everything that it announced is here with its size; what could not be
fetched is reported and stays on the host.
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

from ..agent.messages import ArchiveAnswer
from ..agent.requests import Collect, CollectCredit, CollectEnd, CollectOpen
from ..errors import AgentError, HostError, TfmuxError
from ..hosts.link import Link
from ..plan.model import HostPlan
from ..quantities import counted, size
from ..run import events as ev
from .unpacking import Unpacker, UnpackError, display_name

NUMBER = 0xFFFF
"""Number of the results in log frames; no task's log has it."""
PATIENCE = 60.0
_READ_SECONDS = 600.0
_TELL_SECONDS = 0.1
_WINDOW = 4 << 20
"""Bytes that may be received and not yet written to disk: the host is not asked for more."""
_MAX_LISTED = 10


class Results:
    """Fetches the results of a run from each host at its end, into `folder`/collected/HOST.

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
        self._work: set[asyncio.Task[Fetched]] = set()

    async def bring(self, host: HostPlan, link: Link) -> bool:
        """Fetches one host's results; False when some could not be fetched and stay there."""
        if host.local:
            self._note(f"results on this machine: {', '.join(host.collect)}")
            return True
        folder = self._folder / host.name
        progress = partial(self._progress, host.name)
        work = asyncio.create_task(fetch(link, host.collect, folder, progress))
        self._work.add(work)
        try:
            await asyncio.wait([work])
            fetched = work.result()
        except asyncio.CancelledError:
            if not work.cancelled():  # this task itself is cancelled
                work.cancel()
                raise
            return self._missing(host, "stopped before they were complete")
        except Exception as error:  # whatever it is, the host's copy must stay
            return self._missing(host, _reason(error))
        finally:
            self._work.discard(work)
        for path in fetched.absent:
            self._note(
                f"{host.name}: {display_name(path)}: no such file or directory, not collected"
            )
        for refused in fetched.refused[:_MAX_LISTED]:
            self._note(f"{host.name}: not collected: {refused}")
        if fetched.files:
            what = f"{counted(fetched.files, 'file')} ({size(fetched.bytes)})"
            self._note(f"{host.name}: {what} collected in {fetched.folder}")
        if fetched.problems:
            return self._missing(host, "; ".join(map(display_name, fetched.problems[:_MAX_LISTED])))
        return True

    def stop(self) -> None:
        """Stops fetching; what is missing stays on its host."""
        for work in self._work:
            work.cancel()

    def _missing(self, host: HostPlan, reason: str) -> bool:
        self._feed(ev.ResultsMissing(time.time(), host.name, reason, host.collect))
        return False

    def _note(self, text: str) -> None:
        self._feed(ev.NoteAdded(time.time(), text))


@dataclass(frozen=True)
class Fetched:
    """Results of one host: how much and where, paths that did not exist, and what is missing."""

    folder: Path
    files: int
    bytes: int
    absent: tuple[str, ...]
    problems: tuple[str, ...]
    refused: tuple[str, ...]
    """Links that lead out of the results; they would be broken here."""


async def fetch(
    link: Link, paths: Sequence[str], folder: Path, progress: Callable[[int, int], None]
) -> Fetched:
    """Fetches paths of a host into `folder`, each under its last component.

    The folder's name ends in `.partial` until everything is there. `progress` gets the number of
    bytes and the total, at most ten times a second, and at the end.

    Raises:
        AgentError: the host did not come back in time, or its agent refused.
        UnpackError: the stream is not what was announced.
        OSError: the files could not be written here.
    """
    host = link.settings.host
    wanted = named(paths)
    receiver: _Receiver | None = None
    session = -1
    moved = (0, 0)
    told, heard = 0.0, time.monotonic()
    try:
        while receiver is None or not receiver.ended.is_set():
            if link.connected and link.sessions != session:
                session = link.sessions
                try:
                    announced = await link.ask(Collect(tuple(wanted)), _READ_SECONDS)
                except AgentError:
                    if _connected(link):
                        raise
                    heard = time.monotonic()  # listing may have taken minutes
                    continue  # the connection was lost again
                if receiver is None:
                    receiver = _Receiver(folder, announced)
                elif announced != receiver.announced:
                    raise AgentError(host, "the results changed while they were fetched")
                link.receive(NUMBER, receiver.enqueue)
                link.send(CollectOpen(NUMBER, receiver.received, receiver.more()))
                heard = time.monotonic()
            elif receiver is not None and receiver.has_room:
                link.send(CollectCredit(receiver.more()))
            if receiver is None:
                await asyncio.sleep(_TELL_SECONDS)
            else:
                await receiver.wait(_TELL_SECONDS)
                if moved != (moved := (receiver.received, receiver.stored)):
                    heard = time.monotonic()
                if time.monotonic() - told >= _TELL_SECONDS:
                    told = time.monotonic()
                    progress(receiver.stored, receiver.announced.size)
            if time.monotonic() - heard > PATIENCE:
                stalled = receiver is not None and receiver.received > receiver.stored
                what = "the disk on this machine stalled" if stalled else "no data received"
                raise AgentError(host, f"{what} for {PATIENCE:.0f} s")
        if receiver.error is not None:
            raise receiver.error
        announced = receiver.announced
        progress(announced.size, announced.size)
        done = await link.ask(CollectEnd())
        return Fetched(
            receiver.folder,
            announced.files + announced.links - len(receiver.refused),
            announced.size,
            announced.absent,
            done.problems,
            tuple(receiver.refused),
        )
    finally:
        link.receive(NUMBER, None)
        if receiver is not None:
            receiver.abandon()
        link.send(CollectEnd())  # ends a stream that is not at its end


def _connected(link: Link) -> bool:
    return link.connected


def _reason(error: BaseException) -> str:
    if isinstance(error, HostError):
        return error.reason
    if isinstance(error, OSError):
        where = (
            f"{display_name(os.fsdecode(error.filename))}: " if error.filename is not None else ""
        )
        return f"{where}{error.strerror or error}"
    return str(error) if isinstance(error, TfmuxError) else f"{type(error).__name__}: {error}"


def named(paths: Sequence[str]) -> list[tuple[str, str]]:
    """Pairs each path with its name here: its last component, numbered if that is taken."""
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


class _Receiver:
    """Thread that unpacks the stream, with a queue of chunks. The event loop never waits for it: a
    disk that hangs delays nothing but these results."""

    def __init__(self, folder: Path, announced: ArchiveAnswer) -> None:
        self.announced = announced
        self.folder = folder
        """The folder of the results when they are complete."""
        self.received = 0
        self.stored = 0
        """Bytes that have been written to disk."""
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
        """Whether the host may be asked for more."""
        room = self.stored + _WINDOW - self._asked
        return self._asked < self.announced.size and room >= _WINDOW // 2

    def more(self) -> int:
        """Returns the offset up to which the host may send now."""
        self._asked = max(self._asked, min(self.announced.size, self.stored + _WINDOW))
        return self._asked

    async def enqueue(self, offset: int, chunk: bytes) -> None:
        """Queues the bytes at `offset`, without waiting for the disk."""
        if offset != self.received or not chunk:
            return  # sent before the connection was lost
        if offset + len(chunk) > self._asked:
            self._fail(UnpackError("the host sent more than was asked for"))
            return
        self.received += len(chunk)
        self._chunks.put(chunk)

    async def wait(self, timeout: float) -> None:
        """Waits for progress, at most `timeout` seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._news.wait()
        self._news.clear()

    def abandon(self) -> None:
        """Ends the thread by an empty chunk; nobody waits for it."""
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
            self._call_on_loop(self._fail, error)

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
                    return  # abandoned
                unpacker.feed(chunk)
                self.stored += len(chunk)
                if self.stored - told >= _WINDOW // 4:
                    told = self.stored
                    self._call_on_loop(self._news.set)
            unpacker.finish()
            self.folder = partial.rename(_free(self.folder))
        except OSError as error:
            where = f"{display_name(unpacker.name)}: " if unpacker.name else ""
            raise UnpackError(f"{where}{error.strerror}") from error
        finally:
            unpacker.close()
            with suppress(OSError):
                partial.rmdir()  # it is empty
        self._call_on_loop(self.ended.set)
        self._call_on_loop(self._news.set)

    def _call_on_loop(self, call: Callable[..., None], *arguments: Any) -> None:
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(call, *arguments)


def _made(folder: Path) -> Path:
    """Makes the folder, under the next free name if it exists."""
    while True:
        folder = _free(folder)
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
            return folder


def _free(path: Path) -> Path:
    free, number = path, 1
    while os.path.lexists(free):
        number += 1
        free = path.with_name(f"{path.name}-{number}")
    return free
