"""Unpacking of results (`on_host.transfer` describes the stream) from hosts that are not trusted.

Files are made relative to descriptors of their folders, each opened without following links, so
that no name can lead outside the target. There are no links, devices or pipes in the stream.
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

from ..errors import TfmuxError
from ..on_host.pipe import LENGTH
from ..on_host.transfer import BROKEN_OFF, WHOLE
from ..printable import printable

_HEAD_BYTES = 64 * 1024
_NAME_BYTES = 255
_PATH_BYTES = 4095
_SHOWN = 200
_LATEST = 1 << 40
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_RESUMED = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class UnpackError(TfmuxError):
    """The stream is not what was announced, or contains something that is not allowed."""


class Unpacker:
    """Unpacks a stream of members into a folder, chunk by chunk."""

    def __init__(self, folder: Path, size: int, files: int, *, resumes: bool = False) -> None:
        """Opens `folder`, which exists and is empty, for a stream of `size` bytes with so many
        `files`. With `resumes` it may have what an earlier stream has brought: a file is made anew,
        or goes on where it ends. One that is not whole has its time already, so that it is known
        again, and is not readable for its owner (`is_whole`).

        Raises:
            OSError: it cannot be opened.
        """
        self._resumes = resumes
        self._size = size
        self._most_files = files
        self._received = self._files = 0
        self._head = bytearray()
        self._head_bytes = 0
        """Length of the next member's head; 0 while that length itself is incomplete."""
        self.ended = False
        """The stream has come to its end."""
        self.broken_off: list[str] = []
        """Files that the host could not read to their end, and that are not there."""
        self._left = 0
        """Bytes that are missing of the open file."""
        self._chunk = 0
        """Bytes that are missing of its present chunk."""
        self._time_ns = 0
        self.name = ""
        """The last member."""
        self._file = -1
        self._parent: tuple[str, ...] = ()
        self._root = os.open(folder, _FOLDER)
        self._parent_fd = os.dup(self._root)

    def feed(self, data: bytes) -> None:
        """Unpacks the next bytes.

        Raises:
            UnpackError: they are not what was announced.
            OSError: they cannot be written.
        """
        self._received += len(data)
        if self._received > self._size:
            raise UnpackError("received more data than was announced")
        view = memoryview(data)
        while view:
            if self.ended:
                raise UnpackError("received data after the end")
            if self._chunk:
                view = view[self._write(view[: self._chunk]) :]
                continue
            wanted = self._head_bytes or LENGTH.size
            count = wanted - len(self._head)
            self._head += view[:count]
            view = view[count:]
            if len(self._head) == wanted:
                raw = bytes(self._head)
                self._head.clear()
                if self._file >= 0:
                    self._begin_chunk(raw)
                else:
                    self._read_head(raw)

    def finish(self) -> None:
        """Checks that everything that was announced is there.

        Raises:
            UnpackError: something is missing.
        """
        whole = self._received == self._size or self.broken_off
        if not self.ended or not whole:
            raise UnpackError("received less data than was announced")
        if self._files != self._most_files:
            raise UnpackError(
                f"received {self._files} files, but {self._most_files} were announced"
            )

    def close(self) -> None:
        """Closes the open file and folders; may be called again."""
        for fd in (self._file, self._parent_fd, self._root):
            if fd >= 0:
                os.close(fd)
        self._file = self._parent_fd = self._root = -1

    # --- members --------------------------------------------------------------------------

    def _read_head(self, raw: bytes) -> None:
        if not self._head_bytes:
            (self._head_bytes,) = LENGTH.unpack(raw)
            self.ended = not self._head_bytes
            if self._head_bytes > _HEAD_BYTES:
                raise UnpackError(f"the head of a member has {self._head_bytes} bytes")
            return
        self._head_bytes = 0
        try:
            head = json.loads(raw)
        except (ValueError, RecursionError) as error:
            raise UnpackError("the head of a member is not JSON") from error
        if not isinstance(head, dict):
            raise UnpackError("the head of a member is not a JSON object")
        self._member(head)

    def _member(self, head: dict[str, Any]) -> None:
        parts = _parts(_text(head, "name"))
        kind = head.get("kind")
        self.name = "/".join(parts)
        if kind == "folder":
            mode = _number(head, "mode") & 0o755 | 0o700
            try:
                os.mkdir(parts[-1], mode, dir_fd=self._folder(parts))
            except FileExistsError:
                if not self._resumes:
                    raise
        elif kind == "file":
            self._files += 1
            if self._files > self._most_files:
                raise UnpackError("received more files than were announced")
            self._left = _number(head, "size")
            if self._left > self._size:
                raise UnpackError(
                    f"{display_name(self.name)} is larger than all that was announced"
                )
            self._time_ns = min(_number(head, "mtime"), _LATEST) * 10**9
            if "nanoseconds" in head:
                self._time_ns += min(_number(head, "nanoseconds"), 10**9 - 1)
            mode = _number(head, "mode") & 0o755 | 0o600
            flags = _RESUMED if self._resumes else _FILE
            mode &= ~stat.S_IRUSR
            self._file = os.open(parts[-1], flags, mode, dir_fd=self._folder(parts))
            if self._resumes:
                self._go_on(_number(head, "offset") if "offset" in head else 0)
        else:
            raise UnpackError(f"{display_name(self.name)} is not a file or a folder")

    def _go_on(self, offset: int) -> None:
        """Begins to write behind what is there of the open file, or at its beginning.

        Raises:
            UnpackError: there is more or less of it.
        """
        info = os.fstat(self._file)
        if not stat.S_ISREG(info.st_mode):
            raise UnpackError(f"{display_name(self.name)} is not a file here")
        if not offset:
            os.ftruncate(self._file, 0)
        elif offset != info.st_size:
            raise UnpackError(f"{display_name(self.name)} does not go on where it ends here")
        os.fchmod(self._file, stat.S_IMODE(info.st_mode) & ~stat.S_IRUSR)
        os.lseek(self._file, offset, os.SEEK_SET)

    def _begin_chunk(self, raw: bytes) -> None:
        """Reads what follows of the open file: so many bytes, none, or that there are no more of
        them and those that have come are no file."""
        if raw == BROKEN_OFF:
            os.unlink(self.name.rpartition("/")[2], dir_fd=self._parent_fd)
            os.close(self._file)
            self._file = -1
            self.broken_off.append(self.name)
        elif raw != WHOLE:
            (self._chunk,) = LENGTH.unpack(raw)
            if self._chunk > self._left:
                raise UnpackError(f"{display_name(self.name)} has more data than was announced")
        elif self._left:
            raise UnpackError(f"{display_name(self.name)} has less data than was announced")
        else:
            self._close_file()

    def _folder(self, parts: tuple[str, ...]) -> int:
        """Returns a descriptor of a member's folder."""
        if parts[:-1] != self._parent:
            fd = self._open(parts[:-1])
            os.close(self._parent_fd)
            self._parent, self._parent_fd = parts[:-1], fd
        return self._parent_fd

    def _open(self, parts: tuple[str, ...]) -> int:
        """Opens a folder, component by component, without following links.

        Raises:
            OSError: it does not exist, or is a link.
        """
        fd = os.dup(self._root)
        for part in parts:
            try:
                below = os.open(part, _FOLDER, dir_fd=fd)
            finally:
                os.close(fd)
            fd = below
        return fd

    def _write(self, data: memoryview) -> int:
        count = os.write(self._file, data)
        self._left -= count
        self._chunk -= count
        if self._resumes:
            os.utime(self._file, ns=(self._time_ns, self._time_ns))
        return count

    def _close_file(self) -> None:
        fd, self._file = self._file, -1
        try:
            os.utime(fd, ns=(self._time_ns, self._time_ns))
            os.fchmod(fd, stat.S_IMODE(os.fstat(fd).st_mode) | stat.S_IRUSR)
        finally:
            os.close(fd)  # a network file system reports a failed write here


def is_whole(info: os.stat_result) -> bool:
    """Returns whether all of a file has come."""
    return bool(info.st_mode & stat.S_IRUSR)


def display_name(text: str) -> str:
    """Makes a name from a host printable and short."""
    return printable(text, _SHOWN)


def _text(head: dict[str, Any], key: str) -> str:
    value = head.get(key)
    if not isinstance(value, str):
        raise UnpackError(f"a member has no {key}")
    try:
        os.fsencode(value)
    except UnicodeEncodeError as error:
        raise UnpackError(f"a member has an invalid {key}: {display_name(value)}") from error
    return value


def _number(head: dict[str, Any], key: str) -> int:
    value = head.get(key)
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise UnpackError(f"a member has an invalid {key}")
    return value


def _parts(name: str) -> tuple[str, ...]:
    """Splits a member's name into its components.

    Raises:
        UnpackError: it is absolute, leads upwards, or is too long.
    """
    parts = tuple(name.split("/"))
    if len(os.fsencode(name)) > _PATH_BYTES:
        raise UnpackError(f"the name {display_name(name)} is too long")
    for part in parts:
        if part in ("", ".", "..") or "\0" in part or len(os.fsencode(part)) > _NAME_BYTES:
            raise UnpackError(f"the name {display_name(name)!r} is not allowed")
    return parts
