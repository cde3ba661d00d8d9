"""Metrics from log lines: the known forms, a form of one's own, cut lines, rates, thinning."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from launcher.ids import TaskId
from launcher.run.snapshot import Metric
from launcher.store import metrics
from launcher.store.disk import Files
from launcher.store.disk import Path as Named
from launcher.store.metrics import MAX_POINTS, MOST_POINTS, MetricsFile, latest_metrics
from launcher.store.run_writer import RunWriter
from launcher.store.runs import RunFolder
from launcher.store.stream import LineReader, encode, parse
from launcher.store.thinning import thinned
from tests.support.patience import wait_until


def test_points_of_many_tasks_are_bounded_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few tasks keep long curves; when many have metrics, all curves get shorter."""
    most = MOST_POINTS // 16
    monkeypatch.setattr("launcher.store.metrics.MOST_POINTS", most)
    metrics = MetricsFile(tmp_path / "metrics.jsonl")
    tasks = [TaskId("worker", number) for number in range(125)]
    for task in tasks:
        metrics.series(task)  # a screen asks for those that have none, too
    for number in range(MAX_POINTS):
        metrics.add(float(number), tasks[0], {"loss": 1.0}, None)
    assert len(metrics.series(tasks[0])) == MAX_POINTS
    for task in tasks:
        for number in range(600):
            metrics.add(float(number), task, {"loss": 1.0}, None)
    lengths = [len(metrics.series(task)) for task in tasks]
    assert sum(lengths) <= most and min(lengths) >= most // len(tasks) // 4


def test_what_tasks_named_last_is_read_from_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A day's metrics take minutes to read, for which no kill waits."""
    monkeypatch.setattr(metrics, "_END_BYTES", 1000)
    path = tmp_path / "metrics.jsonl"
    row = encode(Metric(TaskId("worker", 0), "h", {"step": 0.0}, time=1.0))
    rows = [row.replace(b'"step": 0.0', b'"step": %d.0' % n) for n in range(50_000)]
    rows.append(encode(Metric(TaskId("ps", 0), "h", {"a": 1.0}, time=7.0)))
    path.write_bytes(b"".join(rows))
    read: list[bytes] = []

    def parsed(line: bytes) -> Any:
        read.append(line)
        return parse(line)

    monkeypatch.setattr("launcher.store.stream.parse", parsed)
    latest = latest_metrics(path)
    assert latest[TaskId("worker", 0)].values == {"step": 49_999.0}
    assert latest[TaskId("ps", 0)].time == 7
    assert 5 < len(read) < 30 and all(line.startswith(b"{") for line in read)
    assert latest_metrics(tmp_path / "none") == {}


# Metrics of long runs: their file stays small, and whoever reads or follows it gets on.

LARGEST = 1 << 17
TASKS = [TaskId("worker", 0), TaskId("worker", 1)]


class Written:
    """Metric lines of two tasks, a second apart, in a run's file, as a launcher writes them."""

    def __init__(self, folder: Path, disk: Files | None = None) -> None:
        self.folder = RunFolder(folder)
        self.errors: list[BaseException] = []
        self._writer = RunWriter(self.folder, self.errors.append, disk, LARGEST)
        self._step = 0

    def write(self, seconds: int) -> None:
        """Writes so many lines of each task, and waits until they are in the file."""
        for step in range(self._step + 1, self._step + seconds + 1):
            for task in TASKS:
                values = {"step": float(step), "loss": 1.0 / step}
                self._writer.put(Metric(task, "h", values, 1.0, time=1e9 + step))
            if not step % 50:
                self.wait()
        self._step += seconds
        self.wait()

    def wait(self) -> None:
        """Waits until all is written."""
        wait_until(lambda: self._writer.idle, "all is written")
        assert not self.errors

    def steps(self, task: TaskId = TASKS[0]) -> list[int]:
        """Steps of a task that are in the file."""
        return [step for which, step in read(LineReader(self.folder.metrics)) if which == task]


def read(reader: LineReader) -> Iterator[tuple[TaskId, int]]:
    """Task and step of each line that comes."""
    for record in reader.records():
        assert isinstance(record, Metric)
        yield record.id, int(record.values["step"])
    assert not reader.damage


def gaps(steps: Sequence[int]) -> list[int]:
    """Distances between the lines that are left."""
    return [later - earlier for earlier, later in pairwise(steps)]


def test_a_file_stays_small_and_its_curve_whole(tmp_path: Path) -> None:
    """After ten times as many lines as there is room for: the newest are all there, older ones are
    ever farther apart, and the first one stays."""
    written = Written(tmp_path)
    largest = 0
    for _ in range(40):
        written.write(100)
        largest = max(largest, written.folder.metrics.stat().st_size)
    assert LARGEST / 2 < largest <= LARGEST
    for task in TASKS:
        steps = written.steps(task)
        assert steps[0] == 1 and steps[-1] == 4000
        apart = gaps(steps)
        assert all(gap == 1 for gap in apart[-50:])
        assert 10 < max(apart) < 1000
        assert sum(apart[: len(apart) // 3]) > 10 * sum(apart[-len(apart) // 3 :])
    metrics = MetricsFile(written.folder.metrics)
    assert metrics.read() and len(metrics.series(TASKS[0])) == len(written.steps())
    assert latest_metrics(written.folder.metrics)[TASKS[1]].values["step"] == 4000


def test_whoever_follows_gets_each_line_once(tmp_path: Path) -> None:
    """From the beginning, from somewhere on, and one who sleeps meanwhile, in order."""
    written = Written(tmp_path)
    follower, metrics = LineReader(written.folder.metrics), MetricsFile(written.folder.metrics)
    seen: list[tuple[TaskId, int]] = []
    for _ in range(20):
        written.write(60)
        seen += read(follower)
        metrics.read()
    assert seen == [(task, step) for step in range(1, 1201) for task in TASKS]
    assert len(metrics.series(TASKS[0])) == 1200
    late = LineReader.from_end(written.folder.metrics)
    written.write(10)
    assert [*read(late)] == [(task, step) for step in range(1201, 1211) for task in TASKS]
    written.write(3000)  # the place where it was has gone
    for reader in (late, follower):
        found = [step for task, step in read(reader) if task == TASKS[0]]
        assert found[0] > 1200 and found[-1] == 4210 and found == sorted({*found})
    written.write(1)
    assert [*read(late)] == [(task, 4211) for task in TASKS]


class Crowded(Files):
    """A disk that has no room for a second file, for a while."""

    full = True

    def replace(self, path: Named, data: bytes) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, "full")
        super().replace(path, data)


def test_without_room_for_two_files_lines_are_written_all_the_same(tmp_path: Path) -> None:
    """And the file is thinned out when there is."""
    disk = Crowded()
    written = Written(tmp_path, disk)
    written.write(1000)
    assert written.steps() == [*range(1, 1001)]
    disk.full = False
    written.write(4000)
    assert written.folder.metrics.stat().st_size <= LARGEST and written.steps()[-1] == 5000


def test_a_launcher_that_dies_meanwhile_leaves_a_whole_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At whatever moment; the next one goes on."""
    for moment in ("launcher.store.disk.os.fsync", "launcher.store.disk.os.replace"):
        folder = tmp_path / moment
        folder.mkdir()
        with monkeypatch.context() as patch:
            patch.setattr(moment, killed)
            written = Written(folder)
            with pytest.raises(AssertionError):
                written.write(1000)
            assert isinstance(written.errors[0], SystemExit)
        steps = written.steps()
        assert steps == [*range(1, steps[-1] + 1)]
        with written.folder.metrics.open("ab") as file:
            file.write(b'{"time": 1000')
        following = Written(folder)
        following.write(3000)
        assert following.folder.metrics.stat().st_size <= LARGEST
        assert following.steps()[0] == 1 and following.steps()[-1] == 3000


def killed(*_: object) -> None:
    """Ends the thread here."""
    raise SystemExit


def lines(task: str, name: str, times: Sequence[float]) -> list[bytes]:
    """Metric lines as the file has them."""
    form = '{{"time": {}, "event": "metric", "task": "{}", "host": "h", "values": {{"{}": 1.0}}}}\n'
    return [form.format(time, task, name).encode() for time in times]


def test_rare_figures_stay(tmp_path: Path) -> None:
    """A task's evaluation every hour is not lost among its steps, and neither is the last line of
    a task that has ended long ago."""
    evaluations = lines("worker:0", "accuracy", [1e9 + 2000 * n for n in range(20)])
    ended = lines("ps:0", "step", [1e9])
    steps = lines("worker:0", "loss", [1e9 + n for n in range(40_000)])
    rows = ended + [
        line
        for n, step in enumerate(steps)
        for line in ([evaluations[n // 2000], step] if not n % 2000 else [step])
    ]
    data = thinned(b"".join(rows), LARGEST)
    assert len(data) <= LARGEST // 2 and ended[0] in data
    assert all(line in data for line in evaluations)
    again = thinned(data, LARGEST)
    assert len(again) > 0.9 * len(data)


@pytest.mark.parametrize(
    "times",
    [
        [1e9 + n for n in range(9000)] + [1e9 - 1e6 + n for n in range(9000)],
        [1e9] * 18_000,
        [1e9 + n * 1e5 for n in range(18_000)],
    ],
    ids=["set back", "stands still", "leaps"],
)
def test_no_clock_makes_it_large(times: list[float]) -> None:
    rows = lines("worker:0", "loss", times)
    data = thinned(b"".join([*rows, b"\xff damaged\n", b"[" * 9000 + b"\n", *rows[:9]]), LARGEST)
    assert len(data) <= LARGEST // 2 and data.endswith(rows[8])


def test_thousands_of_tasks_fit(tmp_path: Path) -> None:
    """Each has a line of the newest; of the oldest ones none may be left."""
    rows = [lines(f"worker:{n}", "loss", [1e9])[0] for n in range(8000)]
    data = thinned(b"".join(rows), LARGEST)
    assert len(data) <= LARGEST // 2 and data.endswith(rows[-1])
