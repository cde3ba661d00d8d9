"""Files from the launcher: a manifest, then only the contents that this host does not have.

Contents are kept by their SHA-256 in the user's cache, so a second launch sends what changed,
and a launch that was cut goes on where it stopped. A tree is built beside its final place and
renamed, so nobody sees half of one.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from typing import Any, Callable, NamedTuple

from .folders import private

_KEEP_SECONDS = 30 * 24 * 3600.0


class StageError(Exception):
    """An entry that must not be staged, or contents that are not what was announced."""


class Entry(NamedTuple):
    """One entry of a tree: `kind` is "d", "f" or "l"; `content` is the SHA-256 of a file or the
    target of a link."""

    tree: str
    path: str
    kind: str
    mode: int
    size: int
    content: str


def check(entry: Entry) -> None:
    """Refuses what would leave its tree.

    Raises:
        StageError: an absolute path, `..`, or a link to a place outside.
    """
    parts = entry.path.split("/")
    if not entry.path or entry.path.startswith("/") or ".." in parts or "" in parts:
        raise StageError(f"refused to stage {entry.path!r}: it would leave its folder")
    if "/" in entry.tree or entry.tree in ("", ".", ".."):
        raise StageError(f"refused to stage into {entry.tree!r}")
    if entry.kind == "l":
        target = os.path.normpath(os.path.join(os.path.dirname(entry.path), entry.content))
        if entry.content.startswith("/") or target == ".." or target.startswith("../"):
            raise StageError(
                f"refused to stage the link {entry.path!r}: it points outside, to {entry.content!r}"
            )


class Stage:
    """Receives the trees of one run."""

    def __init__(self, cache: str, target: str) -> None:
        self._cache = cache
        self._target = target
        self._suffix = f".{os.urandom(6).hex()}"  # the cache may be a home shared by many hosts
        self.entries: list[Entry] = []
        self._missing: list[Entry] = []
        self._file: Any = None
        self._hash = hashlib.sha256()
        self._got = 0

    def missing(self) -> list[str]:
        """The contents that are to be sent, in this order; call when the manifest is whole."""
        private(self._cache)
        self._missing = []
        seen = set()
        now = time.time()
        for entry in self.entries:
            if entry.kind == "f" and entry.content not in seen:
                seen.add(entry.content)
                path = self._blob(entry.content)
                try:
                    os.utime(path, (now, now))
                except FileNotFoundError:
                    self._missing.append(entry)
        return [entry.content for entry in self._missing]

    def feed(self, data: bytes) -> None:
        """Takes the next bytes of the contents, one after the other in the order asked for.

        Raises:
            StageError: more came than was asked for, or it has another SHA-256.
            OSError: the disk is full.
        """
        view = memoryview(data)
        while view:
            if not self._missing:
                raise StageError("more contents came than were asked for")
            entry = self._missing[0]
            part = view[: entry.size - self._got]
            self._open(entry).write(part)
            self._hash.update(part)
            self._got += len(part)
            view = view[len(part) :]
            self._finish_blob()

    def build(self) -> None:
        """Builds the trees from their contents.

        Raises:
            StageError: contents are missing.
            OSError: the disk is full.
        """
        while self._missing and self._missing[0].size == 0:
            self._open(self._missing[0])
            self._finish_blob()
        if self._missing:
            raise StageError(f"{len(self._missing)} contents have not come")
        new = self._target + ".new"
        shutil.rmtree(new, ignore_errors=True)
        os.makedirs(new, 0o700)
        made = set()
        for entry in self.entries:
            path = os.path.join(new, entry.tree, entry.path)
            folder = os.path.dirname(path)
            if folder not in made:
                os.makedirs(folder, exist_ok=True)
                made.add(folder)
            if entry.kind == "d":
                os.makedirs(path, exist_ok=True)
            elif entry.kind == "l":
                os.symlink(entry.content, path)
            else:
                # a copy, never a hard link: a task that writes into its file would change the cache
                shutil.copyfile(self._blob(entry.content), path)
                os.chmod(path, entry.mode & 0o777)
        shutil.rmtree(self._target, ignore_errors=True)
        os.rename(new, self._target)
        self._prune()

    def _blob(self, digest: str) -> str:
        return os.path.join(self._cache, digest[:2], digest)

    def _open(self, entry: Entry) -> Any:
        if self._file is None:
            path = self._blob(entry.content)
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            self._file = open(path + self._suffix, "wb")
            self._hash = hashlib.sha256()
            self._got = 0
        return self._file

    def _finish_blob(self) -> None:
        while self._missing and self._got == self._missing[0].size:
            entry = self._missing.pop(0)
            self._open(entry).close()
            path = self._blob(entry.content)
            if self._hash.hexdigest() != entry.content:
                os.unlink(path + self._suffix)
                raise StageError(f"{entry.path}: it changed while it was being sent")
            os.rename(path + self._suffix, path)
            self._file = None
            self._hash = hashlib.sha256()
            self._got = 0

    def _prune(self) -> None:
        """Forgets contents that no launch has used for thirty days."""
        horizon = time.time() - _KEEP_SECONDS
        _walk_files(self._cache, lambda path: _unlink_older(path, horizon))


def _walk_files(folder: str, visit: Callable[[str], None]) -> None:
    for base, _, names in os.walk(folder):
        for name in names:
            visit(os.path.join(base, name))


def _unlink_older(path: str, horizon: float) -> None:
    try:
        if os.lstat(path).st_mtime < horizon:
            os.unlink(path)
    except FileNotFoundError:
        return  # another launch's agent was faster
