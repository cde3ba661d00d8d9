"""Lock of a run's launcher process, and those who look whether it is held."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from launcher.store.launcher_lock import acquire, launcher_pid


def test_two_who_look_at_once_are_no_launcher(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each saw the lock of the other, and took the pid of a launcher that had ended for alive."""
    fd = acquire(tmp_path)
    assert fd is not None
    os.write(fd, b"4121      ")
    assert launcher_pid(tmp_path) == 4121
    os.close(fd)
    flock = fcntl.flock
    seen: list[int | None] = []

    def locked(file: int, how: int) -> None:
        flock(file, how)
        if not seen:
            seen.append(-1)
            seen.append(launcher_pid(tmp_path))

    monkeypatch.setattr(fcntl, "flock", locked)
    assert launcher_pid(tmp_path) is None
    assert seen == [-1, None]
