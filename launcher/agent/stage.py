"""Staging of files from the launcher: a manifest, then the contents that this host does not have.

Contents are kept by their SHA-256 in the user's cache, so a second launch sends what changed,
and a launch that was cut goes on at the byte where it stopped. The trees are built (`tree`) beside
their final place and renamed, so nobody sees half of one.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import threading
import time
from contextlib import suppress

from . import tree
from .folders import private, remove_tree
from .log import log_line
from .messages import StageAnswer
from .tree import TreeEntry

MOST_MISSING = 50_000
"""Contents that one answer names: each is 67 bytes of a frame of at most 4 MiB. After these have
been sent, the launcher sends the manifest again."""

_CONTENTS = re.compile("[0-9a-f]{2}")
"""Folders of contents, by the first letters of their hashes."""
_KEEP_SECONDS = 30 * 24 * 3600.0
_PRUNE_SECONDS = 24 * 3600.0


_BUILDING = threading.Lock()
"""After a cut the launcher begins again while the first build may still be under way."""


class StageError(ValueError):
    """An entry that must not be staged, or contents that are not what was announced."""


def check(entry: TreeEntry) -> None:
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
    """Receives the trees of one run into `target`; what several launches share is in `cache`,
    and `key` names the trees that follow each other from launch to launch. A content of which
    `before` has a part is continued."""

    def __init__(self, cache: str, target: str, key: str, before: Stage | None = None) -> None:
        self._cache = cache
        self._target = target
        self._cached_tree = os.path.join(cache, "trees", os.path.basename(key)) if key else ""
        self._suffix = f".{os.urandom(6).hex()}"  # the cache may be a home shared by many hosts
        self.entries: list[TreeEntry] = []
        self._missing: list[TreeEntry] = []
        self._file: int | None = None
        self._hash = hashlib.sha256()
        self._got = 0
        self._error = ""
        # One whose manifest has not become whole has taken nothing over.
        self._before: Stage | None = before and (before._before or before)

    def begin(self) -> StageAnswer:
        """Says what is missing, now that the manifest is whole, or builds when nothing is.

        Raises:
            OSError: the cache or the stage cannot be written, or the disk is full.
        """
        missing = self.missing()
        if not missing:
            self.build()
        return StageAnswer(tuple(missing), self._got, built=not missing)

    def missing(self) -> list[str]:
        """The contents that are to be sent next, in this order; call when the manifest is whole."""
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
                    if len(self._missing) == MOST_MISSING:
                        break
        if self._before is not None:
            self._continue(self._before)
            self._before = None
        return [entry.content for entry in self._missing]

    def _continue(self, before: Stage) -> None:
        """Takes over the part of a content, which is then the first to be sent."""
        if before._file is not None:
            content = before._missing[0].content
            for at, entry in enumerate(self._missing):
                if entry.content == content:
                    self._missing.insert(0, self._missing.pop(at))
                    self._file, before._file = before._file, None
                    self._suffix, self._hash, self._got = before._suffix, before._hash, before._got
                    return
            before.close()

    def feed(self, data: bytes) -> None:
        """Stores the next bytes of the contents, one after the other in the order asked for.

        Raises:
            StageError: more came than was asked for, or it has another SHA-256.
            OSError: the disk is full.
        """
        if self._error:
            return  # what was on its way when it failed
        try:
            self._feed(memoryview(data))
        except (StageError, OSError) as error:
            self._error = (
                f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else str(error)
            )
            raise

    def _feed(self, view: memoryview) -> None:
        while view:
            if not self._missing:
                raise StageError("more contents were sent than were asked for")
            entry = self._missing[0]
            part = view[: entry.size - self._got]
            self._write(entry, part)
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
        if self._error:
            raise StageError(self._error)
        while self._missing and self._missing[0].size == 0:
            self._open(self._missing[0])
            self._finish_blob()
        if self._missing:
            raise StageError(f"{len(self._missing)} contents have not been sent")
        new, old = self._target + ".new", self._target + ".old"
        with _BUILDING:
            tree.build(new, self._cached_tree, self.entries, self._blob)
            tree.clear(old)
            with contextlib.suppress(FileNotFoundError):
                os.rename(self._target, old)  # a task that starts now must not find it half gone
            os.rename(new, self._target)
            os.rename(new + ".index", self._target + ".index")
            remove_tree(old)
        self._prune()

    def keep_for_reuse(self) -> None:
        """The run is over: its trees may serve the next one."""
        if self._cached_tree:
            tree.keep_for_reuse(self._target, self._cached_tree)

    def _blob(self, digest: str) -> str:
        return os.path.join(self._cache, digest[:2], digest)

    def _open(self, entry: TreeEntry) -> int:
        if self._file is None:
            path = self._blob(entry.content)
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
            self._file = os.open(path + self._suffix, flags, 0o600)
            self._hash = hashlib.sha256()
            self._got = 0
        return self._file

    def _write(self, entry: TreeEntry, part: memoryview) -> None:
        path = self._blob(entry.content) + self._suffix
        try:
            file = self._open(entry)
            while part:
                part = part[os.write(file, part) :]
        except OSError as error:
            self.close()
            raise OSError(error.errno, error.strerror, path) from error

    def close(self) -> None:
        """Removes a content that has come only in part."""
        if self._before is not None:
            self._before.close()
            self._before = None
        if self._file is not None:
            os.close(self._file)
            self._file = None
            self._got = 0
            try:
                os.unlink(self._blob(self._missing[0].content) + self._suffix)
            except OSError as error:
                log_line(f"stage: {error}")

    def _finish_blob(self) -> None:
        while self._missing and self._got == self._missing[0].size:
            entry = self._missing.pop(0)
            os.close(self._open(entry))
            self._file = None
            path = self._blob(entry.content)
            if self._hash.hexdigest() != entry.content:
                os.unlink(path + self._suffix)
                raise StageError(f"{entry.path}: it changed while it was being sent")
            os.rename(path + self._suffix, path)
            self._hash = hashlib.sha256()
            self._got = 0

    def _prune(self) -> None:
        """Forgets, once a day, what no launch has used for thirty days."""
        now = time.time()
        stamp = os.path.join(self._cache, "pruned")
        with suppress(FileNotFoundError):  # never pruned before
            if now - os.stat(stamp).st_mtime < _PRUNE_SECONDS:
                return
        with open(stamp, "w"):
            os.utime(stamp, (now, now))
        trees = os.path.join(self._cache, "trees")
        for name in os.listdir(trees) if os.path.isdir(trees) else ():
            path = os.path.join(trees, name)
            if name.endswith(".index") and _older(path, now - _KEEP_SECONDS):
                if remove_tree(path[: -len(".index")]):
                    _unlink_older(path, now - _KEEP_SECONDS)
        for name in os.listdir(self._cache):  # others keep their files in this folder, too
            folder = os.path.join(self._cache, name)
            if _CONTENTS.fullmatch(name) and os.path.isdir(folder):
                for content in os.listdir(folder):
                    _unlink_older(os.path.join(folder, content), now - _KEEP_SECONDS)


def _older(path: str, horizon: float) -> bool:
    try:
        return os.lstat(path).st_mtime < horizon
    except FileNotFoundError:
        return False  # another launch's agent was faster


def _unlink_older(path: str, horizon: float) -> None:
    with suppress(FileNotFoundError):  # another launch's agent was faster
        if _older(path, horizon):
            os.unlink(path)
