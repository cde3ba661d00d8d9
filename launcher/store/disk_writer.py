"""A program of its own that writes files for a launcher: requests on stdin, answers on stdout.

Run as a script, without this package. A process cannot end while one of its threads sleeps in
the kernel on a disk that does not answer, whatever signal it gets; so it is not the launcher that
writes, but this. When the launcher has ended it ends, too, after what it has been asked to do.
"""

from __future__ import annotations

import os
import struct
import sys

REQUEST = struct.Struct("<HqI")
"""Bytes of the path, the offset to write at (-1: append), bytes of data; path and data follow."""
ANSWER = struct.Struct("<qi")
"""Bytes written, or -1 and the number of the error."""
MOST_OPEN = 200
"""Files that stay open: a process may have 1,024 by default, and a run has two for each task."""
Path = bytes | os.PathLike[str]


class Files:
    """Files that are being written; those written last stay open."""

    def __init__(self) -> None:
        self._open: dict[tuple[Path, bool], int] = {}

    def write(self, path: Path, data: bytes | memoryview, offset: int = -1) -> int:
        """Writes at an offset, or (-1) at the end; returns how many bytes were written.

        Raises:
            OSError: the disk is full or gone.
        """
        key = (path, offset < 0)
        file = self._open.pop(key, -1)
        if file < 0:
            if len(self._open) >= MOST_OPEN:
                os.close(self._open.pop(next(iter(self._open))))
            flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
            file = os.open(path, flags | (os.O_APPEND if offset < 0 else 0), 0o600)
        self._open[key] = file
        return os.write(file, data) if offset < 0 else os.pwrite(file, data, offset)

    def close(self) -> None:
        while self._open:
            os.close(self._open.popitem()[1])


def main() -> None:
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    files = Files()
    while len(head := source.read(REQUEST.size)) == REQUEST.size:
        path_length, offset, length = REQUEST.unpack(head)
        path = source.read(path_length)
        data = source.read(length)
        if len(data) < length:
            return
        try:
            answer = (files.write(path, data, offset), 0)
        except OSError as error:
            answer = (-1, error.errno or 5)
        sink.write(ANSWER.pack(*answer))
        sink.flush()


if __name__ == "__main__":
    main()
