"""Files of a run on this machine that are being written."""

from __future__ import annotations

import os
from contextlib import suppress

MOST_OPEN = 200
"""Files that stay open: a process may have 1,024 by default, and a run has two for each task."""
Path = bytes | os.PathLike[str]


class Files:
    """Files that one thread writes; those written last stay open."""

    def __init__(self) -> None:
        self._open: dict[tuple[Path, bool], int] = {}

    def write(self, path: Path, data: bytes | memoryview, offset: int = -1) -> int:
        """Writes at an offset, or (-1) at the end; returns how many bytes were written.

        Raises:
            OSError: the disk is full or gone.
        """
        file = self._descriptor(path, append=offset < 0)
        return os.write(file, data) if offset < 0 else os.pwrite(file, data, offset)

    def sync(self, path: Path) -> None:
        """Has what was appended to a file outlive a power failure, where its disk does that."""
        with suppress(OSError):
            os.fsync(self._descriptor(path, append=True))

    def close(self) -> None:
        while self._open:
            os.close(self._open.popitem()[1])

    def _descriptor(self, path: Path, *, append: bool) -> int:
        key = (path, append)
        file = self._open.pop(key, -1)
        if file < 0:
            if len(self._open) >= MOST_OPEN:
                os.close(self._open.pop(next(iter(self._open))))
            flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
            file = os.open(path, flags | (os.O_APPEND if append else 0), 0o600)
        self._open[key] = file
        return file
