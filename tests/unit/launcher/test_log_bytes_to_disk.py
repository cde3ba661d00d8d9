"""The data worker of a run: bytes of remote tasks on their way to disk."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from launcher.cluster.read import loads
from launcher.ids import TaskId
from launcher.plan.planner import make_plan
from launcher.session.bulkhead import Bulkhead
from launcher.session.output import LogMonitor
from launcher.store.disk import Files, Job
from launcher.store.logs import LogStore
from tests.support.patience import PATIENCE, wait_until

CLUSTER = """
name = "two"
[jobs.worker]
tasks = ["localhost:2222", "localhost:2223"]
[run]
command = ["x"]
workdir = ""
"""
FIRST, SECOND = TaskId("worker", 0), TaskId("worker", 1)


class SlowDisk(Files):
    """A disk that takes its first write when it is told to, and counts those of logs."""

    def __init__(self) -> None:
        super().__init__()
        self.go = threading.Event()
        self.writes = 0

    def write(
        self, path: bytes | os.PathLike[str], data: bytes | memoryview, offset: int = -1
    ) -> int:
        assert isinstance(path, Path)
        self.go.wait(PATIENCE)
        self.writes += path.suffix == ".log"
        return super().write(path, data, offset)


def drained(monitor: LogMonitor) -> None:
    """Waits until all that was handed over is on disk."""
    wait_until(lambda: monitor.idle, "the monitor is idle")


def a_monitor(folder: Path, disk: Files, text: str = CLUSTER) -> LogMonitor:
    """A monitor of a cluster's tasks."""
    plan = make_plan(loads(text, "two.toml", folder), "two-1", {}, None)

    def failed(error: BaseException) -> None:
        raise error

    bulkhead = Bulkhead()
    bulkhead.close()  # nobody reads what the lines say
    return LogMonitor(plan, LogStore(folder, disk=disk), lambda: None, failed, bulkhead)


def test_bytes_that_wait_for_the_disk_are_stored_together(tmp_path: Path) -> None:
    """Forty pieces of two tasks, by turns, while the disk does not answer: a few writes then, each
    log byte for byte as it came, and all bytes are confirmed."""
    disk = SlowDisk()
    monitor = a_monitor(tmp_path, disk)
    pieces = [b"%07d\n" % number * 100 for number in range(20)]

    def stored(_: int) -> None:
        raise AssertionError("called by whoever takes the findings")

    for number, piece in enumerate(pieces):
        for task in (FIRST, SECOND):
            monitor.store(task, number * len(piece), piece, stored)
    assert monitor.unstored == 2 * sum(map(len, pieces))
    disk.go.set()
    drained(monitor)
    for name in ("worker-0.log", "worker-1.log"):
        assert (tmp_path / name).read_bytes() == b"".join(pieces)
    confirmed = sum(monitor.pop_found().stored.values())
    assert confirmed == 2 * sum(map(len, pieces))
    assert disk.writes <= 4
    monitor.close()


def test_no_bytes_pass_a_line_that_is_awaited(tmp_path: Path) -> None:
    """What came after an attempt began to await a line is looked at after that, although it waited
    for the disk together with what came before."""
    disk = SlowDisk()
    monitor = a_monitor(tmp_path, disk)
    monitor.store(SECOND, 0, b"begin\n", print)
    monitor.store(FIRST, 0, b"begin\n", print)
    monitor.await_line(FIRST, 2, "ready")
    monitor.store(FIRST, 6, b"ready\n", print)
    disk.go.set()
    drained(monitor)
    assert monitor.pop_found().ready == [(FIRST, 2)]
    monitor.close()


@pytest.mark.parametrize("behind", [100, 5 << 20])
def test_a_line_on_disk_counts_for_the_attempt_that_wrote_it(tmp_path: Path, behind: int) -> None:
    """The line may have come while no launcher lived, with any number of others behind it."""
    disk = SlowDisk()
    disk.go.set()
    monitor = a_monitor(tmp_path, disk)
    earlier, line = b"ready: the first attempt\n", b"ready: the second one\n"
    monitor.store(FIRST, 0, earlier + b"restarts\n", print)
    monitor.await_line(FIRST, 2, "ready", since=len(earlier))
    drained(monitor)
    assert monitor.pop_found().ready == []
    monitor.store(SECOND, 0, earlier + line + b"x\n" * (behind // 2), print)
    drained(monitor)
    monitor.await_line(SECOND, 2, "^ready: the second one$", since=len(earlier))
    drained(monitor)
    assert monitor.pop_found().ready == [(SECOND, 2)]
    monitor.close()


def test_the_lines_of_all_that_end_are_found_in_one_look(tmp_path: Path) -> None:
    """The disk hangs while a thousand tasks end: each job is looked at once, not once a task."""
    disk = SlowDisk()
    places = ", ".join(f'"localhost:{3000 + number}"' for number in range(1000))
    text = CLUSTER.replace('"localhost:2222", "localhost:2223"', places)
    monitor = a_monitor(tmp_path, disk, text)
    tasks = [TaskId("worker", number) for number in range(1000)]
    for task in tasks:
        monitor.store(task, 0, b"x" * 40_000 + f"\nlast of {task}\n".encode(), print)
    monitor.store(tasks[7], monitor.size(tasks[7]), b"more", lambda _: None)
    looks = 0
    jobs = monitor._worker.jobs

    def counted() -> list[Job]:
        nonlocal looks
        looks += 1
        return jobs()

    monitor._worker.jobs = counted  # type: ignore[method-assign]
    lines = monitor.waiting_lines(tasks)
    assert looks == 1
    assert all(f"last of {task}" in lines[task] for task in tasks) and lines[tasks[7]][-1] == "more"
    disk.go.set()
    monitor.close()


def test_work_of_the_thread_is_no_disk_that_does_not_answer(tmp_path: Path) -> None:
    """Only the time counts for which the disk itself is asked for something."""
    disk, go = SlowDisk(), threading.Event()
    monitor = a_monitor(tmp_path, disk)

    def work() -> None:
        go.wait(PATIENCE)

    monitor._worker.put(work)
    wait_until(lambda: monitor._worker.jobs(), "it works")
    assert monitor._worker.stalled == 0.0
    go.set()
    monitor.store(FIRST, 0, b"x\n", print)
    wait_until(lambda: monitor._worker.stalled > 0.0, "the disk is asked")
    disk.go.set()
    drained(monitor)
    assert monitor._worker.stalled == 0.0
    monitor.close()
