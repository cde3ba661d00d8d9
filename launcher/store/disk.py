"""Writing to the files of a run: here (`disk_writer.Files`), or by a process that may be left
behind when the disk does not answer."""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

from . import disk_writer
from .disk_writer import ANSWER, REQUEST, Files

_END_SECONDS = 1.0
_PIPE_BYTES = 1 << 20
"""Of the pipe to the process: with the usual 64 KiB a megabyte is sixteen changes of process."""


class OtherProcess:
    """Has files written by `disk_writer`, started with the first write. For any thread; the
    calling one waits, but not in the kernel's file system."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def write(self, path: Path, data: bytes | memoryview, offset: int = -1) -> int:
        """Writes bytes as `Files.write` does, by the helper process.

        Raises:
            OSError: the write failed there, or the process was killed meanwhile (EIO).
        """
        name = os.fsencode(path)
        with self._lock:
            process = self._process = self._process or _start()
            assert process.stdin is not None and process.stdout is not None
            try:
                process.stdin.write(REQUEST.pack(len(name), offset, len(data)) + name)
                process.stdin.write(data)
                process.stdin.flush()
                written, number = ANSWER.unpack(process.stdout.read(ANSWER.size))
            except (OSError, struct.error):  # somebody has killed it: the next write starts another
                self._forget(process)
                raise OSError(errno.EIO, "the process that writes has ended") from None
        if written < 0:
            raise OSError(number, os.strerror(number))
        return int(written)

    def close(self) -> None:
        """Closes all files; the process ends."""
        with self._lock:
            if self._process is not None:
                self._forget(self._process)

    def _forget(self, process: subprocess.Popen[bytes]) -> None:
        self._process = None
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with suppress(OSError):
                    stream.close()
        with suppress(subprocess.TimeoutExpired):
            process.wait(_END_SECONDS)


def _start() -> subprocess.Popen[bytes]:
    argv = [sys.executable, "-I", "-S", disk_writer.__file__]
    process = subprocess.Popen(
        argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # it may outlive us, and must not hold our pipes open
        start_new_session=True,  # Ctrl-C is not for it
        bufsize=1 << 18,
        cwd="/",
    )
    assert process.stdin is not None
    if sys.platform == "linux":
        with suppress(OSError):  # more than the user may have
            fcntl.fcntl(process.stdin.fileno(), fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    return process


Disk = Files | OtherProcess
