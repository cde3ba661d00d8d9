"""Logs of tasks: bytes on disk first, counted, marked, taken up again; stacks of tasks."""

from __future__ import annotations

import asyncio
import os
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from launcher.hosts.frames import TaskFacts
from launcher.ids import TaskId
from launcher.process.output import Outputs
from launcher.process.stack_collector import bounded
from launcher.run import events as ev
from launcher.run.machine import RunStateMachine
from launcher.run.stack_groups import (
    ProcessStack,
    StackFrame,
    Stacks,
    TaskStacks,
    ThreadStack,
    record,
    schema,
    stacks_type,
)
from launcher.store.disk import Files
from launcher.store.logs import MARK_BYTES, MARK_SECONDS, LogFile, LogStore
from tests.support.budgets import examples
from tests.support.crash import failed
from tests.support.fake_core import FakeCore
from tests.support.patience import PATIENCE, until

# The log store: bytes on disk first, counted, marked, and taken up again.


def body(lines: int, seed: int = 1) -> bytes:
    """Lines of many lengths, some empty, some longer than a mark's distance."""
    dice = random.Random(seed)
    lengths = [dice.choice((0, 10, 80, 80, 300)) for _ in range(lines)]
    lengths[lines // 2] = 3 * MARK_BYTES
    return b"".join(b"x" * length + b"\n" for length in lengths)


def check_marks(log: LogFile, data: bytes) -> None:
    """Every mark tells the truth about the bytes before it."""
    for offset in range(0, len(data), 10_007):
        at, lines = log.mark_before_offset(offset)
        assert at <= offset
        assert data[:at].count(b"\n") == lines
        assert offset - at < 4 * MARK_BYTES


def count_all(log: LogFile) -> None:
    """Counts the bytes that are left to count."""
    while log.uncounted:
        log.count(5.0)


def test_appended_bytes_are_the_file_and_are_counted(tmp_path: Path) -> None:
    """Chunks of any size add up to the same file, size, newlines and truthful marks."""
    data = body(5000)
    log = LogFile(tmp_path / "worker-0.log")
    at, dice = 0, random.Random(2)
    while at < len(data):
        size = dice.choice((1, 100, 65536, 300_000))
        log.append(at, data[at : at + size], 100.0 + at)
        at = min(len(data), at + size)
    assert (tmp_path / "worker-0.log").read_bytes() == data
    assert (log.size, log.newlines) == (len(data), data.count(b"\n"))
    check_marks(log, data)


def test_bytes_sent_twice_are_stored_once_and_a_gap_is_an_error(tmp_path: Path) -> None:
    """After a cut the host may send again what is here; what is missing must not be skipped."""
    log = LogFile(tmp_path / "worker-0.log")
    log.append(0, b"one\ntwo\n", 1.0)
    log.append(4, b"two\nthree\n", 2.0)
    assert log.path.read_bytes() == b"one\ntwo\nthree\n"
    assert log.newlines == 3
    with pytest.raises(ValueError, match="missing"):
        log.append(100, b"x", 3.0)


def test_a_log_of_this_machine_is_counted_where_it_lies(tmp_path: Path) -> None:
    """The task's agent writes the file; the store follows it, as far as the file goes."""
    log = LogFile(tmp_path / "ps-0.log")
    data = body(20_000)
    for end in (1000, len(data) // 2, len(data)):
        with log.path.open("ab") as file:
            file.write(data[log.size : end])
        log.grown(end)
        assert log.size == end
        count_all(log)
    assert log.newlines == data.count(b"\n")
    check_marks(log, data)
    log.grown(len(data) + 1)
    assert (log.size, log.uncounted) == (len(data), 0)


def test_a_later_launcher_takes_the_log_up(tmp_path: Path) -> None:
    """Size, newlines, marks and times come back from disk, also when the index was cut."""
    data = body(3000)
    first = LogFile(tmp_path / "worker-0.log")
    first.append(0, data[:100_000], 50.0)
    first.append(100_000, data[100_000:], 60.0)
    first.close()
    again = LogFile(tmp_path / "worker-0.log")
    assert (again.size, again.newlines) == (len(data), data.count(b"\n"))
    assert again.time_at(10) == 50.0
    check_marks(again, data)
    index = tmp_path / "worker-0.idx"
    index.write_bytes(index.read_bytes()[:-7])
    cut = LogFile(tmp_path / "worker-0.log")
    assert (cut.size, cut.newlines) == (len(data), data.count(b"\n"))
    check_marks(cut, data)


def test_looking_only_writes_nothing(tmp_path: Path) -> None:
    """A screen that looks at somebody else's run leaves its index alone."""
    path = tmp_path / "worker-0.log"
    path.write_bytes(body(2000))
    log = LogStore(tmp_path, read_only=True).open(TaskId("worker", 0))
    assert log.newlines == 2000
    assert not (tmp_path / "worker-0.idx").exists()


def test_whoever_looks_leaves_the_counting_to_the_writer(tmp_path: Path) -> None:
    """What stands far behind new marks is about to be counted by the writer; a log whose marks do
    not come any more, because its launcher has died, is counted all the same."""
    data = body(20_000)
    path = tmp_path / "worker-0.log"
    writer, reader = LogFile(path), LogFile(path, read_only=True)
    path.write_bytes(data)
    writer.grown(len(data) // 2)
    count_all(writer)
    reader.refresh()
    assert len(data) // 2 - MARK_BYTES <= reader.size <= len(data) // 2
    reader.refresh()
    assert reader.size <= len(data) // 2
    deadline = time.monotonic() + PATIENCE
    while reader.size < len(data) and time.monotonic() < deadline:
        reader.refresh()
    assert (reader.size, reader.newlines) == (len(data), data.count(b"\n"))
    check_marks(reader, data)


def test_reading_keeps_nothing_open_and_a_removed_log_reads_as_empty(tmp_path: Path) -> None:
    """A hundred logs that were read cost no descriptor; one that was removed under a screen that
    shows it costs no exception."""
    store = LogStore(tmp_path, read_only=True)
    for index in range(100):
        (tmp_path / f"worker-{index}.log").write_bytes(b"a line\n")
        assert store.open(TaskId("worker", index)).read(0, 100) == b"a line\n"
    opened = [os.path.realpath(entry) for entry in Path("/proc/self/fd").iterdir()]
    assert opened and not [path for path in opened if Path(path).is_relative_to(tmp_path)]
    (tmp_path / "worker-7.log").unlink()
    assert store.open(TaskId("worker", 7)).read(0, 100) == b""


def test_bytes_of_an_earlier_launcher_are_counted_behind_those_that_come(tmp_path: Path) -> None:
    """A writer has the size of its log at once; new bytes are stored before the old ones are
    counted, and at the end all marks are true."""
    data = body(4000)
    path = tmp_path / "worker-0.log"
    half = len(data) // 2
    path.write_bytes(data[:half])
    writer = LogFile(path, only_writes=True)
    assert (writer.size, writer.uncounted) == (half, half)
    writer.append(half, data[half:], 7.0)
    assert path.read_bytes() == data
    count_all(writer)
    writer.append(len(data), b"one more\n", 8.0)
    assert (writer.newlines, writer.uncounted) == (data.count(b"\n") + 1, 0)
    check_marks(LogFile(path, read_only=True), data)


def test_who_only_writes_keeps_no_marks(tmp_path: Path) -> None:
    """The writer holds next to nothing of hours of output, also after another has taken the log up,
    and a reader knows when each line came."""
    path = tmp_path / "worker-0.log"
    line, count, began = b"a line\n", 10_000, time.time()

    def write(first: int) -> LogFile:
        log = LogFile(path, only_writes=True)
        count_all(log)
        for number in range(first, first + count // 2):
            log.append(number * len(line), line, began + MARK_SECONDS * number)
            assert len(log.marks()) <= 2
        log.close()
        return log

    write(0)
    last = write(count // 2)
    assert (last.size, last.newlines) == (count * len(line), count)
    reader = LogFile(path, read_only=True)
    assert len(reader.marks()) >= count
    for number in range(0, count, 997):
        when = reader.time_at(number * len(line))
        assert when is not None and abs(when - began - MARK_SECONDS * number) <= MARK_SECONDS
    check_marks(reader, line * count)


def test_marks_that_are_not_in_the_index_are_not_forgotten(tmp_path: Path) -> None:

    class FullDisk(Files):
        full = True

        def write(self, path: Any, data: bytes | memoryview, offset: int = -1) -> int:
            if self.full and path.suffix == ".idx":
                raise OSError(28, "No space left on device")
            return super().write(path, data, offset)

    disk = FullDisk()
    log = LogFile(tmp_path / "worker-0.log", only_writes=True, disk=disk)
    for number in range(10):
        log.append(number, b"\n", float(number))
    disk.full = False
    log.append(10, b"\n", 10.0)
    assert len(log.marks()) == 1
    reader = LogFile(log.path, read_only=True)
    assert reader.marks()[:11] == [(number, float(number)) for number in range(11)]
    disk.close()


# Output and exits of many tasks, as the launcher's loop hears them.

FIRST, SECOND = TaskId("w", 0), TaskId("w", 1)


class Scene:
    """The outputs of a run whose tasks are all on one host, a remote one or, for the logs, this
    machine (`local`), and what they tell."""

    def __init__(self, folder: Path, tasks: int, local: bool) -> None:
        places = ", ".join(f'"h:{2222 + number}"' for number in range(tasks))
        text = f'[hosts.h]\nssh = "h"\n[jobs.w]\ntasks = [{places}]\n'
        text += '[run]\ncommand = ["x"]\n[start.ready]\nw = "started"\n'
        link = SimpleNamespace(settings=SimpleNamespace(local=local))
        core = FakeCore(text, folder, {"h": link})
        self.run: RunStateMachine = core.machine
        for event in (ev.Begin(1.0), ev.HostUp(1.0, "h", (), ""), ev.HostsChecked(1.0, {})):
            self.run.handle(event)
        self.run.handle(ev.Staged(1.0, "h"))
        for task in self.run.data.plan.tasks:
            self.run.handle(ev.TaskStarted(2.0, task.id, 1, 100, 0))
        self.fed: list[ev.Event] = core.fed
        self.work: list[asyncio.Task[None]] = core.work
        self.troubles: list[str] = []
        disk: Any = SimpleNamespace(complain=self.troubles.append)
        self.outputs = Outputs(core, LogStore(folder), disk, {}, lambda *_: None, failed)
        self.outputs.begin()


@contextmanager
def a_scene(folder: Path, tasks: int, *, local: bool = False) -> Iterator[Scene]:
    scene = Scene(folder, tasks, local)
    try:
        yield scene
    finally:
        scene.outputs.monitor.close()


def exited(task: TaskId, size: int) -> TaskFacts:
    """The agent's word of a task that has written so much and exited 0."""
    return TaskFacts(
        task=task,
        attempt=1,
        pid=100,
        error="",
        ended=True,
        status=0,
        signal=None,
        listening=False,
        size=size,
        began_at=0,
        eof=True,
        lost=0,
        cut=0,
    )


async def test_exits_that_wait_for_output_are_not_looked_through_for_each_piece(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only those are looked at whose output has come, and they are told then."""
    with a_scene(tmp_path, 500) as scene:
        outputs = scene.outputs
        for task in scene.run.data.plan.tasks:
            outputs.exited(exited(task.id, 4), at_once=False)
        looks = 0
        size = outputs.monitor.size

        def counted(task: TaskId) -> int:
            nonlocal looks
            looks += 1
            return size(task)

        monkeypatch.setattr(outputs.monitor, "size", counted)
        for number in range(20):
            outputs.monitor.store(TaskId("w", number), 0, b"end\n", lambda _: None)
        async with asyncio.timeout(PATIENCE):
            while len(scene.fed) < 20:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        told = {event.task.index for event in scene.fed if isinstance(event, ev.TaskExited)}
        assert told == set(range(20)) and looks <= 2 * 20


@pytest.mark.parametrize("how", ["removed", "moved", "cut"])
async def test_a_log_of_this_machine_that_is_gone_does_not_hide_the_end(
    tmp_path: Path, how: str
) -> None:
    """Somebody makes room on the disk while the task runs: its exit is told at once, and nobody
    waits for the rest of its output."""
    with a_scene(tmp_path, 1, local=True) as scene:
        outputs, log = scene.outputs, tmp_path / "w-0.log"
        log.write_bytes(b"x\n" * 100)
        outputs.monitor.grown(FIRST, 200)
        await until(lambda: outputs.monitor.size(FIRST) == 200)
        match how:
            case "removed":
                log.unlink()
            case "moved":
                log.rename(tmp_path / "elsewhere")
            case _:
                os.truncate(log, 10)
        facts = exited(FIRST, 260)
        outputs.exited(facts, at_once=False)
        outputs.ended(facts)
        await until(lambda: scene.fed)
        (told,) = scene.fed
        assert isinstance(told, ev.TaskExited) and (told.task, told.status) == (FIRST, 0)
        (view,) = scene.run.snapshot().tasks
        assert outputs.is_whole(view) and outputs.is_cut(view)
        assert any("w-0.log" in text for text in scene.troubles)


async def test_a_log_of_this_machine_that_is_slow_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exit is told with the lines that the disk gives late."""
    with a_scene(tmp_path, 1, local=True) as scene:
        (tmp_path / "w-0.log").write_bytes(b"x\n" * 130)
        go, grown = threading.Event(), LogFile.grown

        def slow(log: LogFile, size: int) -> None:
            go.wait(PATIENCE)
            grown(log, size)

        monkeypatch.setattr(LogFile, "grown", slow)
        scene.outputs.exited(exited(FIRST, 260), at_once=False)
        await asyncio.sleep(0.3)
        assert scene.fed == []
        go.set()
        await until(lambda: scene.fed)
        assert not scene.outputs.is_cut(scene.run.snapshot().tasks[0]) and not scene.troubles


# Groups of stacks, their names and headlines, and what is cut: pure functions.


def task(index: int, *processes: ProcessStack, job: str = "worker", host: str = "a") -> TaskStacks:
    return TaskStacks(TaskId(job, index), host, processes)


def taken(*tasks: TaskStacks) -> Stacks:
    return Stacks(1000.0, tasks)


SCHEMA = Draft202012Validator(schema())
FRAMES = st.builds(
    StackFrame,
    st.text(max_size=5) | st.sampled_from(["f", "g"]),
    st.sampled_from(["", "/a/x.py", "/b/x.py", "y.py"]) | st.text(max_size=5),
    st.integers(0, 9),
)
THREADS = st.builds(
    ThreadStack, st.text(max_size=3), st.lists(FRAMES, max_size=12).map(lambda x: tuple(x))
)
PROCESSES = st.builds(
    ProcessStack,
    st.integers(0, 99),
    st.text(max_size=5),
    st.sampled_from(["python", "proc", "py-spy"]),
    st.text(max_size=5),
    st.lists(THREADS, max_size=4).map(lambda x: tuple(x)),
)
TASKS = st.lists(
    st.lists(PROCESSES, min_size=1, max_size=4).map(lambda x: tuple(x)), max_size=12
).map(lambda all_: tuple(task(n, *one) for n, one in enumerate(all_)))
NAMELESS = ProcessStack(0, "", "python", "", (ThreadStack("", (StackFrame(""),)),))


@examples(40)
@given(TASKS)
@example((task(0, NAMELESS),))
def test_groups_hold_each_task_once_and_the_smallest_is_first(
    tasks: tuple[TaskStacks, ...],
) -> None:
    found = taken(*tasks)
    sizes = [len(group.tasks) for group in found.groups]
    assert sizes == sorted(sizes)
    assert sorted(one for group in found.groups for one in group.tasks) == sorted(
        one.task for one in tasks
    )
    keys = {one.task: one.key for one in tasks}
    for group in found.groups:
        assert len({keys[one] for one in group.tasks}) == 1 and group.where and group.title
    assert bool(found.headline()) == bool(tasks)
    assert stacks_type().validate_python(stacks_type().dump_python(found, mode="json")) == found
    SCHEMA.validate(record(found))


@examples(40)
@given(TASKS, st.integers(0, 60))
def test_what_is_cut_is_counted_and_where_each_task_stands_is_kept(
    tasks: tuple[TaskStacks, ...], room: int
) -> None:
    kept = bounded(tasks, room)
    assert [one.task for one in kept] == [one.task for one in tasks]
    for before, after in zip(tasks, kept, strict=True):
        assert after.main.pid == before.main.pid
        assert after.stack == before.stack[: len(after.stack)]
        assert len(after.stack) >= min(8, len(before.stack))
        counts = {id(one): 0 for one in after.processes}
        assert len(counts) <= len(before.processes)
        threads = after.main.unlisted + len(after.main.threads)
        assert threads == before.main.unlisted + len(before.main.threads)
    assert bounded(tasks) == tasks
