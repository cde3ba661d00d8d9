"""Staged trees on disk: built from contents, kept between launches, and only mended the next time.

Making two thousand files costs a host more than sending them. So the trees of a run that is over
are put aside, and the next launch takes them up: what nobody has touched since (same inode, size,
times) and is still wanted stays, everything else is thrown out or made again. A tree belongs to
one run at a time: taking it up is a rename.

What tasks have made or changed in the workdir is taken out of it before (`keep_results`): it stays
with the run's folder. Nothing is read for that but names, sizes and times.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
from contextlib import suppress
from fnmatch import fnmatchcase
from typing import Any, Callable, Dict, Iterable, Iterator, NamedTuple, Sequence

from .by_products import file_by_product, folder_by_product
from .folders import ABOVE, OWN, remove_tree, unlock
from .threads import log_line

KEEP_BYTES = 4 << 30
"""Trees that are larger are not kept: on a small disk they would stand in the way."""
WORK = "work"
"""Tree of the workdir."""
_LARGE = 1 << 20
_OUTSIDE = ".."
_MAGIC = re.compile(r"[*?[]")

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
    folder: str,
    cached_tree: str,
    entries: list[TreeEntry],
    blob: Callable[[str], str],
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
    folders = _folders_above(wanted)
    folders.update(place for place, entry in wanted.items() if entry.kind == "d")
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
    for place in sorted(folders, reverse=True):  # one that is read-only is so when all is in it
        if place in wanted:
            os.chmod(os.path.join(folder, place), wanted[place].mode & 0o777)
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
        left = _strip(folder, _folders_above(index), index)
        os.makedirs(os.path.dirname(cached_tree), 0o700, exist_ok=True)
        _write_index(cached_tree, cached_tree, left)
        os.rename(folder, cached_tree)
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        log_line(f"trees not kept: {error}")


# --- results ----------------------------------------------------------------------------------


class WorkdirFile(NamedTuple):
    """A file or link that is in a run's workdir, or beside it: `inside` is its path there (each
    `..` is called `ABOVE`). It is a `result` where a task has made or changed it and it is no
    by-product; of one, `by_product` is the name."""

    inside: str
    path: str
    info: os.stat_result
    result: bool
    by_product: str = ""


def keep_results(stage: str, kept: str, brought: Sequence[str] = ()) -> bool:
    """Moves what tasks have made or changed in the workdir to the folder `kept`, but for what the
    launcher has `brought` to itself. False where something cannot be moved, and stays."""
    whole, ready = True, None
    problems: list[str] = []
    patterns = [pattern_of(path) for path in brought]
    for file in workdir_files(stage, problems, unlocks=True):
        if not file.result or any(begins(parts_of(file.path), one) for one in patterns):
            continue
        folder = os.path.dirname(file.inside)
        try:
            if folder != ready:
                _make_folder(kept, folder)
                ready = folder
            _move(file.path, os.path.join(kept, file.inside))
        except OSError as error:  # another user's folder, a full disk
            log_line(f"not taken out of the workdir: {error}")
            whole = False
    for problem in problems:
        log_line(f"not searched: {problem}")
    for folder in (kept, stage):  # their age counts from here on
        with suppress(OSError):  # there is nothing to keep
            os.utime(folder)
    return whole and not problems


def can_move(path: str) -> bool:
    """Whether a file can be taken out of its folder, which may be another user's."""
    folder = os.path.dirname(path)
    try:
        return os.access(folder, os.W_OK | os.X_OK) or os.lstat(folder).st_uid == os.geteuid()
    except OSError:
        return True  # it has gone meanwhile


def _move(path: str, target: str) -> None:
    """Renames a file, also out of a folder that a task has made read-only.

    Raises:
        OSError: it stays where it is.
    """
    try:
        os.rename(path, target)
    except PermissionError:
        unlock(os.path.dirname(path))
        os.rename(path, target)


def workdir_files(
    stage: str, problems: list[str], *, unlocks: bool = False, by_products: bool = False
) -> Iterator[WorkdirFile]:
    """All files and links in a run's workdir, and those that tasks have made beside and above it in
    the run's folder. Folders that cannot be read are named in `problems`; with `unlocks` those that
    a task has closed are opened, and with `by_products` those of by-products are looked through.
    """
    try:
        index = _read_index(stage)[1]
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        index = {}  # a task has damaged it: all files may be of tasks
    folders = _folders_above(index) | {WORK}
    prepared = _read_prepared(stage)
    # Not where a task has put a link in its place.
    todo = [(stage, "", "")] if _is_folder(stage) else []
    for item in _foreign(os.path.dirname(stage)) if todo else ():
        place = f"{_OUTSIDE}/{item.name}"
        if item.is_dir(follow_symlinks=False):
            todo.append((item.path, place, ""))
        else:
            with suppress(OSError):  # it has gone meanwhile
                info = item.stat(follow_symlinks=False)
                if stat.S_ISREG(info.st_mode) or stat.S_ISLNK(info.st_mode):
                    yield _workdir_file(item, place, info, "", index, prepared)
    while todo:
        folder, place, by_product = todo.pop()
        try:
            found = _listed(folder, unlocks)
        except FileNotFoundError:
            continue  # it has gone meanwhile
        except OSError as error:
            problems.append(f"{folder}: {error.strerror}")
            continue
        if "/" in place and not by_product:  # the workdir may be an environment itself
            by_product = folder_by_product(_inside(place), {item.name for item in found})
        if by_product and place not in folders and not by_products:
            continue
        for item in found:
            below = f"{place}/{item.name}" if place else item.name
            try:
                info = item.stat(follow_symlinks=False)
            except OSError:
                continue  # it has gone meanwhile
            if stat.S_ISDIR(info.st_mode):
                todo.append((item.path, below, by_product))
            elif stat.S_ISREG(info.st_mode) or stat.S_ISLNK(info.st_mode):
                yield _workdir_file(item, below, info, by_product, index, prepared)


def _workdir_file(
    item: os.DirEntry[str],
    place: str,
    info: os.stat_result,
    by_product: str,
    index: Index,
    prepared: dict[str, Any],
) -> WorkdirFile:
    made = index.get(place)
    if made is not None:
        by_product = ""  # whoever had it copied means it
        result = _changed(info, made)
    else:
        by_product = by_product or file_by_product(item.name)
        result = not by_product
    if [info.st_size, info.st_mtime_ns, info.st_ctime_ns] == prepared.get(place):
        result, by_product = False, ""
    return WorkdirFile(_inside(place), item.path, info, result, by_product)


def _inside(place: str) -> str:
    """The path in the workdir of a place below the stage."""
    if place.startswith(f"{WORK}/"):
        return place[len(WORK) + 1 :]
    if place.startswith(f"{_OUTSIDE}/"):
        return f"{ABOVE}/{ABOVE}/{place[len(_OUTSIDE) + 1 :]}"
    return f"{ABOVE}/{place}"


def _foreign(run: str) -> list[os.DirEntry[str]]:
    """Files and folders in the folder of a run that tasks have made: there, two levels above their
    workdir."""
    with suppress(OSError), os.scandir(run) as listing:
        return [one for one in listing if one.name.partition(".")[0] not in OWN]
    return []


def _read_prepared(stage: str) -> dict[str, Any]:
    """The files that were there when the `prepare` lines had ended, with size and times: what is
    still so, no task has made. No clock is asked, which may have been set back since."""
    try:
        with open(stage + ".prepared") as file:
            found = json.load(file)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def kept_files(kept: str, problems: list[str]) -> Iterator[WorkdirFile]:
    """All files and links in a folder of results."""
    todo = [""] if _is_folder(kept) else []
    while todo:
        below = todo.pop()
        try:
            found = _listed(os.path.join(kept, below), False)
        except FileNotFoundError:
            continue  # it has gone meanwhile
        except OSError as error:
            problems.append(f"{os.path.join(kept, below)}: {error.strerror}")
            continue
        for item in found:
            inside = below + item.name
            with suppress(OSError):  # it has gone meanwhile
                info = item.stat(follow_symlinks=False)
                if stat.S_ISDIR(info.st_mode):
                    todo.append(inside + "/")
                else:
                    yield WorkdirFile(inside, item.path, info, True)


def parts_of(path: str) -> list[str]:
    """The parts of a path, or of a pattern of paths, without those that mean nothing."""
    return [part for part in path.split("/") if part not in ("", ".")]


def pattern_of(path: str) -> list[str]:
    """The parts of the pattern that a path is: where there is a file of that very name, it means
    that file."""
    return parts_of(path if is_pattern(path) else _MAGIC.sub(r"[\g<0>]", path))


def is_pattern(path: str) -> bool:
    """Whether a path is a pattern: it has the characters of one, and no file is called so."""
    return is_magic(path) and not os.path.lexists(path)


def is_magic(text: str) -> bool:
    """Whether a text has the characters of a pattern."""
    return _MAGIC.search(text) is not None


def is_wanted(path: Sequence[str], pattern: Sequence[str]) -> bool:
    """Whether a result matches a pattern of a person: of its path in the workdir, or of one part
    of it."""
    if len(pattern) == 1 and any(matches(part, pattern[0]) for part in path):
        return True
    pattern = [ABOVE if part == ".." else part for part in pattern]
    literal = [_MAGIC.sub(r"[\g<0>]", part) for part in pattern]
    return begins(path, pattern) or begins(path, literal)


def matches(name: str, pattern: str) -> bool:
    """Whether a file's name matches a pattern as in a shell: hidden ones must be meant."""
    hidden = name.startswith(".") and not pattern.startswith((".", "[.]"))
    return not hidden and fnmatchcase(name, pattern)


def begins(path: Sequence[str], pattern: Sequence[str]) -> bool:
    """Whether a path, or a folder above it, matches a pattern part by part; `**` stands for any
    number of folders, and at the end for one part."""
    for number, part in enumerate(pattern):
        rest = pattern[number + 1 :]
        if part == "**" and rest:
            for at in range(number, len(path)):
                if begins(path[at:], rest):
                    return True
                if path[at].startswith("."):
                    break
            return False
        if number >= len(path) or not matches(path[number], part):
            return False
    return True


def _make_folder(base: str, inside: str) -> None:
    """Makes a folder, and those above it from `base` on. What a task has put in the place of one,
    a link say, is removed.

    Raises:
        OSError: it cannot be made.
    """
    path = base
    for part in ["", *parts_of(inside)]:
        path = os.path.join(path, part) if part else path
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            if not _is_folder(path):
                os.unlink(path)
                os.mkdir(path, 0o700)


def _is_folder(path: str) -> bool:
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False


def _listed(folder: str, unlocks: bool) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as listing:
            return list(listing)
    except PermissionError:
        if not unlocks:
            raise
        unlock(folder)
        with os.scandir(folder) as listing:
            return list(listing)


def _changed(info: os.stat_result, made: Sequence[Any]) -> bool:
    """Whether a file has other contents than it was made with. Its inode is not compared, since
    some file systems have no numbers that last; a `chmod` changes the last time, and no contents.
    """
    _, mode, _, _, size, modified, changed = made
    if info.st_size != size or info.st_mtime_ns != modified:
        return True
    return info.st_ctime_ns != changed and stat.S_IMODE(info.st_mode) in (mode & 0o777, 0o777)


# --- inside -----------------------------------------------------------------------------------


def _index(folder: str) -> str:
    return folder + ".index"


def _read_index(folder: str) -> tuple[str, Index]:
    with open(_index(folder)) as file:
        saved = json.load(file)
    kept, made = saved["kept"], saved["made"]
    for place, facts in made.items():  # a task may have written to it
        if place.startswith("/") or len(facts) != 7:
            raise ValueError(f"{_index(folder)}: damaged")
    return kept, made


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
    except (OSError, ValueError, LookupError, TypeError, AttributeError):  # damaged, say
        return {}


def _same(made: list[Any], entry: Any) -> bool:
    return entry is not None and made[:3] == [entry.kind, entry.mode, entry.content]


def _folders_above(places: Iterable[str]) -> set[str]:
    """All folders in which these places are, up to the root, which is not among them."""
    folders: set[str] = set()
    for place in places:
        parent = os.path.dirname(place)
        while parent and parent not in folders:
            folders.add(parent)
            parent = os.path.dirname(parent)
    return folders


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
