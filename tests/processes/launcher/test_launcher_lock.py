"""Lock of a run's launcher process, and those who look whether it is held."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from launcher.store import launcher_lock
from launcher.store.launcher_lock import (
    FollowedError,
    acquire,
    holder_of,
    launcher_pid,
    take_over,
)
from launcher.store.living_runs import Holder, LivingRun, entry_path
from tests.support.patience import PATIENCE, wait_until

RUN = f"lock-{os.getpid()}"
"""A run of this test process."""


def said_by(holder: Holder, folder: Path) -> bytes:
    """What a launcher that is this one writes into the index."""
    return LivingRun(RUN, folder, (), holder, is_default=False, living=True).line()


def test_two_who_look_at_once_are_no_launcher(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each saw the lock of the other, and took the pid of a launcher that had ended for alive."""
    fd = acquire(tmp_path, RUN)
    assert fd is not None
    os.write(fd, said_by(Holder(4121), tmp_path))
    assert launcher_pid(tmp_path, RUN) == 4121
    os.close(fd)
    flock = fcntl.flock
    seen: list[int | None] = []

    def locked(file: int, how: int) -> None:
        flock(file, how)
        if not seen:
            seen.append(-1)
            seen.append(launcher_pid(tmp_path, RUN))

    monkeypatch.setattr(fcntl, "flock", locked)
    assert launcher_pid(tmp_path, RUN) is None
    assert seen == [-1, None]


HOLDING = """
import sys, time
from pathlib import Path
from launcher.store.launcher_lock import acquire, held
folder, run_id = Path(sys.argv[1]), sys.argv[2]
with held(folder, run_id, acquire(folder, run_id)) as lock:
    lock.renew(["tf1"])
    time.sleep(600)
"""


@contextmanager
def holding(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that holds the lock, and has said who it is."""
    with subprocess.Popen([sys.executable, "-c", HOLDING, str(folder), RUN]) as process:
        try:
            wait_until(lambda: launcher_pid(folder, RUN) == process.pid, "it holds the lock")
            yield process
        finally:
            process.kill()


def test_whoever_takes_a_run_over_ends_the_process_that_stands_still(tmp_path: Path) -> None:
    with holding(tmp_path) as process:
        process.send_signal(signal.SIGSTOP)
        assert acquire(tmp_path, RUN) is None
        fd = take_over(tmp_path, RUN)
        assert fd is not None and process.wait(PATIENCE) == -signal.SIGKILL
        assert acquire(tmp_path, RUN) is None
        os.close(fd)


@pytest.mark.parametrize("named", [False, True])
def test_whoever_was_quicker_to_follow_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: bool
) -> None:
    """Another one that follows the run takes the lock in the moment in which its holder dies, and
    may not have written down yet who it is: it is neither killed nor is another one started."""
    kill = launcher_lock._kill
    taken: list[int] = []

    def killed(holder: Holder) -> None:
        kill(holder)
        process.wait(PATIENCE)
        fd = acquire(tmp_path, RUN)
        assert fd is not None
        taken.append(fd)
        if named:
            os.pwrite(fd, said_by(Holder(os.getppid(), holder.machine, "1"), tmp_path), 0)

    with holding(tmp_path) as process:
        monkeypatch.setattr(launcher_lock, "_kill", killed)
        with pytest.raises(FollowedError):
            take_over(tmp_path, RUN)
    assert len(taken) == 1
    os.close(taken[0])


@pytest.mark.parametrize("field", ["machine", "started"])
def test_a_process_that_is_not_the_holder_is_not_killed(tmp_path: Path, field: str) -> None:
    """A launcher on another machine, whose pid is another process's here; and a pid that was used
    again since the line was written."""
    with holding(tmp_path) as process:
        holder = holder_of(tmp_path, RUN)
        assert holder is not None and holder.is_here
        words = {"machine": holder.machine, "started": holder.started, field: "other"}
        other = Holder(process.pid, **words)
        entry_path(RUN).write_bytes(said_by(other, tmp_path))
        assert holder_of(tmp_path, RUN) == other
        assert take_over(tmp_path, RUN) is None
        assert process.poll() is None


@pytest.mark.parametrize("line", [b"", b"nobody", b"PID", b"\xff PID", b"PID a b c"])
def test_a_lock_that_names_nobody_kills_nobody(tmp_path: Path, line: bytes) -> None:
    fd = acquire(tmp_path, RUN)
    assert fd is not None
    with subprocess.Popen(["sleep", "1000"]) as process:
        try:
            named = line.replace(b"PID", b"%d" % process.pid)
            os.pwrite(fd, named, 0)
            (tmp_path / launcher_lock._NAME).write_bytes(named)
            assert take_over(tmp_path, RUN) is None
            assert process.poll() is None
        finally:
            process.kill()
            os.close(fd)
