"""A home on a file system whose locks fail, or never answer: nobody is taken for dead."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from launcher.errors import LockError
from launcher.paths import runs_home
from launcher.store import launcher_lock
from launcher.store.launcher_lock import acquire, launcher_pid
from launcher.store.runs import RunFolder
from tests.support.budgets import soak
from tests.support.cluster_texts import KEPT
from tests.support.command import Up, run, write
from tests.support.paths import SUPPORT
from tests.support.patience import wait_until
from tests.testbed import proc

SOURCE = SUPPORT / "flock.c"
RUN = f"locks-{os.getpid()}"
"""A run of this test process."""
HANGS = 0
FAULTS = pytest.mark.parametrize(
    "number", [errno.ENOLCK, soak(errno.EIO), HANGS], ids=["ENOLCK", "EIO", "hangs"]
)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library with such a `flock`."""
    path = tmp_path_factory.mktemp("flock") / "flock.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", path, SOURCE], check=True)
    return path


@pytest.fixture
def living(tmp_path: Path) -> Iterator[Up]:
    """A run that goes on."""
    with Up("up", str(write(tmp_path, KEPT)), "--json") as up:
        up.state("worker:0", "ready")
        run_id = up.run_id
        yield up
    wait_until(lambda: not tasks_of(run_id), "its task has ended")


def without_locks(library: Path, number: int) -> list[str]:
    """What stands before a command that gets no lock."""
    return ["env", f"LD_PRELOAD={library}", f"FLOCK_ERROR={number}"]


def tasks_of(run_id: str) -> list[int]:
    return [one.pid for one in proc.scan(having=run_id) if "/worker:0/" in (one.tag or "")]


@FAULTS
def test_a_run_whose_lock_cannot_be_taken_is_not_launched(
    tmp_path: Path, library: Path, number: int
) -> None:
    """Given a file system whose locks fail or never answer, when `tfmux up` is called, then it
    exits with 2, names the lock's file and a remedy, and leaves no folder of a run."""
    prefix = without_locks(library, number)
    done = run("up", str(write(tmp_path, KEPT)), "--headless", prefix=prefix)
    assert done.returncode == 2, done.stderr
    assert "launcher.lock cannot be used" in done.stderr and "XDG_DATA_HOME" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(runs_home().iterdir())


@FAULTS
def test_a_kill_without_locks_reaches_the_launcher_that_listens(
    living: Up, library: Path, number: int
) -> None:
    """Given a living launcher, and locks that fail or never answer, when `tfmux kill` is called,
    then it has that launcher end the run, with nothing left on any host."""
    done = run("kill", living.run_id, prefix=without_locks(library, number))
    assert done.returncode == 0, done.stderr
    assert "no process is left" in done.stdout
    assert living.wait() == 130, living.transcript()
    assert not any("unsupervised" in str(event) for event in living.events)


@FAULTS
def test_nobody_takes_a_run_up_without_its_lock(living: Up, library: Path, number: int) -> None:
    """Given a run whose launcher has died, when `tfmux kill` and `ps` get no lock, then both say
    so, and the task lives on; when `kill` gets the lock, then it succeeds."""
    run_id, prefix = living.run_id, without_locks(library, number)
    living.kill_launcher()
    done = run("kill", run_id, prefix=prefix)
    assert done.returncode != 0 and "launcher.lock cannot be used" in done.stderr, done.stderr
    listed = run("ps", prefix=prefix)
    assert "launcher.lock cannot be used" in listed.stdout + listed.stderr
    assert tasks_of(run_id) and RunFolder.find(run_id).launcher_pid() is None
    for said in (done, listed):
        assert "Traceback" not in said.stderr
    assert run("kill", run_id).returncode == 0


def fails(file: int, how: int) -> None:
    raise OSError(errno.ENOLCK, "No locks available")


def test_a_look_at_a_lock_that_fails_finds_nobody_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a file system that gives no locks, when a launcher is looked for, then that is an error
    with the reason, and the run is not called abandoned."""
    fd = acquire(tmp_path, RUN)
    assert fd is not None
    (tmp_path / "launcher.lock").touch()
    monkeypatch.setattr(fcntl, "flock", fails)
    with pytest.raises(LockError, match="No locks available"):
        launcher_pid(tmp_path, RUN)
    with pytest.raises(LockError, match="No locks available"):
        acquire(tmp_path, RUN)
    assert not launcher_lock.is_abandoned(tmp_path, RUN)
    os.close(fd)


def test_a_lock_that_comes_too_late_is_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a lock service that hangs, when it gives a lock after nobody waits for it any more,
    then the lock is given back, and the next one who asks gets it."""
    read_end, write_end = os.pipe()
    flock = fcntl.flock

    def slow(file: int, how: int) -> None:
        os.read(read_end, 1)
        flock(file, how)

    monkeypatch.setattr(launcher_lock, "_ANSWER_SECONDS", 0.01)
    monkeypatch.setattr(fcntl, "flock", slow)
    for _ in range(2):
        with pytest.raises(LockError, match="does not answer"):
            acquire(tmp_path, RUN)
    monkeypatch.setattr(fcntl, "flock", flock)
    os.write(write_end, b"x")
    monkeypatch.setattr(launcher_lock, "_ANSWER_SECONDS", 5.0)
    taken: list[int] = []

    def free() -> bool:
        try:
            fd = acquire(tmp_path, RUN)
        except LockError:
            return False
        if fd is not None:
            taken.append(fd)
        return fd is not None

    wait_until(free, "the lock is free again")
    for fd in (*taken, read_end, write_end):
        os.close(fd)
