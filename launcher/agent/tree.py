"""Staged trees on disk: built from contents, kept between launches, and only mended the next time.

Making two thousand files costs a host more than sending them. So the trees of a run that is over
are put aside, and the next launch takes them up: what nobody has touched since (same inode, size,
times) and is still wanted stays, everything else is thrown out or made again. A tree belongs to
one run at a time: taking it up is a rename.
"""

from __future__ import annotations

import errno
import json
import os
from contextlib import suppress
from typing import Any, Callable, Dict, NamedTuple

from .folders import remove_tree, unlock
from .threads import log_line

KEEP_BYTES = 4 << 30
"""Trees that are larger are not kept: on a small disk they would stand in the way."""
_LARGE = 1 << 20

Index = Dict[str, Any]  # path → what was made there: kind, mode, content, and the inode's figures


class TreeEntry(NamedTuple):
    """One entry of a tree: `kind` is "d", "f" or "l"; `content` is the SHA-256 of a file or the
    target of a link."""

    tree: str
    path: str
    kind: str
    mode: int
    size: int
    content: str

    @property
    def place(self) -> str:
        """Its path below the stage."""
        return self.tree if self.path == "." else os.path.normpath(f"{self.tree}/{self.path}")


def build(
    folder: str, cached_tree: str, entries: list[TreeEntry], blob: Callable[[str], str]
) -> None:
    """Makes `folder` hold these entries and nothing else, reusing the tree at `cached_tree`;
    `blob` gives the path of a content.

    Raises:
        OSError: the disk is full or cannot be written.
    """
    clear(folder)
    old = _reuse_cached(cached_tree, folder)
    os.makedirs(folder, 0o700, exist_ok=True)
    wanted = {entry.place: entry for entry in entries}
    folders = {place for place, entry in wanted.items() if entry.kind == "d"}
    for place in wanted:
        parent = os.path.dirname(place)
        while parent and parent not in folders:
            folders.add(parent)
            parent = os.path.dirname(parent)
    try:
        index = _strip(folder, folders, {k: v for k, v in old.items() if _same(v, wanted.get(k))})
    except OSError:  # a task has left another user's files, say: then all is made again
        clear(folder)
        os.makedirs(folder, 0o700, exist_ok=True)
        index = {}
    for place in sorted(folders):
        with suppress(FileExistsError):  # from the launch before
            os.mkdir(os.path.join(folder, place), 0o755)
    for place, entry in wanted.items():
        if entry.kind != "d" and place not in index:
            index[place] = _make(os.path.join(folder, place), entry, blob)
    _write_index(folder, cached_tree, index)


def clear(folder: str) -> None:
    """Removes a folder, or renames it where something in it cannot be removed."""
    if not remove_tree(folder):
        os.rename(folder, f"{folder}.{os.urandom(6).hex()}")


def keep_for_reuse(folder: str) -> None:
    """Keeps the trees for the next launch, without what the run has left in them. What cannot
    be kept (too large, another disk, no room for one more) stays where it is."""
    try:
        cached_tree, index = _read_index(folder)
        if not cached_tree or os.path.exists(cached_tree):
            return
        if sum(facts[4] for facts in index.values()) > KEEP_BYTES:
            return
        folders = set()
        for place in index:
            while place:
                place = os.path.dirname(place)
                folders.add(place)
        left = _strip(folder, folders, index)
        os.makedirs(os.path.dirname(cached_tree), 0o700, exist_ok=True)
        _write_index(cached_tree, cached_tree, left)
        os.rename(folder, cached_tree)
    except (OSError, ValueError, LookupError) as error:
        log_line(f"trees not kept: {error}")


def _index(folder: str) -> str:
    return folder + ".index"


def _read_index(folder: str) -> tuple[str, Index]:
    with open(_index(folder)) as file:
        saved = json.load(file)
    return saved["kept"], saved["made"]


def _write_index(folder: str, cached_tree: str, index: Index) -> None:
    with open(_index(folder), "w") as file:
        json.dump({"kept": cached_tree, "made": index}, file)


def _reuse_cached(cached_tree: str, folder: str) -> Index:
    try:
        os.rename(cached_tree, folder)
    except OSError:  # there is none, another launch has it, or it lies on another disk
        return {}
    try:
        return _read_index(cached_tree)[1]
    except (OSError, ValueError, LookupError, TypeError):  # damaged, say
        return {}


def _same(made: list[Any], entry: Any) -> bool:
    return entry is not None and made[:3] == [entry.kind, entry.mode, entry.content]


def _strip(folder: str, folders: set[str], index: Index) -> Index:
    """Throws out what is not as the index says; returns what is still there.

    Raises:
        OSError: something cannot be removed.
    """
    left: Index = {}
    todo = [""]
    while todo:
        below = todo.pop()
        unlock(os.path.join(folder, below))
        with os.scandir(os.path.join(folder, below)) as listing:
            for item in listing:
                place = f"{below}/{item.name}" if below else item.name
                if item.is_dir(follow_symlinks=False):
                    if place in folders:
                        todo.append(place)
                    elif not remove_tree(item.path):
                        raise OSError(errno.ENOTEMPTY, "cannot be removed", item.path)
                elif (
                    place in index
                    and _figures(item.stat(follow_symlinks=False)) == index[place][3:]
                ):
                    left[place] = index[place]
                else:
                    os.unlink(item.path)
    return left


def _figures(info: os.stat_result) -> list[int]:
    return [info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns]


def _make(path: str, entry: TreeEntry, blob: Callable[[str], str]) -> list[Any]:
    """Never a hard link to the content: a task that writes into its file would change it for
    all launches to come."""
    if entry.kind == "l":
        os.symlink(entry.content, path)
    else:
        source = os.open(blob(entry.content), os.O_RDONLY | os.O_CLOEXEC)
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
            target = os.open(path, flags, entry.mode & 0o777)
            try:
                os.fchmod(target, entry.mode & 0o777)  # whatever the umask is
                _copy(source, target, entry.size)
                whole = os.fstat(target).st_size == entry.size
            except OSError as error:
                raise OSError(error.errno, error.strerror, path) from error
            finally:
                os.close(target)
            if not whole:  # the machine went down while it was being written
                os.unlink(blob(entry.content))
                raise OSError(errno.EIO, "the stored copy is damaged; launch again", path)
        finally:
            os.close(source)
    return [entry.kind, entry.mode, entry.content, *_figures(os.lstat(path))]


def _copy(source: int, target: int, size: int) -> None:
    if size > _LARGE and hasattr(os, "copy_file_range"):
        try:
            done = 0
            while done < size:  # shares the blocks on file systems that can
                step = os.copy_file_range(source, target, size - done)
                if step == 0:
                    break
                done += step
            return
        except OSError:
            os.lseek(source, 0, os.SEEK_SET)
            os.lseek(target, 0, os.SEEK_SET)
            os.ftruncate(target, 0)
    while True:
        data = os.read(source, _LARGE)
        if not data:
            return
        view = memoryview(data)
        while view:
            view = view[os.write(target, view) :]
