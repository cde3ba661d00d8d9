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


def main() -> None:
    """Serves until stdin ends."""
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    files: dict[tuple[bytes, bool], int] = {}
    while len(head := source.read(REQUEST.size)) == REQUEST.size:
        path_length, offset, length = REQUEST.unpack(head)
        path = source.read(path_length)
        data = source.read(length)
        if len(data) < length:
            return
        key = (path, offset < 0)
        try:
            if key not in files:
                files[key] = _open(path, append=offset < 0)
            file = files[key]
            written = os.write(file, data) if offset < 0 else os.pwrite(file, data, offset)
            answer = (written, 0)
        except OSError as error:
            answer = (-1, error.errno or 5)
        sink.write(ANSWER.pack(*answer))
        sink.flush()


def _open(path: bytes, *, append: bool) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    return os.open(path, flags | (os.O_APPEND if append else 0), 0o600)


if __name__ == "__main__":
    main()
