"""What the files of a directory hashed to, so that an unchanged one is not read again.

Kept in the user's cache, one file a directory. A file is taken for unchanged while its inode,
size and times are the same; one that was younger than two seconds when it was read may still
change within the clock's grain and is not believed.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from pathlib import Path

from ..paths import cache_home

_GRAIN_NS = 2_000_000_000
_Figures = list[int]


class Hashes:
    """The SHA-256 of a directory's files as an earlier launch found them."""

    def __init__(self, root: Path) -> None:
        name = hashlib.sha256(os.fsencode(root.absolute())).hexdigest()[:32]
        self._file = cache_home() / "hashes" / f"{name}.json"
        self._began = time.time_ns()
        self._old: dict[str, tuple[_Figures, str]] = {}
        self._new: dict[str, tuple[_Figures, str]] = {}
        try:
            self._old = json.loads(self._file.read_text())
        except (OSError, ValueError):
            self._old = {}

    def known(self, relative: str, info: os.stat_result) -> str | None:
        """The hash of a file that has not changed since it was learnt."""
        row = self._old.get(relative)
        if row is None or row[0] != _figures(info):
            return None
        self._new[relative] = row
        return row[1]

    def learn(self, relative: str, info: os.stat_result, digest: str) -> None:
        """Notes the hash of a file that has just been read."""
        if max(info.st_mtime_ns, info.st_ctime_ns) < self._began - _GRAIN_NS:
            self._new[relative] = (_figures(info), digest)

    def save(self) -> None:
        """Writes what is known now. Where that is impossible the next launch reads again."""
        if self._new == self._old:
            return
        new = self._file.with_suffix(f".{os.getpid()}")
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            new.write_text(json.dumps(self._new))
            new.rename(self._file)
        except OSError:
            new.unlink(missing_ok=True)


def _figures(info: os.stat_result) -> _Figures:
    return [info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns]
