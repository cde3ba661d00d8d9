"""Output and exits of tasks.

Bytes go to the run's `LogMonitor`, which has a thread of its own, for all of this may take long: a
disk that is full or does not answer, a flood of lines. What is new is handed to `LineWatch`, which
has it read behind the bulkhead. What is found comes back to `Outputs` on the launcher's loop, which
keeps the latest metrics and tells of exits.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NoReturn

from ..cluster.patterns import compile_pattern
from ..cluster.readiness import LogMatches, figures_show
from ..crossing import loop_caller
from ..hosts.frames import TaskFacts
from ..hosts.link import Stored
from ..ids import TaskId
from ..lines import LINE_BYTES, versions
from ..plan.run_plan import Plan
from ..reading.looks import LineNews, Look, LookQuestion, NewFigures, NewLines, Victims
from ..run import events as ev
from ..run.snapshot import Metric, TaskView
from ..run.states import TaskState
from ..store.disk import DiskThread
from ..store.logs import MARK_BYTES, TAIL_BYTES, LogStore, log_tail, tail_lines
from ..store.metrics import NO_METRICS, LatestMetrics, count_of, with_newer
from ..store.run_writer import RunWriter
from ..store.runs import SLOW_DISK_SECONDS
from .bulkhead import Bulkhead
from .core import Core

_AGAIN_SECONDS = 1.0
_LOOK = 1 << 20
_MOST_LOOKED = 64 << 20
"""Bytes of an attempt in which a line is looked for that may have come while no launcher lived."""
_COUNTED_TOGETHER = 8
"""Steps of counting, of 4 MiB each, after which other jobs have their turn."""
_AT_ONCE = 1 << 20
"""Bytes of one task that are stored together when more come than the disk takes."""
_MOST_LINES = 64
"""Metric lines of a task that are told one by one."""
_LOOK_BYTES = 32 * 1024
"""Bytes of one task that are read at once for figures: those of a flood come faster than that."""
_READ_PAUSE = 0.01
"""Seconds between two such looks: what comes meanwhile is read together."""
_DISK_PACE = 0.25
_SAY_AGAIN_SECONDS = 30.0


_NOTHING: LineNews = (None, None, None)
METRIC_SECONDS = 1 / 30
"""NewFigures of a task that come closer to each other are told together."""


@dataclass
class _MetricLine:
    """The newest figures of a task at one moment."""

    time: float
    heard: float
    """The moment by a clock that nobody sets."""
    values: dict[str, float]
    rate: float | None

    def joined(self, before: list[_MetricLine]) -> list[_MetricLine]:
        """The lines before with this one, which has come later."""
        if not before or self.heard - before[-1].heard >= METRIC_SECONDS:
            return [*before, self][-_MOST_LINES:]
        last = before[-1]
        values = with_newer(last.values, self.values)
        return [*before[:-1], _MetricLine(self.time, last.heard, values, self.rate)]


@dataclass
class OutputNews:
    """Findings since the loop was told last."""

    wrote: dict[TaskId, float] = field(default_factory=dict)
    """Time of each task's last output."""
    went_on: dict[TaskId, float] = field(default_factory=dict)
    """Time of each task's last output without lines that only say whom a task waits for."""
    awaits: dict[TaskId, TaskId] = field(default_factory=dict)
    """Whom each task has waited for, by its newest line of that kind."""
    metrics: dict[TaskId, list[_MetricLine]] = field(default_factory=dict)
    """The figures of each task."""
    ready: list[tuple[TaskId, int]] = field(default_factory=list)
    stored: dict[Stored, int] = field(default_factory=dict)
    """Bytes that are on disk now, for whoever gives credit."""
    lost: dict[TaskId, int] = field(default_factory=dict)
    """Sizes that logs of this machine should have: they are gone, or shorter."""
    trouble: str = ""


@dataclass(eq=False)
class _Store:
    """A job: bytes of a remote task. Until it begins, those that follow on them join it."""

    monitor: LogMonitor
    task: TaskId
    offset: int
    stored: Stored
    parts: list[bytes] = field(default_factory=list)
    size: int = 0

    def __call__(self) -> None:
        self.monitor._store(self)

    def add(self, data: bytes) -> None:
        """Adds bytes that follow on those of this job."""
        self.parts.append(data)
        self.size += len(data)

    def end(self) -> bytes:
        """The last bytes, as many as are shown of a task that fails."""
        count, first = 0, len(self.parts)
        while first and count < TAIL_BYTES:
            first -= 1
            count += len(self.parts[first])
        return b"".join(self.parts[first:])[-TAIL_BYTES:]

    def takes(self, offset: int, stored: Stored) -> bool:
        """Whether bytes at this offset follow, and there is room for them."""
        follows = (offset, stored) == (self.offset + self.size, self.stored)
        return follows and self.size < _AT_ONCE


@dataclass(eq=False)
class _Count:
    """A job: counts the next bytes of a log, and comes again behind the others while there are
    more."""

    monitor: LogMonitor
    task: TaskId

    def __call__(self) -> None:
        self.monitor._count(self)


class LogMonitor:
    """The run's `LogSink`; its methods are for the launcher's loop, and none of them waits."""

    def __init__(
        self,
        plan: Plan,
        logs: LogStore,
        found: Callable[[], None],
        failed: Callable[[BaseException], None],
        bulkhead: Bulkhead,
    ) -> None:
        """`found` is called, on other threads, when there is something to `pop_found`."""
        self._logs = logs
        self._notify = found
        self._worker = DiskThread("logs", failed)
        self._lines = LineWatch(bulkhead, plan.metrics_pattern, self._take_news)
        self._patterns: dict[TaskId, tuple[int, Any, bytes]] = {}
        self._sizes: dict[TaskId, int] = {}
        """Sizes of logs of this machine at which the worker has not looked yet."""
        self._waiting: dict[TaskId, _Store] = {}
        """The job that a remote task's next bytes join."""
        self._lock = threading.Lock()
        """Guards `_sizes`, `_waiting` and `_found`; never held for long."""
        self._found = OutputNews()
        self._counting: set[TaskId] = set()
        """Tasks for whose logs a `_Count` waits; the worker's, once there is one."""
        self._files = {task.id: logs.open(task.id) for task in plan.tasks}
        for task, log in self._files.items():
            if log.uncounted:  # an earlier launcher's
                self._count_later(task)

    # --- for the loop ---------------------------------------------------------------------

    def size(self, task: TaskId) -> int:
        """Bytes of a task's log that are on disk."""
        return self._files[task].size

    def store(self, task: TaskId, offset: int, data: bytes, stored: Stored) -> None:
        """Puts a remote task's bytes on disk; `stored` gets their number when they are there."""
        with self._lock:
            job = self._waiting.get(task)
            joins = job is not None and job.takes(offset, stored)
            if job is None or not joins:
                job = self._waiting[task] = _Store(self, task, offset, stored)
            job.add(data)
        if not joins:
            self._worker.put(job)

    def forget(self, stored: Stored) -> None:
        """Drops what was handed over with `stored` and is not on disk yet: it will come again."""
        with self._lock:
            for job in [job for job in self._waiting.values() if job.stored == stored]:
                del self._waiting[job.task]
        self._worker.drop(lambda job: isinstance(job, _Store) and job.stored == stored)

    def grown(self, task: TaskId, size: int) -> None:
        """A task of this machine, whose agent writes the log, has written up to `size`."""
        with self._lock:
            waiting = task in self._sizes
            self._sizes[task] = size
        if not waiting:
            self._worker.put(lambda: self._follow(task))

    def await_line(
        self, task: TaskId, attempt: int, pattern: str, since: int | None = None
    ) -> None:
        """The attempt is ready when a line of its log matches; `since`: the line may be on disk,
        behind that byte."""
        with self._lock:
            self._waiting.pop(task, None)  # what comes now is looked at after this
        self._worker.put(lambda: self._await_line(task, attempt, pattern, since))

    def tail(
        self,
        task: TaskId,
        told: Callable[[tuple[str, ...]], None],
    ) -> None:
        """Calls `told`, on the worker's thread, with the last lines of a log."""

        def read() -> None:
            found: tuple[str, ...] = ()
            with suppress(OSError), self._worker.asking():  # somebody may have removed the file
                found = log_tail(self._files[task])
            told(found)

        self._worker.put(read)

    def read_end(self, task: TaskId, size: int, told: Callable[[bytes], None]) -> None:
        """Calls `told`, on the worker's thread, with the last bytes of a log."""

        def read() -> None:
            log, data = self._files[task], b""
            with suppress(OSError), self._worker.asking():  # somebody may have removed the file
                data = log.read(max(0, log.size - size), size)
            told(data)

        self._worker.put(read)

    def waiting_lines(self, tasks: Iterable[TaskId]) -> dict[TaskId, tuple[str, ...]]:
        """The last lines of remote tasks among those that are not on disk yet."""
        ends = dict.fromkeys(tasks, b"")
        for job in self._worker.jobs():
            if isinstance(job, _Store) and job.task in ends:
                ends[job.task] = (ends[job.task] + job.end())[-TAIL_BYTES:]
        return {task: tail_lines(data) for task, data in ends.items()}

    @property
    def stalled(self) -> bool:
        """The disk is full, or does not answer."""
        return self._worker.stalled > SLOW_DISK_SECONDS

    @property
    def idle(self) -> bool:
        """All that was handed over is on disk, or given up; whoever reads a log counts what nobody
        has counted."""
        return all(isinstance(job, _Count) for job in self._worker.jobs())

    @property
    def unstored(self) -> int:
        """Bytes that were handed over and are not on disk."""
        return sum(job.size for job in self._worker.jobs() if isinstance(job, _Store))

    def pop_found(self) -> OutputNews:
        """Findings since the last call."""
        with self._lock:
            found, self._found = self._found, OutputNews()
        return found

    def close(self) -> None:
        """Takes no more; returns at once."""
        self._worker.put(self._logs.close)
        self._worker.stop()

    # --- the worker's thread --------------------------------------------------------------

    def _store(self, job: _Store) -> None:
        with self._lock:
            if self._waiting.get(job.task) is job:
                del self._waiting[job.task]
        data = b"".join(job.parts)
        log = self._files[job.task]
        now = time.time()
        with self._worker.asking():
            while True:
                try:
                    log.append(job.offset, data, now)
                    break
                except OSError as error:
                    self._complain(f"{log.path.name}: {error.strerror}")
                    if not self._worker.pause(_AGAIN_SECONDS):
                        return
        with self._lock:
            stored = self._found.stored
            stored[job.stored] = stored.get(job.stored, 0) + len(data)
        self._read(job.task, data, now)
        self._count_rest(job.task)

    def _follow(self, task: TaskId) -> None:
        log = self._files[task]
        now = time.time()
        with self._lock:
            size = self._sizes.pop(task)
        before = log.size
        trouble, data = "", b""
        try:
            with self._worker.asking():
                log.grown(size)
            if log.size < size:
                trouble = "it has been cut"
            last = max(before, log.size - MARK_BYTES)
            if task in self._patterns:
                self._look(task, before, last)
            with self._worker.asking():
                data = log.read(last, log.size - last)
        except OSError as error:
            trouble = error.strerror or str(error)
        if trouble:
            with self._lock:
                self._found.wrote[task] = now  # it did, and its exit waits for us to look
                self._found.went_on[task] = now
                if log.size < size:
                    self._found.lost[task] = size
            self._complain(f"{log.path.name}: {trouble}")
        self._read(task, data, now)
        self._count_rest(task)

    def _count_rest(self, task: TaskId) -> None:
        """Counts what is new in a log, unless more than that is to be counted before it."""
        if self._files[task].uncounted and task not in self._counting:
            self._count(_Count(self, task))

    def _count_later(self, task: TaskId) -> None:
        self._counting.add(task)
        self._worker.put(_Count(self, task))

    def _count(self, job: _Count) -> None:
        """Counts for a moment: nothing waits for this, but others wait for the thread."""
        self._counting.discard(job.task)
        log = self._files[job.task]
        for _ in range(_COUNTED_TOGETHER):
            before = log.uncounted
            with suppress(OSError), self._worker.asking():
                log.count(time.time())  # whoever follows the log says why it cannot be read
            if log.uncounted == before or not self._worker.pause(0):
                return  # nothing is left, somebody has cut the file, or the run is over
        if log.uncounted:
            self._count_later(job.task)

    def _look(self, task: TaskId, begin: int, end: int) -> None:
        """Looks for the awaited line of a task in a part of its log."""
        log = self._files[task]
        while task in self._patterns and begin < end:
            with self._worker.asking():
                part = log.read(begin, min(_LOOK, end - begin))
            if not part:
                break  # removed meanwhile
            begin += len(part)
            self._find_line(task, part)

    def _complain(self, trouble: str) -> None:
        with self._lock:
            self._found.trouble = trouble
        self._notify()

    def _read(self, task: TaskId, data: bytes, now: float) -> None:
        self._find_line(task, data)
        if data:
            with self._lock:
                self._found.wrote[task] = now
        self._notify()
        if data:
            self._lines.put(task, data, now)

    def unread(self, task: TaskId) -> bool:
        """Whether something of what a task has printed waits to be read for figures."""
        return self._lines.waits(task)

    def _take_news(self, read: Sequence[NewLines], news: Sequence[LineNews]) -> None:
        """Takes what was found in new lines; those of which nothing is known are output. On a
        thread of the bulkhead."""
        known = [*news[: len(read)], *[_NOTHING] * (len(read) - len(news))]
        with self._lock:
            found = self._found
            for one, (awaits, figures, rate) in zip(read, known, strict=True):
                task = one.task
                if awaits is not None:
                    found.awaits[task] = awaits
                else:
                    found.went_on[task] = one.time
                    found.awaits.pop(task, None)
                if figures is not None:
                    line = _MetricLine(one.time, one.heard, figures, rate)
                    found.metrics[task] = line.joined(found.metrics.get(task, []))
        self._notify()

    def _await_line(self, task: TaskId, attempt: int, pattern: str, since: int | None) -> None:
        if since is not None and task in self._patterns and self._patterns[task][0] == attempt:
            return  # it is awaited since its start
        self._patterns[task] = (attempt, compile_pattern(pattern), b"")
        if since is not None:
            size = self._files[task].size
            self._look(task, since, min(size, since + _MOST_LOOKED))

    def _find_line(self, task: TaskId, data: bytes) -> None:
        if task not in self._patterns:
            return
        attempt, pattern, rest = self._patterns[task]
        text = rest + data
        if not pattern.search(versions(text)):
            begin = max(text.rfind(b"\n"), text.rfind(b"\r")) + 1
            self._patterns[task] = (attempt, pattern, text[begin : begin + LINE_BYTES])
            return
        del self._patterns[task]
        with self._lock:
            self._found.ready.append((task, attempt))
        self._notify()


class LineWatch:
    """Has new output read behind the bulkhead, all that has come meanwhile at once: of a flood the
    end."""

    def __init__(
        self,
        bulkhead: Bulkhead,
        pattern: str | None,
        found: Callable[[Sequence[NewLines], Sequence[LineNews]], None],
    ) -> None:
        """`found` gets what was read and what is in it, on another thread."""
        self._bulkhead, self._pattern, self._found = bulkhead, pattern, found
        self._lock = threading.Lock()
        self._new: dict[TaskId, list[NewLines]] = {}
        self._reading: tuple[NewLines, ...] = ()
        self._read_at = 0.0

    def put(self, task: TaskId, data: bytes, now: float) -> None:
        """Has new output read; returns at once."""
        new = NewLines(task, data[-_LOOK_BYTES:], now, time.monotonic())
        with self._lock:
            idle = not self._new
            waiting = self._new.setdefault(task, [])
            if waiting and new.heard - waiting[-1].heard < METRIC_SECONDS:
                last = waiting.pop()
                both = (last.data + new.data)[-_LOOK_BYTES:]
                new = replace(new, data=both, heard=last.heard)
            waiting.append(new)
            while sum(len(one.data) for one in waiting) > _LOOK_BYTES:
                del waiting[0]
        if idle:
            self._bulkhead.submit(Look.METRICS, self._make, self._told, of_lines=True)

    def waits(self, task: TaskId) -> bool:
        """Whether output of a task has not been read yet."""
        with self._lock:
            return task in self._new or any(one.task == task for one in self._reading)

    def _make(self) -> LookQuestion[Any]:
        time.sleep(max(0.0, self._read_at + _READ_PAUSE - time.monotonic()))
        self._take()
        return NewFigures(self._reading, self._pattern)

    def _take(self) -> None:
        with self._lock:
            new, self._new = self._new, {}
            self._reading = tuple(one for lines in new.values() for one in lines)

    def _told(self, news: list[LineNews] | None) -> None:
        read = self._reading
        if news is None:  # perhaps nobody reads any more
            self._take()
            read += self._reading
        self._found(read, news or ())
        with self._lock:
            self._reading = ()
        self._read_at = time.monotonic()


SHOWN_SECONDS = 0.25
"""Between two times that new metrics, sizes and times of output are published."""


class Outputs:
    """The logs of a run's tasks as they grow, and the ends of its tasks, which are told only
    when their output is here to the last byte, if the disk takes it."""

    def __init__(
        self,
        core: Core,
        logs: LogStore,
        disk: DiskWatch,
        latest: Mapping[TaskId, LatestMetrics],
        publish_line: Callable[[Metric, float], None],
        crash: Callable[[str, BaseException], NoReturn],
    ) -> None:
        """
        Args:
            latest: the metrics of each task from before an attach.
            publish_line: gets each metric line, and when it was heard by the clock that nobody
                sets.
            crash: ends the launcher for what nobody expected.
        """
        self._core, self._data, self._disk = core, core.data, disk
        self._publish_metric, self._crash = publish_line, crash
        self._latest = dict(latest)
        self._total_told: int | None = None
        self._publishing = False
        self._hosts_of = {task.id: task.host for task in self._data.plan.tasks}
        self.monitor = LogMonitor(
            self._data.plan, logs, self._wake, partial(crash, "logs"), core.bulkhead
        )
        self._call: Callable[[Callable[[], object]], None] | None = None
        """Calls a function on the loop, from the monitor's thread."""
        self._woken = False
        self._metrics: dict[TaskId, list[_MetricLine]] = {}
        self._exits: dict[TaskId, TaskFacts] = {}
        self._ended: dict[TaskId, float] = {}
        """When the processes of `_exits` ended."""
        self._tails: set[TaskId] = set()
        """Tasks whose last lines are being read."""
        self._due: dict[TaskId, tuple[TaskFacts, tuple[str, ...]]] = {}
        """Exits that are told when their last lines have been read, in their order."""
        self._ends: dict[TaskId, tuple[int, int]] = {}
        """The last attempt of each task whose output has ended, and the log's size then."""
        self._lost: dict[TaskId, int] = {}
        """Sizes up to which logs of this machine cannot be followed: somebody has removed them."""
        self._listeners: dict[str, Callable[[], None]] = {}
        self.went_on: dict[TaskId, float] = {}
        """Time of each task's last output, but for lines that say it waits."""
        self.awaits: dict[TaskId, TaskId] = {}
        """The tasks for which tasks have said since that they wait."""

    def begin(self) -> None:
        """Takes note of the running loop; called in it, before any output."""
        self._call = loop_caller()
        gauges, tasks = self._core.gauges, self._data.tasks
        for task, latest in self._latest.items():
            if task in tasks:
                gauges.metrics(task, latest.figures(tasks[task].last_output))
        for task in tasks:
            gauges.log_size(task, self.monitor.size(task))
        self._wake()  # for what was found before

    # --- what the monitor finds -----------------------------------------------------------

    def _wake(self) -> None:
        if not self._woken and self._call is not None:
            self._woken = True
            self._call(self._process_findings)

    def _process_findings(self) -> None:
        self._woken = False
        found = self.monitor.pop_found()
        try:
            self._handle(found)
        except Exception as error:
            self._crash("logs", error)

    def _handle(self, found: OutputNews) -> None:
        for stored, count in found.stored.items():
            stored(count)
        self.went_on.update(found.went_on)
        for task in found.went_on:
            self.awaits.pop(task, None)
        self.awaits.update(found.awaits)
        for task, last in found.wrote.items():
            size = self.monitor.size(task)
            self._core.gauges.output(task, last, size)
        self._lost.update(found.lost)
        if found.wrote and not self._publishing:
            self._publishing = True
            asyncio.get_running_loop().call_later(SHOWN_SECONDS, self._show)
        if found.metrics:
            if not self._metrics:
                asyncio.get_running_loop().call_later(METRIC_SECONDS, self._publish_metrics)
            for task, lines in found.metrics.items():
                for line in lines:
                    self._metrics[task] = line.joined(self._metrics.get(task, []))
        for task, attempt in found.ready:
            self._core.feed(ev.TaskReady(time.time(), task, attempt))
        if found.trouble:
            self._disk.complain(found.trouble)
        for task in found.wrote:
            if task in self._exits:
                self._check_exit(task)
            self._notify_host(task)

    def wrote_beyond_limit(self, task: TaskId) -> None:
        """A task has written for which its log has no room."""
        self.went_on[task] = now = time.time()
        self._core.gauges.output(task, now, self.monitor.size(task))

    def _show(self) -> None:
        self._publishing = False
        self._core.publish()

    def _publish_metrics(self) -> None:
        metrics, self._metrics = self._metrics, {}
        for task, lines in metrics.items():
            for line in lines:
                self._publish_line(task, line)

    def _publish_line(self, task: TaskId, line: _MetricLine) -> None:
        now, values = line.time, line.values
        latest = self._latest.get(task, NO_METRICS).updated(now, values, line.rate)
        self._latest[task] = latest
        view = self._data.tasks[task]
        self._core.gauges.metrics(task, latest.figures(view.last_output))
        named = (values.get("step"), values.get("loss"))
        metric = Metric(task, view.host, values, line.rate, *named, time=now)
        self._publish_metric(metric, line.heard)
        total = count_of(values, "total")
        news = total is not None and total != self._total_told
        if news or (values and self._awaits_metrics(task)):
            self._total_told = total if news else self._total_told
            self._core.feed(ev.MetricsSeen(time.time(), task, total))

    def _awaits_metrics(self, task: TaskId) -> bool:
        """A metric line changes the state of a task."""
        state, ready = self._data.tasks[task].state, self._data.plan.task(task).ready
        return state is TaskState.READY or (state is TaskState.STARTING and figures_show(ready))

    def await_line(self, started: ev.TaskStarted) -> None:
        """Attached while a task is awaited by its log: the line may have come meanwhile."""
        ready, view = (
            self._data.plan.task(started.task).ready,
            self._data.tasks[started.task],
        )
        awaited = view.state is TaskState.STARTING and view.attempt == started.attempt
        if awaited and isinstance(ready, LogMatches):
            since = started.log_start
            self.monitor.await_line(started.task, started.attempt, ready.pattern, since)

    # --- ending ---------------------------------------------------------------------------

    def exited(self, facts: TaskFacts, *, at_once: bool) -> None:
        """The agent says that the task has exited, and how much it had written by then.
        `at_once`: nobody needs its last lines."""
        task = facts.task
        self._exits[task] = facts
        self._ended[task] = time.time() - (facts.ended_ago or 0.0)
        self._tails.discard(task)
        self._count_local(task, facts.size)
        if at_once:
            self._tell_exit(task, facts, (), misses_peer=False)
        else:
            self._check_exit(task)

    def ended(self, facts: TaskFacts) -> None:
        """Nobody will write to the log of this attempt any more."""
        self._ends[facts.task] = facts.attempt, facts.size
        self._count_local(facts.task, facts.size)
        self._notify_host(facts.task)

    def ended_unseen(self, task: TaskId, attempt: int, size: int) -> None:
        """The agent that had started this attempt has died: its log is as long as it will be, also
        where an exit had told of more, which was lost with a disk."""
        self._ends[task] = attempt, size
        self._count_local(task, size)
        exited = self._exits.get(task)
        if exited is not None and exited.attempt <= attempt and exited.size > size:
            self._lost[task] = max(self._lost.get(task, 0), exited.size)
            self._check_exit(task)
        self._notify_host(task)

    async def report_exits(self) -> None:
        """The disk takes nothing: the run goes on without what finds no room, with the lines
        that are known."""
        if exits := dict(self._exits):
            lines = await asyncio.to_thread(self.monitor.waiting_lines, exits)
            for task, facts in exits.items():
                self._report_exit(task, facts, lines[task])
                await asyncio.sleep(0)

    def listen(self, host: str, news: Callable[[], None] | None) -> None:
        """Calls `news` from now on when there is more of a host's logs, or one of them has ended;
        None: no more."""
        if news is None:
            self._listeners.pop(host, None)
        else:
            self._listeners[host] = news

    def _notify_host(self, task: TaskId) -> None:
        if news := self._listeners.get(self._hosts_of[task]):
            news()

    def is_whole(self, view: TaskView) -> bool:
        """The end of the last attempt's output is known, and all up to it is here, but for what
        `is_cut` says."""
        end = self._ends.get(view.id)
        if end is None or end[0] < view.attempts[-1].number or view.id in self._exits:
            return False
        return self._is_here(view.id, end[1])

    def is_cut(self, view: TaskView) -> bool:
        """The last bytes of a log of this machine are gone: somebody has removed the file."""
        return view.id in self._lost and self.monitor.size(view.id) < self._lost[view.id]

    def _is_here(self, task: TaskId, size: int) -> bool:
        """The log is here up to `size`, or nothing more can come."""
        return self.monitor.size(task) >= size or self._lost.get(task, -1) >= size

    def _count_local(self, task: TaskId, size: int) -> None:
        if self._core.links[self._hosts_of[task]].settings.local:
            self.monitor.grown(task, size)

    def _check_exit(self, task: TaskId) -> None:
        facts = self._exits[task]
        if task not in self._tails and self._is_here(task, facts.size):
            self._tails.add(task)
            told = partial(self._report_exit, task, facts)
            call = self._call or loop_caller()
            self.monitor.tail(task, lambda tail: call(partial(told, tail)))

    def _report_exit(self, task: TaskId, facts: TaskFacts, tail: tuple[str, ...]) -> None:
        if self._exits.get(task) is not facts:
            return  # told already
        if not self._data.needs_tail(task, facts.attempt, facts.status):
            tail = ()
        waits = bool(tail) or self.monitor.unread(task)
        if not waits and not self._due:
            self._tell_exit(task, facts, tail, misses_peer=False)
            return
        if not self._due:
            self._core.spawn(self._read_and_tell(), "ends of tasks")
        self._due[task] = facts, tail

    async def _read_and_tell(self) -> None:
        """Tells of exits when the last lines of their tasks have been read: whose figures they
        name, and whether another task is at fault."""
        while due := dict(self._due):
            tails = tuple(tail for _, tail in due.values())
            missing = await self._core.bulkhead.ask(Victims(tails)) or []
            missing += [False] * (len(tails) - len(missing))
            for (task, (facts, tail)), misses in zip(due.items(), missing, strict=False):
                if self._due.get(task) == (facts, tail):
                    del self._due[task]
                    self._tell_exit(task, facts, tail, misses_peer=misses)

    def tell_now(self) -> None:
        """Tells of all exits at once: the run is being ended, and nobody asks why."""
        due, self._due = self._due, {}
        for task, (facts, tail) in due.items():
            self._tell_exit(task, facts, tail, misses_peer=False)

    async def settle(self) -> None:
        """Waits until all that tasks have printed has been read for figures."""
        if any(map(self.monitor.unread, self._data.tasks)):
            await self._core.bulkhead.ask(Victims(()))
            await asyncio.sleep(0)
        self._publish_metrics()

    def _tell_exit(
        self, task: TaskId, facts: TaskFacts, tail: tuple[str, ...], *, misses_peer: bool
    ) -> None:
        if self._exits.get(task) is not facts:
            return  # told already
        del self._exits[task]
        self._due.pop(task, None)
        self._tails.discard(task)
        self._notify_host(task)
        if task in self._metrics:
            self._publish_metrics()  # in the order in which it was written
        if not self._data.needs_tail(task, facts.attempt, facts.status):
            tail = ()
        now = time.time()
        self._core.feed(
            ev.TaskExited(
                now,
                task,
                facts.attempt,
                facts.status,
                facts.signal,
                facts.port_holder,
                tail,
                facts.stopped_by,
                facts.stopped_why,
                facts.left,
                min(now, self._ended.pop(task, now)),
                facts.out_of_memory,
                misses_peer and bool(tail),
                facts.start_problem,
                facts.full,
            )
        )


class DiskWatch:
    """Knows whether logs and records are being stored."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self.stalled = False
        """Our disk is full, or does not answer."""
        self._said: float | None = None
        self._said_unrecorded = False
        self._said_omitted = ""

    async def watch(self, outputs: Outputs, writer: RunWriter) -> None:
        """Notes disks that take no logs and no records; never ends by itself."""
        while True:
            await asyncio.sleep(_DISK_PACE)
            trouble = writer.trouble
            self.stalled = outputs.monitor.stalled or bool(trouble)
            if outputs.monitor.stalled:
                self.complain("the disk does not answer")
                await outputs.report_exits()
            if trouble and not self._said_unrecorded:
                text = f"events are not stored for now: {trouble}"
                self._core.note(text)
            self._said_unrecorded = bool(trouble)
            if self._said_omitted != (omitted := writer.omitted):
                self._said_omitted = omitted
                self._core.note(omitted)

    def complain(self, reason: str) -> None:
        """Says that logs are not stored, but not all the time."""
        now = time.monotonic()
        if self._said is None or now - self._said > _SAY_AGAIN_SECONDS:
            self._said = now
            self._core.note(f"log not stored here for now: {reason}")
