"""Lines of many logs for one reader: all come, whatever the limit of open files is."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from launcher.ids import TaskId
from launcher.session.following import LogLines, RunLogs, line_text
from tests.support.recordings import NAMES, seen, written

TASKS = dict.fromkeys([TaskId("worker", number) for number in range(100)], "tf1")
FIRST, SECOND = list(TASKS)[:2]


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
