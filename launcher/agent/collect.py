"""Results on their way to the launcher: a tar archive that is made while it is read.

Nothing is written on this host, where the disk may be full. An offset of the archive always
means the same byte, so that a launcher that was cut off goes on where it stopped.
"""

from __future__ import annotations

import bisect
import os
import stat
import tarfile
from typing import Iterator

_BLOCK = 512


class Archive:
    """The files below some paths, each under a name of its own. `size` is the archive's.

    What cannot be read, or changes while it is read, is named in `problems` and filled with
    zeros, so that everything else arrives.
    """

    def __init__(self, wanted: list[tuple[str, str]]) -> None:
        self.wanted = wanted
        self.size = 0
        self.files = 0
        self.absent: list[str] = []
        self.problems: list[str] = []
        self._starts: list[int] = []
        self._parts: list[bytes | str] = []
        self._open = ("", -1)
        for name, path in wanted:
            if not os.path.lexists(path):
                self.absent.append(path)
            for inside, member in _members(name, path):
                self._add(inside, member)
        self._append(bytes(2 * _BLOCK), 2 * _BLOCK)

    def pread(self, limit: int, offset: int) -> bytes:
        """At most `limit` bytes from `offset` on."""
        at = bisect.bisect_right(self._starts, offset) - 1
        part = self._parts[at]
        within = offset - self._starts[at]
        end = self._starts[at + 1] if at + 1 < len(self._starts) else self.size
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
        try:
            info = os.lstat(path)
            member = tarfile.TarInfo(name)
            member.mtime = int(info.st_mtime)
            member.mode = stat.S_IMODE(info.st_mode)
            if stat.S_ISDIR(info.st_mode):
                member.type = tarfile.DIRTYPE
            elif stat.S_ISLNK(info.st_mode):
                member.type = tarfile.SYMTYPE
                member.linkname = os.readlink(path)
            elif stat.S_ISREG(info.st_mode):
                member.size = info.st_size
            else:
                return  # a socket, a pipe: nothing of it could be brought anywhere
        except OSError as error:
            self.problems.append(f"{path}: {error.strerror}")
            return
        head = member.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
        self._append(head, len(head))
        self.files += not member.isdir()
        if member.size:
            self._append(path, member.size)
            rest = -member.size % _BLOCK
            if rest:
                self._append(bytes(rest), rest)

    def _append(self, part: bytes | str, length: int) -> None:
        self._starts.append(self.size)
        self._parts.append(part)
        self.size += length

    def _read(self, path: str, limit: int, offset: int) -> bytes:
        try:
            if self._open[0] != path:
                self.close()
                self._open = (path, os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW))
            data = os.pread(self._open[1], limit, offset)
        except OSError as error:
            self._problem(f"{path}: {error.strerror}")
            return b""
        if not data:
            self._problem(f"{path}: became shorter while it was read")
        return data

    def _problem(self, text: str) -> None:
        if text not in self.problems:
            self.problems.append(text)


def _members(name: str, path: str) -> Iterator[tuple[str, str]]:
    if not os.path.lexists(path):
        return
    if not os.path.isdir(path):
        yield name, os.path.realpath(path) if os.path.islink(path) else path
        return
    for base, folders, names in os.walk(path):
        inside = name + base[len(path) :]
        yield inside, os.path.join(base, "")
        links = [folder for folder in folders if os.path.islink(os.path.join(base, folder))]
        for member in sorted([*names, *links]):
            yield f"{inside}/{member}", os.path.join(base, member)
