"""Transfer of files: one staging or one collection, on a host.

Staging: the request names the trees' entries with the SHA-256 of each file; the program says which
contents are missing in the user's cache there, reads them one after the other, and builds the trees
beside their final place. A content that is not what was announced (its file has changed) is named,
and the launcher sends other entries. A launch sends what changed. Where a connection is cut, the
file that was under way is sent again from its beginning.

Results: what tasks have made or changed in the workdir, which the agent keeps (`agent/tree.py`). It
is found by comparing sizes and times with what was staged.

Collecting: the program says what there is, then comes a stream of members, of which it writes a
piece for each byte that the launcher sends: what the launcher has no room for stays on the host. A
member is a length, a head of JSON of that length, and for a file its contents: `{"name":
"out/model", "kind": "file", "size": 12, "mode": 420, "mtime": 1763657402}`, `{"name": "out",
"kind": "folder", "mode": 493}`. A folder comes before what is in it, a length of 0 ends the stream,
and a message with what could not be read follows. Nothing is written on this host, where the disk
may be full.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import time
from contextlib import suppress
from typing import Any, Iterator, Sequence

from ..agent import tree
from ..agent.folders import Folders, private, remove_tree
from ..agent.threads import error_text
from ..agent.tree import TreeEntry
from .pipe import CHUNK, LENGTH, Pipe, PipeEnded, write_all

PIECE = 256 * 1024
"""Bytes of a collection for which the launcher asks by one byte."""
MOST_LISTED = 100
MOST_MEMBERS = 2_000_000
"""Files and folders of one collection: their names are kept in memory."""
_CONTENTS = re.compile("[0-9a-f]{2}")
"""Folders of contents, by the first letters of their hashes."""
_KEEP_SECONDS = 30 * 24 * 3600.0
_PRUNE_SECONDS = 24 * 3600.0


def bring(pipe: Pipe, folders: Folders, asked: dict[str, Any]) -> None:
    """Brings files here (`stage`), or to the launcher (`collect`, `collect-results`), or says how
    many tasks have made here (`results`).

    Raises:
        OSError: the disk is full or cannot be used, or the connection ended.
        ValueError: a file changed while it was sent, or there are too many.
    """
    if asked["what"] == "stage":
        staging = Staging(pipe, folders.cache, folders.stage, asked["key"])
        staging.run([TreeEntry(*row) for row in asked["entries"]], asked["ignored"])
    elif asked["what"] == "results":
        pipe.send(find_results(folders, asked["brought"], asked["moved"]))
    elif asked["what"] == "collect-results":
        collect_results(pipe, folders, asked)
    else:
        collect(pipe, asked["paths"])


# --- files from the launcher ------------------------------------------------------------------


class Staging:
    """Files of one run for the folder `target`; what launches share is in `cache`, and `key` names
    the trees that follow each other from launch to launch."""

    def __init__(self, pipe: Pipe, cache: str, target: str, key: str) -> None:
        self._pipe = pipe
        self._cache = cache
        self._target = target
        self._cached_tree = os.path.join(cache, "trees", os.path.basename(key)) if key else ""
        self._own = os.urandom(6).hex()  # the cache may be a home shared by many hosts

    def run(self, entries: list[TreeEntry], ignored: tree.Rules) -> None:
        """Receives what is missing, and builds the trees.

        Raises:
            OSError: the disk is full or cannot be written, or the connection ended.
        """
        turn = f"{self._target}.turn"
        file = os.open(turn, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            _write(file, self._own.encode(), turn)  # the last one that comes builds (`_replace`)
        finally:
            os.close(file)
        private(self._cache)
        while True:
            missing = self._missing(entries)
            self._pipe.send({"missing": [entry.content for entry in missing]})
            changed = [entry.content for entry in missing if not self._receive(entry)]
            if not changed:
                break
            self._pipe.send({"changed": changed})
            entries = [TreeEntry(*row) for row in self._pipe.receive()["entries"]]
        new = f"{self._target}.{self._own}"
        try:
            tree.build(new, self._cached_tree, entries, self._blob, ignored)
            self._replace(new, turn)
        finally:
            for left in (new, f"{new}.old"):
                remove_tree(left)
            with suppress(FileNotFoundError):  # it is in its place
                os.unlink(f"{new}.index")
        prune(self._cache, os.path.dirname(os.path.dirname(self._target)))
        self._pipe.send({"built": True})

    def _missing(self, entries: list[TreeEntry]) -> list[TreeEntry]:
        missing = {}
        for entry in entries:
            if entry.kind == "f" and entry.content not in missing:
                try:
                    os.utime(self._blob(entry.content))
                except FileNotFoundError:
                    missing[entry.content] = entry
        return list(missing.values())

    def _receive(self, entry: TreeEntry) -> bool:
        """Stores one content; False: other bytes have come, since the file has changed."""
        path = self._blob(entry.content)
        os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
        part, left, digest = f"{path}.{self._own}", entry.size, hashlib.sha256()
        try:
            file = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                while left:
                    data = self._pipe.read(left)
                    left -= len(data)
                    digest.update(data)
                    _write(file, data, part)
            finally:
                os.close(file)
            if digest.hexdigest() != entry.content:
                os.unlink(part)
                return False
            os.rename(part, path)
            return True
        except BaseException:
            with suppress(OSError):
                os.unlink(part)
            raise

    def _replace(self, new: str, turn: str) -> None:
        """Puts the new trees into their place, unless another program has begun since: this one's
        launcher was cut off then, and tasks may have started in what the other one has built."""
        with open(turn) as file:
            if file.read() != self._own:
                raise PipeEnded(0, "the files are being sent again")
        with suppress(FileNotFoundError):
            os.rename(self._target, f"{new}.old")  # a task must not find it half gone
        os.rename(new, self._target)
        os.rename(f"{new}.index", f"{self._target}.index")

    def _blob(self, content: str) -> str:
        return os.path.join(self._cache, content[:2], content)


def _write(file: int, data: bytes, path: str) -> None:
    try:
        write_all(file, data)
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from error


def prune(cache: str, runs: str) -> None:
    """Forgets, once a day, what no launch has used for thirty days, and what runs have left in
    their folders, which are in the folder `runs`."""
    now = time.time()
    stamp = os.path.join(cache, "pruned")
    with suppress(FileNotFoundError):  # never pruned before
        if now - os.stat(stamp).st_mtime < _PRUNE_SECONDS:
            return
    with open(stamp, "w"):
        os.utime(stamp, (now, now))
    for name in os.listdir(runs):
        _prune_run(os.path.join(runs, name), now - _KEEP_SECONDS)
    trees = os.path.join(cache, "trees")
    for name in os.listdir(trees) if os.path.isdir(trees) else ():
        path = os.path.join(trees, name)
        if name.endswith(".index") and _older(path, now - _KEEP_SECONDS):
            if remove_tree(path[: -len(".index")]):
                _unlink_older(path, now - _KEEP_SECONDS)
    for name in os.listdir(cache):  # others keep their files in this folder, too
        folder = os.path.join(cache, name)
        if _CONTENTS.fullmatch(name) and os.path.isdir(folder):
            for content in os.listdir(folder):
                _unlink_older(os.path.join(folder, content), now - _KEEP_SECONDS)


def _prune_run(run: str, horizon: float) -> None:
    """Removes old results from the folder of a run, and from one that has ended without a launcher
    the workdir in which they are."""
    if _older(os.path.join(run, "exit"), horizon):  # the next agent of the run takes that file away
        remove_tree(os.path.join(run, "stage"))
    if _older(os.path.join(run, "results"), horizon):
        remove_tree(os.path.join(run, "results"))
        with suppress(OSError):  # something else is in it
            os.rmdir(run)


def _older(path: str, horizon: float) -> bool:
    try:
        return os.lstat(path).st_mtime < horizon
    except (FileNotFoundError, NotADirectoryError):
        return False  # another launch was faster


def _unlink_older(path: str, horizon: float) -> None:
    with suppress(FileNotFoundError):  # another launch was faster
        if _older(path, horizon):
            os.unlink(path)


# --- results for the launcher -----------------------------------------------------------------

MOST_COMPARED = 200_000
COMPARE_SECONDS = 5.0


def find_results(folders: Folders, brought: Sequence[str], moved: bool) -> dict[str, Any]:
    """How many files tasks have made or changed in the workdir, but for what has been `brought` to
    the launcher, and where they will be: elsewhere, where the agent removes the workdir. Not all
    are looked at where there are very many."""
    until = time.monotonic() + COMPARE_SECONDS
    patterns = [tree.pattern_of(path) for path in brought]
    problems: list[str] = []
    files = size = seen = 0
    cut = False
    for file in tree.workdir_files(folders.stage, problems, unlocks=True):
        seen += 1
        if seen > MOST_COMPARED or time.monotonic() > until:
            cut = True
            break
        if not file.result or not stat.S_ISREG(file.info.st_mode):
            continue
        if not any(tree.begins(tree.parts_of(file.path), one) for one in patterns):
            files += 1
            size += file.info.st_size
    return {
        "files": files,
        "bytes": size,
        "folder": folders.results if moved else os.path.join(folders.stage, tree.WORK),
        "cut": cut,
        "problems": problems[:MOST_LISTED],
    }


class CollectedMembers:
    """What is to be collected: members in their order, and what is left out. `have` are files that
    the launcher has, by their names: their size and time, and whether they may be parts."""

    def __init__(self, have: dict[str, tuple[int, int, bool]]) -> None:
        self.members: list[tuple[dict[str, Any], str]] = []
        self.links: list[str] = []
        self.absent: list[str] = []
        self.problems: list[str] = []
        self.size = 0
        self.present = 0
        """Number of files that the launcher has."""
        self._have = have
        self._folders: set[str] = set()

    def add_paths(self, wanted: Sequence[tuple[str, str]]) -> None:
        """Adds what is below some paths under their names. One that is not there may be a pattern:
        what matches has its own names, from the first part on that is not fixed."""
        patterns, taken, links = [], set(), set()
        for name, path in wanted:
            path = os.path.expanduser(path)
            if tree.is_pattern(path):
                patterns.append(path)
                continue
            taken.add(name)
            if not os.path.lexists(path):
                self.absent.append(path)
            elif os.path.isdir(path):
                self._walk(name, path)
            else:
                self._add(name, os.path.realpath(path))
                links |= {os.path.realpath(path)} - {path}
        seen = {path.rstrip("/") for _, path in self.members} - links
        for pattern in patterns:
            self._add_matches(pattern, taken, seen)

    def _add_matches(self, pattern: str, taken: set[str], seen: set[str]) -> None:
        base, found = expanded(pattern)
        if not found:
            self.absent.append(pattern)
        tops: dict[str, str] = {}  # of these names here, as they are called there
        for path in found:
            if path in seen or any(path.startswith(one + "/") for one in tops.values()):
                continue
            name = os.path.relpath(path, base)
            first, _, rest = name.partition("/")
            if first not in tops:
                tops[first], number = first, 1
                while tops[first] in taken:
                    number += 1
                    tops[first] = f"{first}-{number}"
            self.add_file("/".join(filter(None, (tops[first], rest))), path)
        taken.update(tops.values())
        seen.update(path.rstrip("/") for _, path in self.members)

    def add_results(self, folders: Folders, patterns: Sequence[str]) -> None:
        """Adds what tasks of the run have made or changed in the workdir, where it matches one of
        the patterns: of a path in the workdir, or (without a slash) of any part of one."""
        wanted = [tree.parts_of(pattern) for pattern in patterns]
        names: dict[str, str] = {}
        for file in tree.kept_files(folders.results, self.problems):
            names[file.inside] = file.path
        for file in tree.workdir_files(folders.stage, self.problems):
            if file.result:
                names.setdefault(file.inside, file.path)
        met: set[int] = set()
        for name in sorted(names):
            parts = tree.parts_of(name)
            which = [n for n, one in enumerate(wanted) if tree.is_wanted(parts, one)]
            met.update(which)
            if which or not wanted:
                self.add_file(name, names[name])
        self.absent += [one for n, one in enumerate(patterns) if n not in met]

    def add_file(self, name: str, path: str) -> None:
        """Adds a file or folder, and before it the folders in which it is."""
        above = os.path.dirname(name)
        missing = []
        while above and above not in self._folders:
            missing.append(above)
            above = os.path.dirname(above)
        for folder in reversed(missing):
            self._folders.add(folder)
            self._append({"name": folder, "kind": "folder", "mode": 0o755}, "")
        if os.path.isdir(path) and not os.path.islink(path):
            self._walk(name, path)
        else:
            self._add(name, path)

    def _walk(self, name: str, path: str) -> None:
        todo = [(name, os.path.join(path, ""))]  # a stack: `os.walk` recurses before Python 3.12
        while todo:
            inside, folder = todo.pop()
            self._add(inside, folder)
            try:
                with os.scandir(folder) as listing:
                    found = sorted(listing, key=lambda item: item.name)
            except OSError as error:
                self.problem(error_text(error))
                continue
            for item in found:
                below = f"{inside}/{item.name}"
                if item.is_dir(follow_symlinks=False):
                    todo.append((below, item.path))
                else:
                    self._add(below, item.path)

    def _add(self, name: str, path: str) -> None:
        head: dict[str, Any] = {"name": name}
        try:
            info = os.lstat(path)
        except OSError as error:
            self.problem(error_text(error))
            return
        if stat.S_ISLNK(info.st_mode):
            self.links.append(name)
            return
        if stat.S_ISDIR(info.st_mode):
            head.update(kind="folder", mode=stat.S_IMODE(info.st_mode))
        elif stat.S_ISREG(info.st_mode):
            seconds, nanoseconds = divmod(max(0, info.st_mtime_ns), 10**9)
            head.update(kind="file", mode=stat.S_IMODE(info.st_mode))
            head.update(size=info.st_size, mtime=seconds, nanoseconds=nanoseconds)
            had, time_ns, part = self._have.get(name, (0, -1, False))
            if time_ns == max(0, info.st_mtime_ns):
                if had == info.st_size:
                    self.present += 1
                    return
                if part and had < info.st_size:
                    head.update(size=info.st_size - had, offset=had)
        else:
            return  # a socket, a pipe: nothing of it could be brought anywhere
        self._append(head, path)

    def _append(self, head: dict[str, Any], path: str) -> None:
        if len(self.members) == MOST_MEMBERS:
            raise ValueError(f"there are more than {MOST_MEMBERS} files and folders")
        self.members.append((head, path))
        self.size += LENGTH.size + len(_head(head)) + head.get("size", 0)

    def problem(self, text: str) -> None:
        """Names what could not be read."""
        if text not in self.problems and len(self.problems) < MOST_LISTED:
            self.problems.append(text)


def collect(pipe: Pipe, wanted: list[tuple[str, str]]) -> None:
    """Writes the files below some paths, as they are asked for.

    Raises:
        OSError: the connection ended.
        ValueError: there are too many.
    """
    found = CollectedMembers({})
    found.add_paths(wanted)
    _send(pipe, found)


def collect_results(pipe: Pipe, folders: Folders, asked: dict[str, Any]) -> None:
    """Writes the results of a run, as far as the launcher does not have them.

    Raises:
        OSError: the connection ended.
        ValueError: there are too many.
    """
    found = CollectedMembers(
        {name: (size, time_ns, part) for name, size, time_ns, part in asked["have"]}
    )
    found.add_results(folders, asked["patterns"])
    _send(pipe, found)


def _send(pipe: Pipe, found: CollectedMembers) -> None:
    pipe.send(
        {
            "size": found.size + LENGTH.size,
            "files": sum(head["kind"] == "file" for head, _ in found.members),
            "links": found.links[:MOST_LISTED],
            "absent": found.absent[:MOST_LISTED],
            "present": found.present,
        }
    )
    ready = bytearray()
    for data in _stream(found):
        ready += data
        while len(ready) >= PIECE:
            pipe.read_exactly(1)
            pipe.write(bytes(ready[:PIECE]))
            del ready[:PIECE]
    pipe.write(bytes(ready))
    pipe.send({"problems": found.problems})


def expanded(pattern: str) -> tuple[str, list[str]]:
    """The folder from which on a pattern is not fixed, and the paths that match it."""
    parts = tree.parts_of(pattern)
    fixed = next(at for at, part in enumerate(parts) if tree.is_magic(part))
    base = "/" + "/".join(parts[:fixed])
    found = [base]
    for number, part in enumerate(parts[fixed:], fixed + 1):
        if part == "**" and number < len(parts):
            found = [below for folder in found for below in _all_folders(folder)]
        elif tree.is_magic(part):
            names = [(folder, name) for folder in found for name in _names(folder)]
            found = [os.path.join(f, name) for f, name in names if tree.matches(name, part)]
        else:
            found = [path for f in found if os.path.lexists(path := os.path.join(f, part))]
    return base, list(dict.fromkeys(found))


def _names(folder: str) -> list[str]:
    with suppress(OSError):  # no folder, or one that may not be read
        return sorted(os.listdir(folder))
    return []


def _all_folders(folder: str) -> list[str]:
    found = [folder]  # grows meanwhile
    for one in found:
        paths = [os.path.join(one, name) for name in _names(one) if not name.startswith(".")]
        found += [path for path in paths if os.path.isdir(path) and not os.path.islink(path)]
    return found


def _stream(found: CollectedMembers) -> Iterator[bytes]:
    """The members with their contents. What cannot be read, or has become shorter, is named and
    filled with zeros, so that everything else arrives."""
    for head, path in found.members:
        raw, file = _head(head), -1
        left = head.get("size", 0)
        try:
            if left:
                # A pipe may stand there by now: to open one must not wait for its other end.
                flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
                file = os.open(path, flags)
        except OSError as error:
            found.problem(error_text(OSError(error.errno, error.strerror, path)))
            # Nobody takes what comes in its place for the file: it has another time.
            raw = _head({**head, "mtime": 0}).ljust(len(raw))
        yield LENGTH.pack(len(raw)) + raw
        if file >= 0:
            try:
                try:
                    os.lseek(file, head.get("offset", 0), os.SEEK_SET)
                    while left:
                        data = os.read(file, min(CHUNK, left))
                        if not data:
                            found.problem(f"{path}: became shorter while it was read")
                            break
                        yield data
                        left -= len(data)
                finally:
                    os.close(file)
            except OSError as error:
                found.problem(error_text(OSError(error.errno, error.strerror, path)))
        while left:
            yield bytes(min(CHUNK, left))
            left -= min(CHUNK, left)
    yield LENGTH.pack(0)


def _head(head: dict[str, Any]) -> bytes:
    return json.dumps(head, separators=(",", ":")).encode()
