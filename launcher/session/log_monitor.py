"""Data worker of a run: stores what tasks write, counts it, and reads it for metrics and ready
lines.

It has a thread of its own, for all of this may take long: a disk that is full or does not
answer, a flood of lines. The launcher's loop only hands bytes over and hears what was found.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ..cluster.patterns import LINE_BYTES, compile_pattern, cut_lines
from ..hosts.link import Stored
from ..ids import TaskId
from ..plan.plan import Plan
from ..store.disk_thread import DiskThread
from ..store.logs import (
    MARK_BYTES,
    TAIL_BYTES,
    LogStore,
    expect_floods,
    log_tail,
    tail_lines,
)
from ..store.metrics import Extractor
from ..store.runs import STALLED_SECONDS

_AGAIN_SECONDS = 1.0
_LOOK = 1 << 20
_MOST_LOOKED = 64 << 20
"""Bytes of an attempt in which a line is looked for that may have come while no launcher lived."""
_COUNTED_TOGETHER = 8
"""Steps of counting, of 4 MiB each, after which other jobs have their turn."""
_AT_ONCE = 1 << 20
"""Bytes of one task that are stored together when more come than the disk takes."""


@dataclass
class Found:
    """Findings since the loop was told last."""

    wrote: dict[TaskId, float] = field(default_factory=dict)
    """Time of each task's last output."""
    metrics: dict[TaskId, tuple[float, Mapping[str, float], float | None]] = field(
        default_factory=dict
    )
    """The newest metric line of each task: its time, its figures, the rate."""
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
    ) -> None:
        """`found` is called, on the worker's thread, when there is something to `pop_found`."""
        self._logs = logs
        self._notify = found
        self._worker = DiskThread("logs", failed)
        self._extractors = {task.id: Extractor(plan.metrics_pattern) for task in plan.tasks}
        self._patterns: dict[TaskId, tuple[int, Any, bytes]] = {}
        self._sizes: dict[TaskId, int] = {}
        """Sizes of logs of this machine at which the worker has not looked yet."""
        self._waiting: dict[TaskId, _Store] = {}
        """The job that a remote task's next bytes join."""
        self._lock = threading.Lock()
        """Guards `_sizes`, `_waiting` and `_found`; never held for long."""
        self._found = Found()
        self._counting: set[TaskId] = set()
        """Tasks for whose logs a `_Count` waits; the worker's, once there is one."""
        for task in plan.tasks:
            if logs.open(task.id).uncounted:  # an earlier launcher's
                self._count_later(task.id)

    # --- for the loop ---------------------------------------------------------------------

    def size(self, task: TaskId) -> int:
        """Bytes of a task's log that are on disk."""
        return self._logs.open(task).size

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

    def tail(self, task: TaskId, told: Callable[[tuple[str, ...]], None]) -> None:
        """Calls `told`, on the worker's thread, with the last lines of a log."""

        def read() -> None:
            try:
                with self._worker.asking():
                    lines = log_tail(self._logs.open(task))
            except OSError:
                lines = ()  # somebody has removed the file
            told(lines)

        self._worker.put(read)

    def waiting_lines(self, tasks: Iterable[TaskId]) -> dict[TaskId, tuple[str, ...]]:
        """The last lines of remote tasks among those that are not on disk yet."""
        ends = dict.fromkeys(tasks, b"")
        for job in self._worker.jobs():
            if isinstance(job, _Store) and job.task in ends:
                ends[job.task] = (ends[job.task] + job.end())[-TAIL_BYTES:]
        return {task: tail_lines(data) for task, data in ends.items()}

    def expect_floods(self) -> None:
        """Makes ready for tasks that write fast."""
        self._worker.put(expect_floods)

    @property
    def stalled(self) -> bool:
        """The disk is full, or does not answer."""
        return self._worker.stalled > STALLED_SECONDS

    @property
    def idle(self) -> bool:
        """All that was handed over is on disk, or given up; whoever reads a log counts what nobody
        has counted."""
        return all(isinstance(job, _Count) for job in self._worker.jobs())

    @property
    def unstored(self) -> int:
        """Bytes that were handed over and are not on disk."""
        return sum(job.size for job in self._worker.jobs() if isinstance(job, _Store))

    def pop_found(self) -> Found:
        """Findings since the last call."""
        with self._lock:
            found, self._found = self._found, Found()
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
        log = self._logs.open(job.task)
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
        log = self._logs.open(task)
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
                if log.size < size:
                    self._found.lost[task] = size
            self._complain(f"{log.path.name}: {trouble}")
        self._read(task, data, now)
        self._count_rest(task)

    def _count_rest(self, task: TaskId) -> None:
        """Counts what is new in a log, unless more than that is to be counted before it."""
        if self._logs.open(task).uncounted and task not in self._counting:
            self._count(_Count(self, task))

    def _count_later(self, task: TaskId) -> None:
        self._counting.add(task)
        self._worker.put(_Count(self, task))

    def _count(self, job: _Count) -> None:
        """Counts for a moment: nothing waits for this, but others wait for the thread."""
        self._counting.discard(job.task)
        log = self._logs.open(job.task)
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
        log = self._logs.open(task)
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
        last = None
        for point in self._extractors[task].feed(data, now):
            last = point
        self._find_line(task, data)
        with self._lock:
            if data:
                self._found.wrote[task] = now
            if last is not None:
                rate = self._extractors[task].rate
                self._found.metrics[task] = (now, last.values, rate)
        self._notify()

    def _await_line(self, task: TaskId, attempt: int, pattern: str, since: int | None) -> None:
        if since is not None and task in self._patterns and self._patterns[task][0] == attempt:
            return  # it is awaited since its start
        self._patterns[task] = (attempt, compile_pattern(pattern), b"")
        if since is not None:
            size = self._logs.open(task).size
            self._look(task, since, min(size, since + _MOST_LOOKED))

    def _find_line(self, task: TaskId, data: bytes) -> None:
        if task not in self._patterns:
            return
        attempt, pattern, rest = self._patterns[task]
        text = rest + data
        if not pattern.search(cut_lines(text)):
            begin = max(text.rfind(b"\n"), text.rfind(b"\r")) + 1
            self._patterns[task] = (attempt, pattern, text[begin : begin + LINE_BYTES])
            return
        del self._patterns[task]
        with self._lock:
            self._found.ready.append((task, attempt))
        self._notify()
