"""Cache of the hashes of a directory's files, so that unchanged files are not read again.

It is in the user's cache directory, one file per directory. A file counts as unchanged while its
inode, size and times are the same; the hash of one that was younger than two seconds when it was
read is not kept, because it may change within the resolution of the clock.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from pathlib import Path

from ..paths import cache_home

_GRAIN_NS = 2_000_000_000
_Stat = list[int]


class Hashes:
    """SHA-256 hashes of a directory's files from earlier launches."""

    def __init__(self, root: Path) -> None:
        name = hashlib.sha256(os.fsencode(root.absolute())).hexdigest()[:32]
        self._file = cache_home() / "hashes" / f"{name}.json"
        self._began = time.time_ns()
        self._old: dict[str, tuple[_Stat, str]] = {}
        self._new: dict[str, tuple[_Stat, str]] = {}
        try:
            self._old = json.loads(self._file.read_text())
        except (OSError, ValueError):
            self._old = {}

    def known(self, relative: str, info: os.stat_result) -> str | None:
        """Returns the hash of a file that has not changed since it was stored."""
        row = self._old.get(relative)
        if row is None or row[0] != _stat_of(info):
            return None
        self._new[relative] = row
        return row[1]

    def learn(self, relative: str, info: os.stat_result, digest: str) -> None:
        """Stores the hash of a file that has just been read."""
        if max(info.st_mtime_ns, info.st_ctime_ns) < self._began - _GRAIN_NS:
            self._new[relative] = (_stat_of(info), digest)

    def save(self) -> None:
        """Writes the cache. If that fails, the next launch reads the files again."""
        if self._new == self._old:
            return
        new = self._file.with_suffix(f".{os.getpid()}")
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            new.write_text(json.dumps(self._new))
            new.rename(self._file)
        except OSError:
            new.unlink(missing_ok=True)


def _stat_of(info: os.stat_result) -> _Stat:
    return [info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns]
