"""Archive of results for the launcher: a stream of members that is made while it is read.

A member is a length (u32), a JSON head of that length, and for a file its contents: `{"name":
"out/model", "kind": "file", "size": 12, "mode": 420, "mtime": 1763657402}`, `{"name": "out",
"kind": "folder", "mode": 493}`, `{"name": "out/latest", "kind": "link", "target": "model"}`. A
folder comes before what is in it. A length of 0 ends the stream.

Nothing is written on this host, where the disk may be full. An offset of the stream always
means the same byte, so that a launcher that was cut off goes on where it stopped.
"""

from __future__ import annotations

import bisect
import json
import os
import stat
import struct
from typing import Any, Callable, Iterator, Sequence

from .messages import ArchiveAnswer

LENGTH = struct.Struct(">I")
_MOST_PROBLEMS = 100


class Archive:
    """The files below some paths, each under a name of its own. `total` is the stream's length,
    `size` how much of it may be sent by now (`allow`).

    What cannot be read, or changes while it is read, is named in `problems` and filled with
    zeros, so that everything else arrives.
    """

    def __init__(self, wanted: Sequence[tuple[str, str]]) -> None:
        self.wanted = wanted
        self.total = 0
        self.size = 0
        self.files = 0
        self.links = 0
        self.absent: list[str] = []
        self.problems: list[str] = []
        self._starts: list[int] = []
        self._parts: list[bytes | str] = []
        self._open = ("", -1)
        for name, path in wanted:
            if not os.path.lexists(path):
                self.absent.append(path)
            for inside, member in _members(name, path, self._not_listed):
                self._add(inside, member)
        self._append(LENGTH.pack(0), LENGTH.size)

    @property
    def announcement(self) -> ArchiveAnswer:
        """Answer to the launcher before it asks for the stream."""
        return ArchiveAnswer(
            self.total, self.files, self.links, tuple(self.absent[:_MOST_PROBLEMS])
        )

    def allow(self, upto: int) -> None:
        """The launcher has room for the stream up to this byte."""
        self.size = min(self.total, upto)

    def pread(self, limit: int, offset: int) -> bytes:
        """At most `limit` bytes from `offset` on."""
        at = bisect.bisect_right(self._starts, offset) - 1
        part = self._parts[at]
        within = offset - self._starts[at]
        end = self._starts[at + 1] if at + 1 < len(self._starts) else self.total
        limit = min(limit, end - offset)
        if isinstance(part, bytes):
            return part[within : within + limit]
        data = self._read(part, limit, within)
        return data + bytes(limit - len(data))

    def close(self) -> None:
        """Closes the file that was read last."""
        if self._open[1] >= 0:
            os.close(self._open[1])
        self._open = ("", -1)

    def _add(self, name: str, path: str) -> None:
        head: dict[str, Any] = {"name": name}
        try:
            info = os.lstat(path)
            if stat.S_ISDIR(info.st_mode):
                head.update(kind="folder", mode=stat.S_IMODE(info.st_mode))
            elif stat.S_ISLNK(info.st_mode):
                head.update(kind="link", target=os.readlink(path))
                self.links += 1
            elif stat.S_ISREG(info.st_mode):
                head.update(kind="file", mode=stat.S_IMODE(info.st_mode))
                head.update(size=info.st_size, mtime=max(0, int(info.st_mtime)))
                self.files += 1
            else:
                return  # a socket, a pipe: nothing of it could be brought anywhere
        except OSError as error:
            self._problem(f"{path}: {error.strerror}")
            return
        raw = json.dumps(head, separators=(",", ":")).encode()
        self._append(LENGTH.pack(len(raw)) + raw, LENGTH.size + len(raw))
        if head.get("size"):
            self._append(path, head["size"])

    def _append(self, part: bytes | str, length: int) -> None:
        self._starts.append(self.total)
        self._parts.append(part)
        self.total += length

    def _read(self, path: str, limit: int, offset: int) -> bytes:
        try:
            if self._open[0] != path:
                self.close()
                # A pipe may stand there by now: to open one must not wait for its other end.
                flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
                self._open = (path, os.open(path, flags))
            data = os.pread(self._open[1], limit, offset)
        except OSError as error:
            self._problem(f"{path}: {error.strerror}")
            return b""
        if not data:
            self._problem(f"{path}: became shorter while it was read")
        return data

    def _not_listed(self, error: OSError) -> None:
        self._problem(f"{error.filename}: {error.strerror}")

    def _problem(self, text: str) -> None:
        if text not in self.problems and len(self.problems) < _MOST_PROBLEMS:
            self.problems.append(text)


def _members(
    name: str, path: str, not_listed: Callable[[OSError], None]
) -> Iterator[tuple[str, str]]:
    if not os.path.lexists(path):
        return
    if not os.path.isdir(path):
        yield name, os.path.realpath(path) if os.path.islink(path) else path
        return
    todo = [(name, path)]  # a stack: `os.walk` recurses before Python 3.12
    while todo:
        inside, folder = todo.pop()
        yield inside, os.path.join(folder, "")
        try:
            with os.scandir(folder) as listing:
                found = sorted(listing, key=lambda item: item.name)
        except OSError as error:
            not_listed(error)
            continue
        for item in found:
            if item.is_dir(follow_symlinks=False):
                todo.append((f"{inside}/{item.name}", item.path))
            else:
                yield f"{inside}/{item.name}", item.path
