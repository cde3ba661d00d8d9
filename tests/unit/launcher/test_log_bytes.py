"""Bytes of logs, none lost and none twice: from task to disk, and to who follows them."""

from __future__ import annotations

import os
import pty
import resource
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from launcher.agent import task_logs
from launcher.agent.log_end import end_room
from launcher.agent.task_logs import Drain, Log
from launcher.cluster.read import loads
from launcher.history.following import LogLines, RunLogs, line_text
from launcher.ids import TaskId
from launcher.plan.planner import make_plan
from launcher.process.bulkhead import Bulkhead
from launcher.process.output import LogMonitor
from launcher.store.disk import Files, Job
from launcher.store.logs import LogStore
from tests.support.patience import PATIENCE, wait_until
from tests.support.recordings import NAMES, seen, written

# The data worker of a run: bytes of remote tasks on their way to disk.

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


# The drain: what tasks write stands in their logs, byte for byte.

PIECE = bytes(range(256)) * 1024


def drain(log: Log, pieces: list[bytes], ends: tuple[int, int]) -> int:
    """Writes pieces into a pipe or terminal that a drain empties into the log; returns how
    often the loop was called."""
    calls: list[float] = []
    reader = Drain(lambda: calls.append(1))
    reader.start()
    ours, theirs = ends
    log.open()
    reader.add(ours, log)

    def write() -> None:
        for piece in pieces:
            view = memoryview(piece)
            while view:
                view = view[os.write(theirs, view) :]
        os.close(theirs)

    writer = threading.Thread(target=write)
    writer.start()
    writer.join()
    wait_until(lambda: log.fd < 0, "the pipe has ended, and the log is closed")
    assert not reader.draining(log)
    return len(calls)


def test_all_bytes_stand_behind_what_was_there(tmp_path: Path) -> None:
    """Also of a second attempt, whose output follows the first's."""
    path = tmp_path / "worker-0.log"
    pieces = [PIECE] * 20 + [b"the end\n"]
    for attempt in (1, 2):
        log = Log(str(path), 1 << 40)
        assert drain(log, pieces, os.pipe()) >= 1
        assert path.read_bytes() == b"".join(pieces) * attempt
        assert (log.size, log.lost, log.cut) == (path.stat().st_size, 0, 0)


@pytest.mark.parametrize("limit", [0, 1000, task_logs._CHUNK, 3 * task_logs._CHUNK + 17])
def test_a_limit_is_kept_to_the_byte(tmp_path: Path, limit: int) -> None:
    """The beginning is there and, where there is room for it, the end; what is between them is
    counted to the byte, and the task writes on."""
    log = Log(str(tmp_path / "log"), limit)
    data = PIECE * 8
    drain(log, [data], os.pipe())
    found = Path(log.path).read_bytes()
    assert len(found) == log.size <= limit
    head, mark, tail = found.partition(
        b"[tfmux: %d bytes are not kept here: log_limit]\n" % log.cut
    )
    assert bool(mark) == (limit > 0)
    kept = len(data) - log.cut - len(tail)
    assert head in (data[:kept], data[:kept] + b"\n") and kept >= limit - end_room(limit)
    assert data.endswith(tail)


def test_what_finds_no_room_is_counted() -> None:
    log = Log("/dev/full", 1 << 40)
    drain(log, [PIECE], os.pipe())
    assert (log.size, log.lost) == (0, len(PIECE))


def test_a_terminal_is_drained_too(tmp_path: Path) -> None:
    """What it makes of line ends is in the log."""
    log = Log(str(tmp_path / "log"), 1 << 40)
    drain(log, [b"one\ntwo\n"], pty.openpty())
    assert Path(log.path).read_bytes() == b"one\r\ntwo\r\n"


# Lines of many logs for one reader: all come, whatever the limit of open files is.

TASKS = dict.fromkeys([TaskId("worker", number) for number in range(100)], "tf1")


@pytest.fixture
def few_files() -> Iterator[None]:
    """Far fewer further open files in this process than there are logs."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = max(map(int, os.listdir("/proc/self/fd"))) + len(TASKS) // 4
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def append(folder: Path, task: TaskId, data: bytes) -> None:
    """Adds bytes to a log."""
    with (folder / f"{task.stem}.log").open("ab") as file:
        file.write(data)


@pytest.mark.usefixtures("few_files")
def test_more_logs_than_a_process_may_open(tmp_path: Path) -> None:
    """Each gives each of its lines, once, in its order."""
    logs = RunLogs(tmp_path, TASKS, from_end=False)
    found: dict[TaskId, list[bytes]] = {task: [] for task in TASKS}
    for part in (b"one\ntw", b"o\nthree\n", b"end"):
        for task in TASKS:
            append(tmp_path, task, part)
        for task, line in logs.read():
            found[task].append(line)
    assert not logs.behind
    for task, line in logs.read(last=True):
        found[task].append(line)
    assert all(lines == [b"one", b"two", b"three", b"end"] for lines in found.values())


def test_a_log_that_cannot_be_opened_comes_later(tmp_path: Path) -> None:
    """When no file can be opened there are no lines, and none is lost."""
    logs = RunLogs(tmp_path, TASKS, from_end=False)
    append(tmp_path, FIRST, b"one\n")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, before[1]))
    try:
        assert list(logs.read(last=True)) == [] and not logs.behind
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert list(logs.read()) == [(FIRST, b"one")]


def test_a_reader_that_is_behind_says_so(tmp_path: Path) -> None:
    """A log of a megabyte is read in pieces; a line without an end comes with the last."""
    task, lines = FIRST, [b"x" * 99] * 10_000
    append(tmp_path, task, b"\n".join(lines))
    append(tmp_path, SECOND, b"no end")
    logs = RunLogs(tmp_path, TASKS, from_end=False)
    found: list[tuple[TaskId, bytes]] = []
    pieces, behind = 0, True
    while behind:
        found += logs.read(last=True)
        pieces, behind = pieces + 1, logs.behind
    assert pieces > 3
    assert [line for name, line in found if name == task] == lines
    assert (SECOND, b"no end") in found


def test_lines_that_are_there_are_skipped(tmp_path: Path) -> None:
    """From the end, and those of one task alone."""
    for task in TASKS:
        append(tmp_path, task, b"old\n")
    logs = RunLogs(tmp_path, TASKS, from_end=True)
    for task in TASKS:
        append(tmp_path, task, b"new\n")
    assert list(logs.read(SECOND)) == [(SECOND, b"new")]
    assert next(logs.read()) == (FIRST, b"new")


def test_a_line_without_an_end_is_not_read_again_and_again(tmp_path: Path) -> None:
    """Who follows it may sleep."""
    append(tmp_path, FIRST, b"password: ")
    logs = RunLogs(tmp_path, TASKS, from_end=False)
    assert list(logs.read()) == [] and not logs.behind


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("piece", [7, 400, 1 << 20])
def test_bars_come_when_they_are_at_rest(tmp_path: Path, name: str, piece: int) -> None:
    """Given a program that rewrites lines, whose output comes in pieces, when a run without a
    screen prints it, then each line comes as it is in the end, after few of its versions, and
    lines behind one another come in that order."""
    logs = RunLogs(tmp_path, {FIRST: "tf1"}, from_end=False)
    data, found = written(name), []
    for at in range(0, len(data), piece):
        append(tmp_path, FIRST, data[at : at + piece])
        found += [line_text(line).rstrip() for _, line in logs.read()]
    while more := [line_text(line).rstrip() for _, line in logs.read(last=True)]:
        found += more
    final = [line for line in seen(name) if line]
    assert set(final) <= set(found)
    assert [line for line in found if line in final][-1] == final[-1]
    assert len(found) <= 4 * len(seen(name)) + 4


def test_lines_above_a_bar_come_while_it_is_drawn(tmp_path: Path) -> None:
    """Given two bars with a line above them that is printed now and then, then that line comes
    once, before the next one is printed, and the bars come at the end."""
    logs = RunLogs(tmp_path, {FIRST: "tf1"}, from_end=False)
    found, bars = [], b"\x1b[2Kouter %d\n\x1b[2Kinner %d\x1b[A\r"
    for epoch in range(5):
        append(tmp_path, FIRST, b"\x1b[2Kepoch %d\n" % epoch)
        for step in range(4):
            append(tmp_path, FIRST, bars % (epoch, step))
            found += [line for _, line in logs.read()]
        assert found.count(b"epoch %d" % epoch) == 1
    while more := [line for _, line in logs.read(last=True)]:
        found += more
    assert [line for line in found if line.startswith(b"epoch")] == [
        b"epoch %d" % epoch for epoch in range(5)
    ]
    assert found[-2:] == [b"outer 4", b"inner 3"] and len(found) < 20


BARS = b"a line\nbar 1\nbar 2\n\x1b[2Abar 3\nbar 4\nthe end\n"


@pytest.mark.parametrize("cut", range(1, len(BARS)))
def test_bars_come_as_they_are_shown_wherever_a_read_ends(tmp_path: Path, cut: int) -> None:
    """Given a program that rewrites two lines, when what it writes comes in two pieces, cut at any
    byte, then each line comes once as a terminal shows it in the end; those of before may have come
    already."""
    log = tmp_path / "worker-0.log"
    log.write_bytes(BARS[:cut])
    reader = LogLines(log)
    found = reader.lines()
    with log.open("ab") as file:
        file.write(BARS[cut:])
    for _ in range(3):
        found += reader.lines(last=True)
    later = [line for line in found if line not in (b"bar 1", b"bar 2")]
    assert later == [b"a line", b"bar 3", b"bar 4", b"the end"]
