"""Transfer of files: one staging or one collection, on a host.

Staging: the request names the trees' entries with the SHA-256 of each file; the program says which
contents are missing in the user's cache there, reads them one after the other, and builds the trees
beside their final place. A content that is not what was announced (its file has changed) is named,
and the launcher sends other entries. A launch sends what changed. Where a connection is cut, the
file that was under way is sent again from its beginning.

Results: what tasks have made or changed in the workdir, which the agent keeps (`agent/tree.py`). It
is found by comparing sizes and times with what was staged.

Collecting: the program says what there is, then comes a stream of members in blocks, each behind
its length, of which it writes one for each byte that the launcher sends: what the launcher has no
room for stays on the host. A member is a length and a head of JSON of that length, such as
`{"name": "out/model", "kind": "file", "size": 12, "mode": 420, "mtime": 1763657402}` or `{"name":
"out", "kind": "folder", "mode": 493}`. A file's contents follow in chunks, each behind its length;
0 ends the file, `BROKEN_OFF` says that it cannot be read to its end. A folder comes before what is
in it, a member of length 0 ends the stream. The blocks that are asked for behind it are empty; a
message with what could not be read follows. Nothing is written on this host, where the disk may be
full.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import stat
import time
from contextlib import suppress
from typing import Any, Callable, Iterator, NamedTuple, Sequence

from ..agent import tree
from ..agent.folders import ABOVE, Folders, lock_within, private, remove_tree
from ..agent.threads import error_text
from ..agent.tree import TreeEntry
from .held import after_staging
from .pipe import CHUNK, LENGTH, Pipe, PipeEnded, write_all

PIECE = 256 * 1024
"""Most bytes of a block of a collection, for which the launcher asks by one byte."""
MORE, ENOUGH = b"\0", b"\1"
"""The launcher's byte for another block, and the one after which it asks for none."""
WHOLE, BROKEN_OFF = LENGTH.pack(0), LENGTH.pack(0xFFFFFFFF)
"""What is in the place of a chunk's length when a file has come to its end, and when there will be
no more of it, and what has come is to be thrown away."""
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
        staging = Staging(
            pipe,
            folders.cache,
            folders.stage,
            asked["key"],
            lambda: {"disk": after_staging(folders)},
        )
        staging.run([TreeEntry(*row) for row in asked["entries"]])
    elif asked["what"] == "results":
        pipe.send(find_results(folders, asked["brought"], asked["moved"]))
    elif asked["what"] == "collect-results":
        collect_results(pipe, folders, asked)
    else:
        collect(pipe, asked["paths"])


# --- files from the launcher ------------------------------------------------------------------


class Staging:
    """Files of one run for the folder `target`; what launches share is in `cache`, and `key` names
    the trees that follow each other from launch to launch. `facts` go with the last word."""

    def __init__(
        self,
        pipe: Pipe,
        cache: str,
        target: str,
        key: str,
        facts: Callable[[], dict[str, Any]] = dict,
    ) -> None:
        self._pipe = pipe
        self._facts = facts
        self._cache = cache
        self._target = target
        self._cached_tree = os.path.join(cache, "trees", os.path.basename(key)) if key else ""
        self._own = os.urandom(6).hex()  # the cache may be a home shared by many hosts

    def run(self, entries: list[TreeEntry]) -> None:
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
            tree.build(new, self._cached_tree, entries, self._blob)
            self._replace(new, turn)
        finally:
            for left in (new, f"{new}.old"):
                remove_tree(left)
            with suppress(FileNotFoundError):  # it is in its place
                os.unlink(f"{new}.index")
        prune(self._cache, os.path.dirname(os.path.dirname(self._target)))
        self._pipe.send({"built": True, **self._facts()})

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
    """Removes old results from the folder of a run, and the workdir in which they are where it has
    ended without a launcher, or they could not be moved."""
    over = os.path.join(run, "exit")  # the next agent of the run takes that file away
    if not os.path.lexists(over) and not os.path.lexists(os.path.join(run, "began")):
        over = os.path.join(run, "stage")  # its agent has gone
    if _older(over, horizon):
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
_MOST_NAMED = 10
_MOVE_SECONDS = 500.0
"""Longest wait for an agent that moves results; the launcher waits longer for the list of them."""
_LOOK_SECONDS = 0.1


def find_results(folders: Folders, brought: Sequence[str], moved: bool) -> dict[str, Any]:
    """How many files tasks have made or changed in the workdir, but for what has been `brought` to
    the launcher, and where they will be: elsewhere, where the agent removes the workdir, and in two
    places where another user's folder does not let go of some. Those
    above the workdir are among them; by-products, which do not stay, are counted for themselves.
    Not all are looked at where there are very many."""
    until = time.monotonic() + COMPARE_SECONDS
    patterns = [tree.pattern_of(path) for path in brought]
    problems: list[str] = []
    files = size = above = seen = 0
    names: dict[str, None] = {}
    by_products = by_product_bytes = 0
    cut, movable = False, True
    for file in tree.workdir_files(folders.stage, problems, unlocks=True, by_products=True):
        seen += 1
        if seen > MOST_COMPARED or time.monotonic() > until:
            cut = True
            break
        if file.by_product:
            names[file.by_product] = None
            by_products += 1
            by_product_bytes += file.info.st_size
        if not file.result or not stat.S_ISREG(file.info.st_mode):
            continue
        if not any(tree.begins(tree.parts_of(file.path), one) for one in patterns):
            files += 1
            size += file.info.st_size
            above += file.inside.startswith(f"{ABOVE}/")
            movable = movable and tree.can_move(file.path)
    place = folders.results if moved else os.path.join(folders.stage, tree.WORK)
    return {
        "files": files,
        "bytes": size,
        "folder": place if movable else folders.run,
        "cut": cut,
        "problems": problems[:MOST_LISTED],
        "above": above,
        "by_products": by_products,
        "by_product_bytes": by_product_bytes,
        "by_product_names": sorted(names)[:_MOST_NAMED],
    }


def wait_until_moved(folders: Folders) -> None:
    """Waits while the agent, which has been told to go, moves the results out of the workdir."""
    until = time.monotonic() + _MOVE_SECONDS
    while os.path.exists(folders.leaving) and time.monotonic() < until:
        try:
            lock = os.open(folders.watch, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return  # it has gone, or was another machine's
        try:
            if lock_within(lock, 0.0):
                return  # it has died
        finally:
            os.close(lock)
        time.sleep(_LOOK_SECONDS)


class Member(NamedTuple):
    """Folder or file that is to be collected: what is announced of it, where it lies, and the
    numbers by which the file system knew it then."""

    head: dict[str, Any]
    path: str
    inode: tuple[int, int] = (0, 0)


class CollectedMembers:
    """What is to be collected: members in their order, and what is left out. `have` are files that
    the launcher has, by their names: their size and time, and whether they may be parts."""

    def __init__(self, have: dict[str, tuple[int, int, bool]]) -> None:
        self.members: list[Member] = []
        self.links: list[str] = []
        self.absent: list[str] = []
        self.problems: list[str] = []
        self.size = 0
        self.present = 0
        """Number of files that the launcher has."""
        self.moved_to = ""
        """The folder to which an agent may move what is in the workdir meanwhile."""
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
        seen = {path.rstrip("/") for _, path, _ in self.members} - links
        for pattern in patterns:
            self._add_matches(pattern, taken, seen)

    def _add_matches(self, pattern: str, taken: set[str], seen: set[str]) -> None:
        base, found = expanded(pattern)
        if not found:
            self.absent.append(pattern)
        tops: dict[str, str] = {}  # of these names here, as they are called there
        added: set[str] = set()
        for path in found:
            if path in seen or any(above in added for above in _folders_above(path)):
                continue
            added.add(path.rstrip("/"))
            name = os.path.relpath(path, base)
            first, _, rest = name.partition("/")
            if first not in tops:
                tops[first], number = first, 1
                while tops[first] in taken:
                    number += 1
                    tops[first] = f"{first}-{number}"
            self.add_file("/".join(filter(None, (tops[first], rest))), path)
        taken.update(tops.values())
        seen.update(path.rstrip("/") for _, path, _ in self.members)

    def add_results(self, folders: Folders, patterns: Sequence[str]) -> None:
        """Adds what tasks of the run have made or changed in the workdir, where it matches one of
        the patterns: of a path in the workdir, or (without a slash) of any part of one."""
        wanted = [tree.parts_of(pattern) for pattern in patterns]
        wait_until_moved(folders)
        self.moved_to = folders.results
        # In the order in which files move, so that none is missed.
        names = {
            file.inside: file.path
            for file in tree.workdir_files(folders.stage, self.problems)
            if file.result
        }
        for file in tree.kept_files(folders.results, self.problems):
            names[file.inside] = file.path
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
            path, info = self._found(name, path)
        except OSError as error:
            self.problem(error_text(error))
            return
        if stat.S_ISLNK(info.st_mode):
            self.links.append(name)
            return
        if stat.S_ISDIR(info.st_mode):
            head.update(kind="folder", mode=stat.S_IMODE(info.st_mode))
        elif stat.S_ISREG(info.st_mode):
            seconds, nanoseconds = _time_of(info)
            head.update(kind="file", mode=stat.S_IMODE(info.st_mode))
            head.update(size=info.st_size, mtime=seconds, nanoseconds=nanoseconds)
            had, time_ns, part = self._have.get(name, (0, -1, False))
            if time_ns == max(0, info.st_mtime_ns):
                if had == info.st_size:
                    self.present += 1
                    return
                if part and had < info.st_size:
                    head.update(size=info.st_size - had, offset=had)
            if not os.access(path, os.R_OK, effective_ids=True):
                self.problem(f"{path}: {os.strerror(errno.EACCES)}")
                return
        else:
            return  # a socket, a pipe: nothing of it could be brought anywhere
        self._append(head, path, (info.st_dev, info.st_ino))

    def _found(self, name: str, path: str) -> tuple[str, os.stat_result]:
        """Where a file lies, from which an agent may have moved it since it was listed.

        Raises:
            OSError: it is in neither place.
        """
        try:
            return path, os.lstat(path)
        except FileNotFoundError:
            if not self.moved_to:
                raise
            path = os.path.join(self.moved_to, name)
            return path, os.lstat(path)

    def _append(self, head: dict[str, Any], path: str, inode: tuple[int, int] = (0, 0)) -> None:
        if len(self.members) == MOST_MEMBERS:
            raise ValueError(f"there are more than {MOST_MEMBERS} files and folders")
        self.members.append(Member(head, path, inode))
        self.size += LENGTH.size + len(_head(head))
        if head["kind"] == "file":
            chunks = (head["size"] + CHUNK - 1) // CHUNK
            self.size += head["size"] + LENGTH.size * chunks + len(WHOLE)

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
            "files": sum(head["kind"] == "file" for head, *_ in found.members),
            "links": found.links[:MOST_LISTED],
            "absent": found.absent[:MOST_LISTED],
            "present": found.present,
        }
    )
    blocks = _blocks(found)
    while pipe.read_exactly(1) == MORE:
        block = next(blocks, b"")
        pipe.write(LENGTH.pack(len(block)) + block)
    pipe.send({"problems": found.problems})


def _blocks(found: CollectedMembers) -> Iterator[bytes]:
    """The stream of members in blocks of `PIECE` bytes."""
    ready = bytearray()
    for data in _stream(found):
        ready += data
        while len(ready) >= PIECE:
            yield bytes(ready[:PIECE])
            del ready[:PIECE]
    yield bytes(ready)


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


def _folders_above(path: str) -> Iterator[str]:
    """The folders that a path is in, the nearest first."""
    above = os.path.dirname(path.rstrip("/"))
    while above and above != os.path.dirname(above):
        yield above
        above = os.path.dirname(above)


def _all_folders(folder: str) -> list[str]:
    found = [folder]  # grows meanwhile
    for one in found:
        paths = [os.path.join(one, name) for name in _names(one) if not name.startswith(".")]
        found += [path for path in paths if os.path.isdir(path) and not os.path.islink(path)]
    return found


def _stream(found: CollectedMembers) -> Iterator[bytes]:
    """The members with their contents. What cannot be read, or has become shorter, is named and
    broken off, so that everything else arrives."""
    for member in found.members:
        head, path, _ = member
        raw = _head(head)
        yield LENGTH.pack(len(raw)) + raw
        if head["kind"] != "file":
            continue
        end = WHOLE
        try:
            yield from _contents(found, member)
        except OSError as error:
            found.problem(error_text(OSError(error.errno, error.strerror, path)))
            end = BROKEN_OFF
        except EOFError as error:
            found.problem(f"{path}: {error}")
            end = BROKEN_OFF
        yield end
    yield LENGTH.pack(0)


def _contents(found: CollectedMembers, member: Member) -> Iterator[bytes]:
    """A file's bytes in chunks, each behind its length. Of one that grows it is the beginning.

    Raises:
        OSError: it cannot be read.
        EOFError: there are fewer, something else is in its place, or they are not of one moment.
    """
    head, path, inode = member
    # A pipe may stand there by now: to open one must not wait for its other end.
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        file = os.open(path, flags)
    except FileNotFoundError:
        if not found.moved_to:
            raise
        file = os.open(os.path.join(found.moved_to, head["name"]), flags)
    try:
        info = os.fstat(file)
        if not stat.S_ISREG(info.st_mode):
            raise EOFError("is no longer a file")
        # Some file systems have no numbers that last; none has another time for the same file.
        if (info.st_dev, info.st_ino) != inode and _time_of(info) != _announced_time(head):
            raise EOFError("was replaced by another file")
        os.lseek(file, head.get("offset", 0), os.SEEK_SET)
        left = head["size"]
        while left:
            wanted, parts = min(CHUNK, left), []
            while wanted:
                parts.append(os.read(file, wanted))
                if not parts[-1]:
                    raise EOFError("became shorter while it was read")
                wanted -= len(parts[-1])
            data = b"".join(parts)
            left -= len(data)
            yield LENGTH.pack(len(data)) + data
        now = os.fstat(file)
        if now.st_size == info.st_size and now.st_mtime_ns != info.st_mtime_ns:
            raise EOFError("was written to while it was read")
    finally:
        os.close(file)


def _time_of(info: os.stat_result) -> tuple[int, int]:
    """When a file was changed, in seconds and nanoseconds."""
    return divmod(max(0, info.st_mtime_ns), 10**9)


def _announced_time(head: dict[str, Any]) -> tuple[int, int]:
    return head["mtime"], head["nanoseconds"]


def _head(head: dict[str, Any]) -> bytes:
    return json.dumps(head, separators=(",", ":")).encode()
