"""Staging: copies directories to a host, sending only contents that the host does not have.

The launcher sends a manifest (paths, modes, SHA-256), the program `transfer` on the host answers
which contents are missing, and these are sent as one stream. Then it builds the trees. A file that
has changed since it was hashed arrives as another content: the host names it, it is read once more
into a copy that cannot change, and the launch goes on with that.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import json
import os
import stat
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import field, replace
from pathlib import Path
from typing import IO

from ..agent.tree import TreeEntry
from ..errors import AgentError, TfmuxError
from ..frozen import frozen
from ..hosts.frames import Frame
from ..hosts.programs import HostProgram
from ..paths import cache_home
from ..quantities import size
from ..run.fields import Count, Text
from .listing import GONE, Listed, Listing, Tree, list_tree

_CHUNK = 1 << 18
_BUILD_SECONDS = 600.0
_ANSWER_BYTES = 4096
_CONTENT_BYTES = 67
"""A SHA-256 in an answer, with quotes and a comma."""
_TELL_SECONDS = 0.1
_ROUNDS = 3
"""Files that have changed are sent from copies, so a second round has no changes."""
LOW_PART = 0.1
"""Part of a disk below which it is low."""
MUCH_LEFT = 4 * 1024**3
"""Bytes that a run may leave without a word at the next one."""
_GRAIN_NS = 2_000_000_000
_FileStat = list[int]


@frozen
class FileBytes:
    """The bytes of a file, and how many they are. `copy` holds those of a file that has changed
    while it was sent."""

    path: str
    size: int
    copy: IO[bytes] | None = None

    @contextmanager
    def opened(self) -> Iterator[int]:
        """Opens the file; several may read it at once, at their own places.

        Raises:
            OSError: it is not there any more, or cannot be read.
        """
        if self.copy is not None:
            yield self.copy.fileno()
            return
        file = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            yield file
        finally:
            os.close(file)


class Copies:
    """Files that changed while they were sent, as they were when they were read once more: all
    hosts of a launch get the same."""

    def __init__(self) -> None:
        self._read: dict[str, asyncio.Task[tuple[str, FileBytes] | None]] = {}

    async def of(self, path: str) -> tuple[str, FileBytes] | None:
        """Returns the SHA-256 and the bytes of a file; None: it is gone.

        Raises:
            TfmuxError: it cannot be read.
        """
        if path not in self._read:
            self._read[path] = asyncio.create_task(asyncio.to_thread(_copied, path))
        return await asyncio.shield(self._read[path])


@frozen
class Manifest:
    """All entries of a host's trees, a local file for each content, and the links that are left
    out."""

    entries: tuple[TreeEntry, ...]
    sources: dict[str, FileBytes]
    listings: tuple[tuple[Tree, Listing], ...] = ()
    copies: Copies = field(default_factory=Copies)


@frozen
class Progress:
    """Progress of sending what a host is missing."""

    bytes: int
    total_bytes: int
    files: int
    total_files: int


class HostDisk(Frame):
    """The disk of a host with the runs' folders: free bytes of how many, and what the last run of
    the cluster has left there."""

    free: Count
    total: Count
    last: Text
    left: Count

    def warning(self, host: str) -> str:
        """A sentence on a disk that gets full, or would do so by more such runs; or nothing."""
        if self.free >= LOW_PART * self.total and self.left <= MUCH_LEFT:
            return ""
        parts = [f"{size(self.free)} free of {size(self.total)} on the disk with tfmux's folder"]
        if self.left > MUCH_LEFT:
            parts.append(f"the last run, {self.last}, holds {size(self.left)} there")
        return (
            f"{host}: {', and '.join(parts)}: `tfmux rm --hosts` frees what ended runs hold; "
            "put what each run would download or unpack into `data`, or start tasks in a lasting "
            "`directory` of the host"
        )


class Manifests:
    """Manifests of a launch; a tree that several hosts need is read once."""

    def __init__(self) -> None:
        self._read: dict[Tree, asyncio.Task[Manifest]] = {}
        self._copies = Copies()

    async def of(self, trees: Iterable[Tree]) -> Manifest:
        """Makes the manifest of these trees.

        Raises:
            TfmuxError: a directory is refused, or something in it cannot be read.
        """
        entries: list[TreeEntry] = []
        sources: dict[str, FileBytes] = {}
        listings: list[tuple[Tree, Listing]] = []
        for tree in trees:
            if tree not in self._read:
                self._read[tree] = asyncio.create_task(asyncio.to_thread(read_tree, tree))
            part = await asyncio.shield(self._read[tree])
            entries += part.entries
            listings += part.listings
            sources = part.sources | sources
        return Manifest(tuple(entries), sources, tuple(listings), self._copies)


def read_tree(tree: Tree) -> Manifest:
    """Walks a tree and hashes its files; blocks, so call it in a thread.

    Raises:
        TfmuxError: a directory is refused, or something in it cannot be read.
    """
    listing = list_tree(tree)
    entries: list[TreeEntry] = []
    sources: dict[str, FileBytes] = {}
    hashes = Hashes(tree.root)
    for each in listing.listed:
        size, content = each.size, each.target
        if each.kind == "f":
            try:
                size, content = hashes.of(os.path.relpath(each.source, tree.root), each)
            except OSError as error:
                if error.errno in GONE:
                    continue
                raise TfmuxError(f"{each.source}: {error.strerror}") from error
            sources.setdefault(content, FileBytes(each.source, size))
        entries.append(TreeEntry(tree.name, each.path, each.kind, each.mode, size, content))
    hashes.save()
    return Manifest(tuple(entries), sources, ((tree, listing),))


def _copied(path: str) -> tuple[str, FileBytes] | None:
    """Copies a file to where nobody changes it; None: it is gone."""
    copy = tempfile.TemporaryFile(prefix="tfmux-")
    digest, size = hashlib.sha256(), 0
    try:
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW
        with open(os.open(path, flags), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                copy.close()
                return None
            while data := file.read(1 << 20):
                digest.update(data)
                size += len(data)
                copy.write(data)
        copy.flush()
    except OSError as error:
        copy.close()
        if error.errno in GONE:
            return None
        raise TfmuxError(f"{path}: {error.strerror}") from error
    return digest.hexdigest(), FileBytes(path, size, copy)


async def stage(
    program: HostProgram,
    manifest: Manifest,
    key: str,
    progress: Callable[[Progress], None],
) -> HostDisk | None:
    """Copies the files of a manifest to the host of `program`; after a lost connection it is called
    again with another one, and only what has not come whole is sent.

    `key` is the same for consecutive launches that share files. `progress` is called at most ten
    times a second, and at the end. Files that change meanwhile are read once more. Returns what
    the host says of its disk.

    Raises:
        HostError: the host refused, or cannot be reached.
        TfmuxError: a file cannot be read any more.
    """
    program.send({"what": "stage", "key": key, "entries": manifest.entries})
    for _ in range(_ROUNDS):
        taken = await _send_missing(program, manifest, progress)
        if taken.built:
            return taken.disk
        manifest = await _renewed(manifest, frozenset(taken.changed))
        program.send({"entries": manifest.entries})
    raise AgentError(program.host, "it gets other bytes than were sent")


async def _send_missing(
    program: HostProgram, manifest: Manifest, progress: Callable[[Progress], None]
) -> _Taken:
    """Sends what the host lacks; returns which contents have arrived as others, after which the
    host waits for another manifest, or that it has built the trees."""
    most = _ANSWER_BYTES + len(manifest.sources) * _CONTENT_BYTES
    missing = (await program.answer(_Missing, _BUILD_SECONDS, most)).missing
    if not manifest.sources.keys() >= set(missing) or len(set(missing)) < len(missing):
        raise AgentError(program.host, "it requested files that are not in the manifest")
    sources = [manifest.sources[content] for content in missing]
    taken = asyncio.create_task(program.answer(_Taken, None, most))
    sending = asyncio.create_task(_send(program, sources, progress))
    try:
        await asyncio.wait([taken, sending], return_when=asyncio.FIRST_COMPLETED)
        if not taken.done():  # else the host says why it takes no more
            await sending
            async with asyncio.timeout(_BUILD_SECONDS):
                await asyncio.wait([taken])
        answer = await taken
        changed = frozenset(answer.changed)
    except TimeoutError as error:
        what = f"it has not built the trees in {_BUILD_SECONDS:.0f} s"
        raise AgentError(program.host, what) from error
    finally:
        for task in (taken, sending):
            task.cancel()
        await asyncio.gather(taken, sending, return_exceptions=True)
    if not changed <= set(missing) or answer.built == bool(changed):
        raise AgentError(program.host, "it named files that were not sent")
    return answer


async def _renewed(manifest: Manifest, changed: frozenset[str]) -> Manifest:
    """The manifest with the files that had these contents as they are now."""
    paths = {
        (tree.name, each.path): each.source
        for tree, listing in manifest.listings
        for each in listing.listed
    }
    entries: list[TreeEntry] = []
    sources = {
        content: each for content, each in manifest.sources.items() if content not in changed
    }
    for entry in manifest.entries:
        if entry.kind == "f" and entry.content in changed:
            found = await manifest.copies.of(paths[entry.tree, entry.path])
            if found is None:
                continue
            content, source = found
            sources[content] = source
            entry = entry._replace(size=source.size, content=content)
        entries.append(entry)
    return replace(manifest, entries=tuple(entries), sources=sources)


async def _send(
    program: HostProgram, sources: list[FileBytes], progress: Callable[[Progress], None]
) -> None:
    """Sends contents as fast as the network and the host's disk take them."""
    state = Progress(0, sum(source.size for source in sources), 0, len(sources))
    progress(state)
    stream = _stream(sources)
    told = time.monotonic()
    while (step := await asyncio.to_thread(next, stream, None)) is not None:
        data, files = step
        program.write(data)
        await program.drain()
        state = replace(state, bytes=state.bytes + len(data), files=files)
        if time.monotonic() - told >= _TELL_SECONDS:
            told = time.monotonic()
            progress(state)
    progress(state)


class _Missing(Frame):
    """The contents that a host does not have, in the order in which it reads them."""

    missing: tuple[str, ...]


class _Taken(Frame):
    """All has come: the trees are in their place (`built`), or some contents are not what was
    announced (`changed`)."""

    built: bool = False
    changed: tuple[str, ...] = ()
    disk: HostDisk | None = None


class Hashes:
    """Cache of the hashes of a directory's files, one file in the user's cache directory.

    A file counts as unchanged while its inode, size and times are the same; the hash of one that
    was younger than two seconds when it was read is not kept, because it may change within the
    resolution of the clock.
    """

    def __init__(self, root: Path) -> None:
        name = hashlib.sha256(os.fsencode(root.absolute())).hexdigest()[:32]
        self._file = cache_home() / "hashes" / f"{name}.json"
        self._began = time.time_ns()
        self._old: dict[str, tuple[_FileStat, str]] = {}
        self._new: dict[str, tuple[_FileStat, str]] = {}
        try:
            self._old = json.loads(self._file.read_text())
        except (OSError, ValueError):
            self._old = {}

    def of(self, relative: str, file: Listed) -> tuple[int, str]:
        """Returns the size and the SHA-256 of a file.

        Raises:
            OSError: it is gone, or cannot be read.
        """
        info = os.lstat(file.source)
        if not stat.S_ISREG(info.st_mode):
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), file.source)
        if (known := self.known(relative, info)) is not None:
            return info.st_size, known
        digest, size = hashlib.sha256(), 0
        with open(file.source, "rb") as opened:
            while data := opened.read(1 << 20):
                digest.update(data)
                size += len(data)
        if size == info.st_size:
            self.learn(relative, info, digest.hexdigest())
        return size, digest.hexdigest()

    def known(self, relative: str, info: os.stat_result) -> str | None:
        """Returns the hash of a file that has not changed since it was stored."""
        row = self._old.get(relative)
        if row is None or row[0] != _stat_of(info):
            return None
        self._new[relative] = row
        return row[1]

    def learn(self, relative: str, info: os.stat_result, digest: str) -> None:
        """Stores the hash of a file that has just been read."""
        if max(info.st_mtime_ns, info.st_ctime_ns) < self._began - _GRAIN_NS:
            self._new[relative] = (_stat_of(info), digest)

    def save(self) -> None:
        """Writes the cache. If that fails, the next launch reads the files again."""
        if self._new == self._old:
            return
        new = self._file.with_suffix(f".{os.getpid()}")
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            new.write_text(json.dumps(self._new))
            new.rename(self._file)
        except OSError:
            new.unlink(missing_ok=True)


def _stat_of(info: os.stat_result) -> _FileStat:
    return [info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns]


def _stream(contents: list[FileBytes]) -> Iterator[tuple[bytes, int]]:
    """Yields the contents one after the other in chunks of 256 KiB (many small files in one), each
    with the number of contents that are then complete. What is not there any more comes as zeros:
    the host sees that it is another content."""
    chunk = bytearray()
    for done, source in enumerate(contents):
        left = source.size
        for data in _bytes(source):
            left -= len(data)
            for part in (data[: _CHUNK - len(chunk)], data[_CHUNK - len(chunk) :]):
                chunk += part
                if len(chunk) == _CHUNK:
                    yield bytes(chunk), done + (not left)
                    chunk.clear()
    if chunk:
        yield bytes(chunk), len(contents)


def _bytes(source: FileBytes) -> Iterator[bytes]:
    at = 0
    with suppress(OSError), source.opened() as file:
        while at < source.size:
            data = os.pread(file, min(_CHUNK, source.size - at), at)
            if not data:
                break
            at += len(data)
            yield data
    while at < source.size:
        yield bytes(min(_CHUNK, source.size - at))
        at += min(_CHUNK, source.size - at)
