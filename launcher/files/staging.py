"""Staging: copies directories to a host, sending only contents that the host does not have.

The launcher sends a manifest (paths, modes, SHA-256), the program `transfer` on the host answers
which contents are missing, and these are sent as one stream. Then it builds the trees.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import field, replace
from pathlib import Path
from typing import Literal

from ..agent.tree import WORK, Rules, TreeEntry
from ..cluster.patterns import IgnoreRules
from ..errors import AgentError, TfmuxError
from ..frozen import frozen
from ..hosts.frames import Frame
from ..hosts.programs import Program
from ..paths import cache_home

_ALWAYS = (".git/", "__pycache__/", "*.pyc", ".venv/", "venv/", ".tfmux/")
_CHUNK = 1 << 18
_BUILD_SECONDS = 600.0
_ANSWER_BYTES = 4096
_CONTENT_BYTES = 67
"""A SHA-256 in an answer, with quotes and a comma."""
_TELL_SECONDS = 0.1
_GRAIN_NS = 2_000_000_000
_FileStat = list[int]


@frozen
class Tree:
    """Local directory that is copied to the folder `name` on hosts."""

    name: str
    root: Path
    exclude: tuple[str, ...] = ()
    prefix: str = ""
    """Prefix of every path: the trainer's package keeps its name."""
    filtered: bool = True
    """Whether `.gitignore` files and the patterns of what is never sent apply."""
    skip: frozenset[str] = frozenset()
    """Directories that are in another tree."""


@frozen
class Manifest:
    """All entries of a host's trees, and a local file for each content."""

    entries: tuple[TreeEntry, ...]
    sources: dict[str, tuple[Path, int]]
    ignored: Rules = field(default_factory=list)
    """What is no result of a task in the workdir."""


@frozen
class Progress:
    """Progress of sending what a host is missing."""

    bytes: int
    total_bytes: int
    files: int
    total_files: int


class Manifests:
    """Manifests of a launch; a tree that several hosts need is read once."""

    def __init__(self) -> None:
        self._read: dict[Tree, asyncio.Task[Manifest]] = {}

    async def of(self, trees: Iterable[Tree]) -> Manifest:
        """Makes the manifest of these trees.

        Raises:
            TfmuxError: a file cannot be read, or a link points outside its tree.
        """
        entries: list[TreeEntry] = []
        sources: dict[str, tuple[Path, int]] = {}
        ignored: Rules = []
        for tree in trees:
            if tree not in self._read:
                self._read[tree] = asyncio.create_task(asyncio.to_thread(read_tree, tree))
            part = await asyncio.shield(self._read[tree])
            entries += part.entries
            sources = part.sources | sources
            if tree.name == WORK and (tree.filtered or not ignored):
                ignored = part.ignored
        return Manifest(tuple(entries), sources, ignored)


def read_tree(tree: Tree) -> Manifest:
    """Walks a tree and hashes its files; blocks, so call it in a thread.

    Raises:
        TfmuxError: a file cannot be read, or a link points outside its tree.
    """
    entries: list[TreeEntry] = []
    sources: dict[str, tuple[Path, int]] = {}
    hashes, ignored = Hashes(tree.root), _Ignored(tree)
    for relative, path in _files(tree, ignored):
        try:
            entry = _entry(tree, relative, path, hashes)
            _check(tree, entry)
        except OSError as error:
            raise TfmuxError(f"{path}: {error.strerror}") from error
        entries.append(entry)
        if entry.kind == "f":
            sources.setdefault(entry.content, (Path(path), entry.size))
    hashes.save()
    return Manifest(tuple(entries), sources, ignored.rules())


async def stage(
    program: Program, manifest: Manifest, key: str, progress: Callable[[Progress], None]
) -> None:
    """Copies the files of a manifest to the host of `program`; after a lost connection it is called
    again with another one, and only what has not come whole is sent.

    `key` is the same for consecutive launches that share files. `progress` is called at most ten
    times a second, and at the end.

    Raises:
        HostError: the host refused, or cannot be reached.
        TfmuxError: a file was changed or removed meanwhile.
    """
    request = {"entries": manifest.entries, "ignored": manifest.ignored}
    program.send({"what": "stage", "key": key, **request})
    most = _ANSWER_BYTES + len(manifest.sources) * _CONTENT_BYTES
    missing = (await program.answer(_Missing, _BUILD_SECONDS, most)).missing
    if not manifest.sources.keys() >= set(missing) or len(set(missing)) < len(missing):
        raise AgentError(program.host, "it asked for files that are not in the manifest")
    sources = [manifest.sources[content] for content in missing]
    built = asyncio.create_task(program.answer(_Built, None))
    sending = asyncio.create_task(_send(program, sources, progress))
    try:
        await asyncio.wait([built, sending], return_when=asyncio.FIRST_COMPLETED)
        if not built.done():  # else the host says why it takes no more
            await sending
            async with asyncio.timeout(_BUILD_SECONDS):
                await asyncio.wait([built])
        await built
    except TimeoutError as error:
        what = f"it has not built the trees in {_BUILD_SECONDS:.0f} s"
        raise AgentError(program.host, what) from error
    finally:
        for task in (built, sending):
            task.cancel()
        await asyncio.gather(built, sending, return_exceptions=True)


async def _send(
    program: Program, sources: list[tuple[Path, int]], progress: Callable[[Progress], None]
) -> None:
    """Sends contents as fast as the network and the host's disk take them."""
    state = Progress(0, sum(size for _, size in sources), 0, len(sources))
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


class _Built(Frame):
    """The trees are in their place."""

    built: Literal[True]


def _check(tree: Tree, entry: TreeEntry) -> None:
    """Refuses a link that leads out of its tree."""
    if entry.kind == "l":
        target = os.path.normpath(os.path.join(os.path.dirname(entry.path), entry.content))
        if entry.content.startswith("/") or target == ".." or target.startswith("../"):
            raise TfmuxError(
                f"{tree.root}: refused to stage the link {entry.path!r}: it points outside, to "
                f"{entry.content!r}"
            )


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


def _files(tree: Tree, ignored: _Ignored) -> Iterator[tuple[str, str]]:
    """Yields directories, files and links below the root that are not ignored; an ignored directory
    is not entered."""
    root = str(tree.root)
    if not os.path.isdir(root):
        raise TfmuxError(f"{root}: not a directory; correct workdir or data")
    todo = [""]
    while todo:
        folder = todo.pop()
        try:
            listing = sorted(os.scandir(os.path.join(root, folder)), key=lambda item: item.name)
        except OSError as error:
            raise TfmuxError(f"{tree.root / folder}: {error.strerror}") from error
        if tree.filtered:
            ignored.enter(folder)
        yield folder.rstrip("/") or ".", os.path.join(root, folder)
        for item in listing:
            relative = f"{folder}{item.name}"
            directory = item.is_dir(follow_symlinks=False)
            if relative in tree.skip:
                continue
            if tree.filtered and ignored(relative + ("/" if directory else "")):
                continue
            if directory:
                todo.append(relative + "/")
            elif item.is_file(follow_symlinks=False) or item.is_symlink():
                yield relative, item.path


class _Ignored:
    """Patterns of `.gitignore` files, of `exclude`, and of what is never sent. The innermost file
    that has a pattern for a path decides, unless the path is excluded or never sent."""

    def __init__(self, tree: Tree) -> None:
        self._root = tree.root
        self._excluded = IgnoreRules([*_ALWAYS, *tree.exclude])
        self._files: list[tuple[str, IgnoreRules]] = []

    def enter(self, folder: str) -> None:
        file = self._root / folder / ".gitignore"
        if file.is_file():
            lines = file.read_text(errors="replace").splitlines()
            self._files.append((folder, IgnoreRules(lines)))

    def __call__(self, relative: str) -> bool:
        if self._excluded.ignores(relative):
            return True
        for folder, rules in reversed(self._files):  # inner ones have been entered last
            if relative.startswith(folder):
                ignored = rules.ignores(relative[len(folder) :])
                if ignored is not None:
                    return ignored
        return False

    def rules(self) -> Rules:
        """The same for the host, which compares at the end of the run."""
        inner_first = [(folder, rules.expressions()) for folder, rules in reversed(self._files)]
        return [("", self._excluded.expressions()), *inner_first]


def _entry(tree: Tree, relative: str, path: str, hashes: Hashes) -> TreeEntry:
    info = os.lstat(path)
    name = tree.prefix + relative if relative != "." else tree.prefix.rstrip("/") or "."
    if stat.S_ISLNK(info.st_mode) and relative != ".":
        return TreeEntry(tree.name, name, "l", 0o777, 0, os.readlink(path))
    if not stat.S_ISREG(info.st_mode):
        return TreeEntry(tree.name, name, "d", 0o755, 0, "")
    mode = 0o755 if info.st_mode & 0o100 else 0o644
    known = hashes.known(relative, info)
    if known is not None:
        return TreeEntry(tree.name, name, "f", mode, info.st_size, known)
    digest = hashlib.sha256()
    size = 0
    with open(path, "rb") as file:
        while data := file.read(1 << 20):
            digest.update(data)
            size += len(data)
    if size == info.st_size:
        hashes.learn(relative, info, digest.hexdigest())
    return TreeEntry(tree.name, name, "f", mode, size, digest.hexdigest())


def _stream(contents: list[tuple[Path, int]]) -> Iterator[tuple[bytes, int]]:
    """Yields the contents one after the other in chunks of 256 KiB (many small files in one), each
    with the number of contents that are then complete."""
    chunk = bytearray()
    for done, (path, size) in enumerate(contents):
        left = size
        try:
            with path.open("rb") as file:
                while left:
                    data = file.read(min(_CHUNK - len(chunk), left))
                    if not data:
                        raise TfmuxError(f"{path} was truncated while it was being sent")
                    left -= len(data)
                    chunk += data
                    if len(chunk) == _CHUNK:
                        yield bytes(chunk), done + (not left)
                        chunk.clear()
        except OSError as error:
            raise TfmuxError(f"{path}: {error.strerror}") from error
    if chunk:
        yield bytes(chunk), len(contents)
