"""Lock of a run's launcher process, and those who look whether it is held."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from launcher.agent.folders import FolderError
from launcher.store import launcher_lock, living_runs
from launcher.store.launcher_lock import (
    FollowedError,
    acquire,
    held,
    holder_of,
    launcher_pid,
    take_over,
)
from launcher.store.living_runs import (
    Holder,
    LivingRun,
    entries,
    entry_path,
    read_entry,
    start_of,
    this_boot,
)
from tests.support.patience import PATIENCE, wait_until

RUN = f"lock-{os.getpid()}"
"""A run of this test process."""


def said_by(holder: Holder, folder: Path) -> bytes:
    """What a launcher that is this one writes into the index."""
    return LivingRun(RUN, folder, (), holder, home="/root", living=True).line()


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


# --- the index, to which others come, too ---------------------------------------------------------


def removed_entry() -> None:
    entry_path(RUN).unlink()


def emptied_entry() -> None:
    os.truncate(entry_path(RUN), 0)


def replaced_entry() -> None:
    entry_path(RUN).unlink()
    entry_path(RUN).write_text("another file")


@pytest.mark.parametrize("cleaner", [removed_entry, emptied_entry, replaced_entry])
def test_a_cleaner_of_tmp_makes_no_second_launcher(
    tmp_path: Path, cleaner: Callable[[], None]
) -> None:
    """Before the launcher has made its entry again the file in the run's folder holds."""
    with held(tmp_path, RUN, acquire(tmp_path, RUN, new=True)) as lock:
        assert lock.renew(["tf1"]) == ""
        cleaner()
        assert acquire(tmp_path, RUN) is None
        assert lock.renew(["tf1"]) == ""
        entry = read_entry(RUN)
        assert entry is not None and entry.living and entry.hosts == ("tf1",)
        assert acquire(tmp_path, RUN) is None
    assert read_entry(RUN) is None and not entry_path(RUN).exists()


def test_an_index_that_takes_no_entry_is_said_and_the_lock_holds(tmp_path: Path) -> None:
    """Something else is in the entry's place: the lock is in the run's folder then."""
    entry_path(RUN).unlink(missing_ok=True)  # of a holder that another test has killed
    entry_path(RUN).mkdir()
    try:
        with held(tmp_path, RUN, acquire(tmp_path, RUN, new=True)) as lock:
            assert lock.renew(["tf1"]) == "Is a directory"
            assert acquire(tmp_path, RUN) is None and launcher_pid(tmp_path, RUN) == os.getpid()
            assert RUN not in {entry.run_id for entry in entries()}
        fd = acquire(tmp_path, RUN)
        assert fd is not None
        os.close(fd)
    finally:
        entry_path(RUN).rmdir()


def test_an_index_that_cannot_be_used_is_said_and_the_lock_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every folder that may be this user's is a file, or another user's."""

    def refuse() -> str:
        raise FolderError("/tmp/tfmux-0 belongs to another user (uid 7)")

    monkeypatch.setattr(living_runs, "local_folder", refuse)
    with held(tmp_path, RUN, acquire(tmp_path, RUN, new=True)) as lock:
        assert "belongs to another user" in lock.renew(["tf1"])
        assert acquire(tmp_path, RUN) is None and launcher_pid(tmp_path, RUN) == os.getpid()
        assert entries() == []


@pytest.mark.parametrize("machine", ["the boot before", ""])
def test_an_entry_of_before_a_boot_is_no_launcher(tmp_path: Path, machine: str) -> None:
    """Although a process of now has the pid that it names: nobody has locked it."""
    with subprocess.Popen(["sleep", "1000"]) as process:
        try:
            holder = Holder(process.pid, machine or this_boot(), start_of(process.pid))
            entry_path(RUN).write_bytes(said_by(holder, tmp_path))
            entry = read_entry(RUN)
            assert entry is not None and not entry.living
            assert launcher_pid(tmp_path, RUN) is None
            fd = take_over(tmp_path, RUN)
            assert fd is not None and process.poll() is None
            os.close(fd)
        finally:
            process.kill()
            entry_path(RUN).unlink()
