"""Fetching of results at the end of a run: the paths in `collect`, from every host.

The program `transfer` on the host sends the files as one stream; they are unpacked as they arrive,
never stored twice. After a lost connection they are fetched again. A host's results are complete
when everything that it announced is here with its size; what could not be fetched is reported and
stays on the host.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import posixpath
import queue
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from ..agent.folders import remove_tree
from ..crossing import loop_caller
from ..errors import AgentError, HostError, TfmuxError
from ..frozen import frozen
from ..hosts.frames import Frame
from ..hosts.link import Link
from ..hosts.programs import HostProgram
from ..on_host.pipe import LENGTH
from ..on_host.transfer import ENOUGH, MORE, MOST_LISTED, PIECE
from ..plan.run_plan import HostPlan
from ..printable import printable
from ..quantities import counted, size
from ..run import events as ev
from ..run.fields import Count, Text
from ..run.snapshot import KeptResults
from .unpacking import Unpacker, UnpackError, display_name, is_whole

PATIENCE = 60.0
_LIST_SECONDS = 600.0
_TELL_SECONDS = 0.1
_PAUSE_SECONDS = 1.0
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
        self._work: set[asyncio.Task[Any]] = set()

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
            return self._missing(host, reason_of(error))
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

    async def find(
        self, host: HostPlan, link: Link, brought: Sequence[str], seconds: float, *, moved: bool
    ) -> None:
        """Says what tasks have left in the workdir of a host, but for the paths that were
        `brought`; `moved`: the agent takes it out of the workdir when it goes. A disk that hangs
        there is waited for `seconds`."""
        work = asyncio.create_task(_find(link, brought, moved=moved))
        self._work.add(work)
        try:
            await asyncio.wait([work], timeout=seconds)
            if not work.done():
                kept = KeptResults(host.name, problem=f"no answer in {seconds:.0f} s")
            else:
                kept = work.result()
        except asyncio.CancelledError:
            if not work.cancelled():  # this task itself is cancelled
                raise
            kept = KeptResults(host.name, problem="no longer searched")
        except Exception as error:  # whatever it is, the host's copy stays
            kept = KeptResults(host.name, problem=reason_of(error))
        finally:
            work.cancel()
            self._work.discard(work)
        self._feed(ev.ResultsKept(time.time(), kept))

    def stop(self) -> None:
        """Stops fetching; what is missing stays on its host."""
        for work in self._work:
            work.cancel()

    def _missing(self, host: HostPlan, reason: str) -> bool:
        self._feed(ev.ResultsMissing(time.time(), host.name, reason, host.collect))
        return False

    def _note(self, text: str) -> None:
        self._feed(ev.NoteAdded(time.time(), printable(text)))


class _LeftFiles(Frame):
    """What tasks have left in the workdir of a host."""

    files: Count
    bytes: Count
    folder: Text
    cut: bool
    problems: Annotated[tuple[Text, ...], Field(max_length=MOST_LISTED)]
    above: Count
    by_products: Count
    by_product_bytes: Count
    by_product_names: Annotated[tuple[Text, ...], Field(max_length=MOST_LISTED)]


async def _find(link: Link, brought: Sequence[str], *, moved: bool) -> KeptResults:
    """Asks a host what tasks have left in its workdir.

    Raises:
        HostError: the host cannot be reached, or does not know.
    """
    program = await link.start_program()
    try:
        program.send({"what": "results", "brought": list(brought), "moved": moved})
        found = await program.answer(_LeftFiles)
    finally:
        await program.aclose()
    problem = f"not read: {'; '.join(found.problems[:_MAX_LISTED])}" if found.problems else ""
    host = link.settings.host
    return KeptResults(
        host,
        found.files,
        found.bytes,
        found.folder,
        found.cut,
        problem,
        found.above,
        found.by_products,
        found.by_product_bytes,
        tuple(map(display_name, found.by_product_names)),
    )


@frozen
class Fetched:
    """Results of one host: how much and where, paths that did not exist, and what is missing."""

    folder: Path
    files: int
    bytes: int
    absent: tuple[str, ...]
    problems: tuple[str, ...]
    refused: tuple[str, ...]
    """Symbolic links, which are left out."""
    present: int = 0
    """Number of files that were here before."""


async def fetch(
    link: Link, paths: Sequence[str], folder: Path, progress: Callable[[int, int], None]
) -> Fetched:
    """Fetches paths of a host into `folder`, each under its last component; after a lost
    connection from the beginning.

    The folder's name ends in `.partial` until everything is there. `progress` gets the number of
    bytes and the total, at most ten times a second, and at the end.

    Raises:
        HostError: the host did not come back in time, or refused.
        UnpackError: the stream is not what was announced.
        OSError: the files could not be written here.
    """
    host = link.settings.host
    lost_at: float | None = None
    while True:
        if link.connected:
            session = link.sessions
            try:
                program = await link.start_program()
                try:
                    request = {"what": "collect", "paths": named(paths)}
                    return await _Collection(program, folder, progress).run(request)
                finally:
                    await program.aclose()
            except HostError:
                await asyncio.sleep(_TELL_SECONDS)  # the link may just be learning of a cut
                if link.connected and link.sessions == session:
                    raise
                lost_at = time.monotonic()
        lost_at = lost_at or time.monotonic()
        if time.monotonic() - lost_at > PATIENCE:
            raise AgentError(host, f"no connection for {PATIENCE:.0f} s")
        await asyncio.sleep(_TELL_SECONDS)


Opener = Callable[[], Awaitable[HostProgram]]
"""Starts the program on a host; raises `HostError`."""


async def fetch_results(
    open_program: Opener,
    patterns: Sequence[str],
    folder: Path,
    progress: Callable[[int, int], None],
) -> Fetched:
    """Fetches what a run's tasks have left in the workdir of a host, where it matches one of the
    patterns, into `folder`, each file under its path in the workdir. What is there already stays;
    what has come when the connection is lost, or a person ends it, need not come again.

    Raises:
        HostError: the host cannot be reached, or refused.
        UnpackError: the stream is not what was announced.
        OSError: the files could not be written here.
    """
    came_at = time.monotonic()
    seen = (0, 0)

    def note(done: int, total: int) -> None:
        nonlocal came_at, seen
        if (done, total) != seen:
            came_at, seen = time.monotonic(), (done, total)
        progress(done, total)

    while True:
        here, part = await asyncio.to_thread(_present, folder)
        have = [[name, *facts, name in part] for name, facts in (here | part).items()]
        request = {"what": "collect-results", "patterns": list(patterns), "have": have}
        try:
            program = await open_program()
            try:
                return await _Collection(program, folder, note, merges=True).run(request)
            finally:
                await program.aclose()
        except HostError:
            if seen == (0, 0) or time.monotonic() - came_at > PATIENCE:
                raise
            await asyncio.sleep(_PAUSE_SECONDS)


def _present(folder: Path) -> tuple[dict[str, tuple[int, int]], dict[str, tuple[int, int]]]:
    """The files that have been brought into a folder, and those that have come in part."""
    return files_in(folder), files_in(partial_of(folder))


def reason_of(error: BaseException) -> str:
    """Why results were not brought, for a person."""
    if isinstance(error, HostError):
        return error.reason
    if isinstance(error, OSError):
        where = (
            f"{display_name(os.fsdecode(error.filename))}: " if error.filename is not None else ""
        )
        return f"{where}{error.strerror or error}"
    text = str(error) if isinstance(error, TfmuxError) else f"{type(error).__name__}: {error}"
    return printable(text)


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


class _Announcement(Frame):
    """What a host has: bytes of the stream, files, links that are left out, absent paths, and the
    number of files that are here already."""

    size: Count
    files: Count
    links: Annotated[tuple[Text, ...], Field(max_length=MOST_LISTED)]
    absent: Annotated[tuple[Text, ...], Field(max_length=MOST_LISTED)]
    present: Count


class _Problems(Frame):
    """What a host could not read."""

    problems: Annotated[tuple[Text, ...], Field(max_length=MOST_LISTED)]


class _Collection:
    """One try to fetch the results of a host. The host is asked for a piece whenever an earlier
    one is on disk, so that little waits in memory whatever is slow."""

    def __init__(
        self,
        program: HostProgram,
        folder: Path,
        progress: Callable[[int, int], None],
        *,
        merges: bool = False,
    ) -> None:
        """`merges`: what an earlier try has brought is there, and stays."""
        self._program = program
        self._folder = folder
        self._progress = progress
        self._merges = merges

    async def run(self, request: dict[str, Any]) -> Fetched:
        """Fetches all of what is asked for.

        Raises:
            HostError: the host refused, or the connection ended.
            UnpackError: the stream is not what was announced, or could not be written here.
        """
        self._program.send(request)
        announced = await self._program.answer(_Announcement, _LIST_SECONDS)
        receiver = _Receiver(self._folder, announced.size, announced.files, merges=self._merges)
        telling = asyncio.create_task(self._tell(receiver))
        try:
            await self._receive(receiver, announced.size)
            await self._wait_for_disk(receiver)
            done = await self._program.answer(_Problems, PATIENCE)
        except HostError:
            receiver.useless = True
            self._progress(receiver.stored, announced.size)  # it may be too soon for the first word
            raise
        finally:
            telling.cancel()
            receiver.abandon()
        self._progress(announced.size, announced.size)
        lost = receiver.broken_off
        unsaid = lost if not done.problems else []  # nothing is missing without a word
        return Fetched(
            receiver.folder,
            announced.files - len(lost),
            receiver.stored,
            announced.absent,
            done.problems or tuple(f"{name} was not sent to its end" for name in unsaid),
            tuple(f"{name}, a symbolic link" for name in announced.links),
            announced.present,
        )

    async def _tell(self, receiver: _Receiver) -> None:
        """Tells what is on disk, also while the host or the disk stands still."""
        told = 0
        while True:
            if told != (told := receiver.stored):
                self._progress(told, receiver.size)
            await asyncio.sleep(_TELL_SECONDS)

    async def _receive(self, receiver: _Receiver, size: int) -> None:
        asked = blocks = received = 0
        ended = False
        while not ended or blocks < asked:
            waiting = asked - blocks
            room = (_WINDOW - (received - receiver.stored)) // PIECE - waiting
            left = (size - received + PIECE - 1) // PIECE + 1  # with the empty one at the end
            more = min(room, left - waiting)
            if more > 0 and not ended:
                self._program.write(MORE * more)
                asked += more
            elif not waiting:
                await self._wait_for_disk(receiver, receiver.stored)
                continue
            block = await self._block()
            blocks += 1
            if self._program.unread > (asked - blocks) * (PIECE + LENGTH.size):
                raise UnpackError("the host sent more than requested")
            if not block:
                ended = True
                continue
            if ended:
                raise UnpackError("received data after the end")
            received += len(block)
            receiver.put(block)
            if receiver.error is not None:
                raise receiver.error
        self._program.write(ENOUGH)
        receiver.put(None)

    async def _block(self) -> bytes:
        """The next block of the stream; an empty one is behind its end."""
        (length,) = LENGTH.unpack(await self._exactly(LENGTH.size))
        if length > PIECE:
            raise UnpackError("the host sent more than requested")
        return await self._exactly(length)

    async def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            data += await self._chunk(count - len(data))
        return data

    async def _chunk(self, most: int) -> bytes:
        try:
            async with asyncio.timeout(PATIENCE):
                data = await self._program.receive()
        except TimeoutError as error:
            text = f"no data received for {PATIENCE:.0f} s"
            raise AgentError(self._program.host, text) from error
        self._program.put_back(data[most:])
        return data[:most]

    async def _wait_for_disk(self, receiver: _Receiver, beyond: int | None = None) -> None:
        """Waits until more is stored than so many bytes, or all of it."""
        heard, stored = time.monotonic(), receiver.stored
        while not receiver.complete if beyond is None else receiver.stored <= beyond:
            if receiver.error is not None:
                raise receiver.error
            await receiver.wait(_TELL_SECONDS)
            if stored != (stored := receiver.stored):
                heard = time.monotonic()
            if time.monotonic() - heard > PATIENCE:
                raise UnpackError(f"the disk on this machine stalled for {PATIENCE:.0f} s")


class _Receiver:
    """Thread that unpacks the stream, with a queue of chunks. The event loop never waits for it: a
    disk that hangs delays nothing but these results."""

    def __init__(self, folder: Path, size: int, files: int, *, merges: bool) -> None:
        self._merges = merges
        self.folder = folder
        """The folder of the results when they are complete."""
        self.size = size
        self.stored = 0
        """Bytes that have been written to disk."""
        self.error: Exception | None = None
        self.complete = False
        self.useless = False
        """What has come is removed: the results are fetched again."""
        self._files = files
        self.broken_off: list[str] = []
        """Files that the host could not read to their end."""
        self._chunks: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._news = asyncio.Event()
        self._call = loop_caller()
        try:
            threading.Thread(target=self._run, name="unpack", daemon=True).start()
        except RuntimeError as error:
            raise UnpackError(f"this machine starts no more threads ({error})") from error

    def put(self, chunk: bytes | None) -> None:
        """Queues the next bytes, without waiting for the disk; None: there are no more."""
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

    # --- the thread -----------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._unpack()
        except Exception as error:  # whatever it is, somebody waits for it
            self.error = error
        self._call(self._news.set)

    def _unpack(self) -> None:
        self.folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        partial = partial_of(self.folder)
        lock = -1
        if self._merges:
            partial.mkdir(mode=0o700, exist_ok=True)
            lock = _locked(partial)
        else:
            partial = _made(partial)
        unpacker = Unpacker(partial, self.size, self._files, resumes=self._merges)
        try:
            while (chunk := self._chunks.get()) is not None:
                if not chunk:
                    return  # abandoned
                unpacker.feed(chunk)
                self.stored += len(chunk)
                self._call(self._news.set)
            unpacker.finish()
            self.broken_off = unpacker.broken_off
            if self._merges:
                merge(partial, self.folder)
            else:
                self.folder = partial.rename(_free(self.folder))
            self.complete = True
        except OSError as error:
            where = f"{display_name(unpacker.name)}: " if unpacker.name else ""
            raise UnpackError(f"{where}{error.strerror}") from error
        finally:
            unpacker.close()
            if self.useless and not self._merges:
                remove_tree(str(partial))
            with suppress(OSError):
                partial.rmdir()  # it is empty
            if lock >= 0:
                os.close(lock)


def partial_of(folder: Path) -> Path:
    """The folder that has what has come of results, until all have."""
    return folder.with_name(f"{folder.name}.partial")


def _locked(folder: Path) -> int:
    """A descriptor that keeps others from bringing the same.

    Raises:
        UnpackError: somebody does.
    """
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        raise UnpackError(f"another tfmux writes to {folder} now") from None
    return fd


def merge(source: Path, target: Path) -> None:
    """Moves files that are whole to a folder, in which they replace those of their names.

    Raises:
        OSError: something else has such a name, or nothing can be written there.
    """
    if not os.listdir(source):
        return
    folders = [""]  # grows meanwhile
    for folder in folders:
        (target / folder).mkdir(mode=0o700, exist_ok=True)
        for item in sorted(os.scandir(source / folder), key=lambda one: one.name):
            inside = f"{folder}/{item.name}" if folder else item.name
            if item.is_dir(follow_symlinks=False):
                folders.append(inside)
            elif is_whole(item.stat(follow_symlinks=False)):
                os.replace(item.path, target / inside)
    for folder in reversed(folders):
        with suppress(OSError):  # a file in it is not whole
            (source / folder).rmdir()


def files_in(folder: Path) -> dict[str, tuple[int, int]]:
    """Size and time of all files below a folder, by their names there."""
    found: dict[str, tuple[int, int]] = {}
    todo = [""]
    while todo:
        below = todo.pop()
        with suppress(OSError), os.scandir(folder / below) as listing:
            for item in listing:
                if item.is_dir(follow_symlinks=False):
                    todo.append(f"{below}{item.name}/")
                elif item.is_file(follow_symlinks=False):
                    info = item.stat(follow_symlinks=False)
                    found[f"{below}{item.name}"] = info.st_size, info.st_mtime_ns
    return found


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
