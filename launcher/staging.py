"""Files for the hosts: what goes, and the contents that a host does not have yet.

The launcher sends a manifest (paths, modes, SHA-256); the agent answers which contents it
lacks; those follow as one stream. A second launch of the same files is one round trip.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pathspec

from .agent import wire
from .agent.stage import Entry, StageError, check
from .errors import TfmuxError
from .link import Link

_ALWAYS = (".git/", "__pycache__/", "*.pyc", ".venv/", "venv/", ".tfmux/")
_CHUNK = 1 << 18
_ENTRIES_A_FRAME = 5000
_BUILD_SECONDS = 600.0


@dataclass(frozen=True)
class Tree:
    """A local directory that becomes the folder `name` in a host's stage."""

    name: str
    root: Path
    exclude: tuple[str, ...] = ()
    prefix: str = ""
    """Put in front of every path: the trainer's package keeps its name."""


@dataclass(frozen=True)
class Manifest:
    """All entries of a stage, and where each content lies here."""

    entries: tuple[Entry, ...]
    sources: dict[str, tuple[Path, int]]


def read_trees(trees: Iterable[Tree]) -> Manifest:
    """Walks and hashes; blocks, so call it in a thread.

    Raises:
        TfmuxError: a file cannot be read, or a link points outside its tree.
    """
    entries: list[Entry] = []
    sources: dict[str, tuple[Path, int]] = {}
    for tree in trees:
        for relative, path in _files(tree):
            try:
                entry = _entry(tree, relative, path)
                check(entry)
            except StageError as error:
                raise TfmuxError(f"{tree.root}: {error}") from error
            except OSError as error:
                raise TfmuxError(f"{path} cannot be staged: {error.strerror}") from error
            entries.append(entry)
            if entry.kind == "f":
                sources.setdefault(entry.content, (path, entry.size))
    return Manifest(tuple(entries), sources)


async def stage(link: Link, manifest: Manifest, progress: Callable[[int, int], None]) -> None:
    """Brings a manifest to a host; may be called again after a cut, and goes on.

    Raises:
        AgentError: the host refused, or cannot be reached.
        TfmuxError: a file changed or vanished meanwhile.
    """
    rows = [list(entry) for entry in manifest.entries]
    for at in range(0, len(rows), _ENTRIES_A_FRAME):
        part = {"entries": rows[at : at + _ENTRIES_A_FRAME], "first": at == 0, "id": 0}
        link.send(wire.STAGED, part)
    first = {"first": True} if not rows else {}
    answer = await link.ask(wire.STAGED, {"entries": [], "last": True, **first}, _BUILD_SECONDS)
    missing: list[str] = answer["missing"]
    total = sum(manifest.sources[content][1] for content in missing)
    done = 0
    progress(0, total)
    for content in missing:
        path, size = manifest.sources[content]
        for data in _read(path, size):
            await link.send_stage(data)
            done += len(data)
            progress(done, total)
    await link.ask(wire.STAGED, {"entries": [], "build": True}, _BUILD_SECONDS)


def _files(tree: Tree) -> Iterator[tuple[str, Path]]:
    """Directories, files and links below the root but for what is ignored; a directory that is
    ignored is not entered."""
    ignored = _Ignored(tree)
    if not tree.root.is_dir():
        raise TfmuxError(f"{tree.root} is no directory; workdir names what is copied to the hosts")
    todo = [""]
    while todo:
        folder = todo.pop()
        try:
            listing = sorted(os.scandir(tree.root / folder), key=lambda item: item.name)
        except OSError as error:
            raise TfmuxError(f"{tree.root / folder}: {error.strerror}") from error
        ignored.enter(folder)
        yield folder.rstrip("/") or ".", tree.root / folder
        for item in listing:
            relative = f"{folder}{item.name}"
            directory = item.is_dir(follow_symlinks=False)
            if ignored(relative + ("/" if directory else "")):
                continue
            if directory:
                todo.append(relative + "/")
            elif item.is_file(follow_symlinks=False) or item.is_symlink():
                yield relative, Path(item.path)


class _Ignored:
    """`.gitignore` files on the way down, the `exclude` patterns, and what is never sent."""

    def __init__(self, tree: Tree) -> None:
        self._root = tree.root
        self._specs = [("", pathspec.GitIgnoreSpec.from_lines([*_ALWAYS, *tree.exclude]))]

    def enter(self, folder: str) -> None:
        file = self._root / folder / ".gitignore"
        if file.is_file():
            lines = file.read_text(errors="replace").splitlines()
            self._specs.append((folder, pathspec.GitIgnoreSpec.from_lines(lines)))

    def __call__(self, relative: str) -> bool:
        return any(
            relative.startswith(folder) and spec.match_file(relative[len(folder) :])
            for folder, spec in self._specs
        )


def _entry(tree: Tree, relative: str, path: Path) -> Entry:
    info = path.lstat()
    name = tree.prefix + relative
    if stat.S_ISLNK(info.st_mode):
        return Entry(tree.name, name, "l", 0o777, 0, os.readlink(path))
    if stat.S_ISDIR(info.st_mode):
        return Entry(tree.name, name, "d", 0o755, 0, "")
    digest = hashlib.sha256()
    size = 0
    with path.open("rb") as file:
        while data := file.read(1 << 20):
            digest.update(data)
            size += len(data)
    mode = 0o755 if info.st_mode & 0o100 else 0o644
    return Entry(tree.name, name, "f", mode, size, digest.hexdigest())


def _read(path: Path, size: int) -> Iterator[bytes]:
    left = size
    try:
        with path.open("rb") as file:
            while left:
                data = file.read(min(_CHUNK, left))
                if not data:
                    raise TfmuxError(f"{path} became shorter while it was being sent")
                left -= len(data)
                yield data
    except OSError as error:
        raise TfmuxError(f"{path} cannot be read: {error.strerror}") from error
