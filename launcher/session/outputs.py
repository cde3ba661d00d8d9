"""What tasks write: read for metrics and for the line that says ready; and when it is whole."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Mapping
from typing import Any

from ..hosts.holders import holder_words
from ..hosts.link import Link
from ..hosts.messages import TaskFacts
from ..ids import TaskId
from ..plan.plan import LogMatches, Plan
from ..run import events as ev
from ..run.snapshot import Snapshot, TaskView
from ..run.states import TaskState
from ..store.logs import LogStore
from ..store.metrics import Extractor, Series
from ..store.records import log_tail, metric_record

_OVERLAP = 4096
"""Bytes of what was read before in which a ready line may begin."""
_LOOK = 1 << 20


class Outputs:
    """The logs of a run's tasks as they grow, and the ends of its tasks, which are told only
    when their output is here to the last byte."""

    def __init__(
        self,
        plan: Plan,
        logs: LogStore,
        links: Mapping[str, Link],
        series: Mapping[TaskId, Series],
        feed: Callable[[ev.Event], None],
        record: Callable[[dict[str, Any]], None],
    ) -> None:
        self._logs = logs
        self._links = links
        self._series = series
        self._feed = feed
        self._record = record
        self._hosts_of = {task.id: task.host for task in plan.tasks}
        self._extractors = {task.id: Extractor(plan.metrics_pattern) for task in plan.tasks}
        self._patterns: dict[TaskId, tuple[int, re.Pattern[bytes], bytes]] = {}
        self._exits: dict[TaskId, TaskFacts] = {}
        self._ends: dict[TaskId, TaskFacts] = {}
        self.last: dict[TaskId, float] = {}
        """When each task last wrote."""

    # --- growing --------------------------------------------------------------------------

    def grew(self, task: TaskId, data: bytes, now: float) -> None:
        """These bytes are on our disk; none, when only the size was told."""
        if data:
            self.last[task] = now
            self._look_for_metrics(task, data, now)
            self._look_for_pattern(task, data)
        if task in self._exits:
            self._tell_exit(task)

    def _look_for_metrics(self, task: TaskId, data: bytes, now: float) -> None:
        extractor = self._extractors[task]
        last = None
        for point in extractor.feed(data, now):
            self._series[task].add(point)
            last = point
        if last is not None:
            self._feed(ev.MetricSeen(now, task, last.values, extractor.rate))
            host = self._hosts_of[task]
            self._record(metric_record(now, task, host, last.values, extractor.rate))

    def await_line(self, task: TaskId, attempt: int, ready: LogMatches) -> None:
        """The attempt is ready when a line of its log matches."""
        self._patterns[task] = (attempt, re.compile(ready.pattern.encode()), b"")

    def look_again(self, plan: Plan, snapshot: Snapshot) -> None:
        """Attached while a task is awaited by its log: the line may have come meanwhile."""
        for view in snapshot.tasks:
            ready = plan.task(view.id).ready
            if view.state is TaskState.STARTING and isinstance(ready, LogMatches):
                self.await_line(view.id, view.attempt, ready)
                log = self._logs.open(view.id)
                self._look_for_pattern(view.id, log.read(max(0, log.size - _LOOK), _LOOK))

    def _look_for_pattern(self, task: TaskId, data: bytes) -> None:
        if task not in self._patterns:
            return
        attempt, pattern, before = self._patterns[task]
        seen = before + data
        if pattern.search(seen):
            del self._patterns[task]
            self._feed(ev.TaskReady(time.time(), task, attempt))
        else:
            self._patterns[task] = (attempt, pattern, seen[-_OVERLAP:])

    async def watch_silence(self, task: TaskId, seconds: float) -> None:
        """Says so when a task has written nothing for `seconds`."""
        began = time.time()
        while True:
            quiet = time.time() - max(began, self.last.get(task, 0.0))
            if quiet >= seconds:
                self._feed(ev.Silent(time.time(), task, quiet))
                return
            await asyncio.sleep(seconds - quiet)

    # --- ending ---------------------------------------------------------------------------

    def exited(self, facts: TaskFacts) -> None:
        """The agent says that the task has exited, and how much it had written by then."""
        self._exits[facts.task] = facts
        self._count_local(facts.task, facts.size)
        self._tell_exit(facts.task)

    def ended(self, facts: TaskFacts) -> None:
        """Nobody will write to the log of this attempt any more."""
        self._ends[facts.task] = facts
        self._count_local(facts.task, facts.size)

    def tell_exits(self) -> None:
        """The disk is full: the run goes on without what finds no room."""
        for task in list(self._exits):
            self._tell_exit(task)

    def is_whole(self, view: TaskView) -> bool:
        """The end of the last attempt's output is known, and all up to it is here."""
        end = self._ends.get(view.id)
        if end is None or end.attempt < view.attempts[-1].number or view.id in self._exits:
            return False
        return self._logs.open(view.id).size >= end.size

    def _count_local(self, task: TaskId, size: int) -> None:
        link = self._links[self._hosts_of[task]]
        if link.settings.local:
            link.grown(task, size)

    def _tell_exit(self, task: TaskId) -> None:
        facts = self._exits.get(task)
        if facts is None:
            return
        missing = self._logs.open(task).size < facts.size
        if missing and not self._links[self._hosts_of[task]].stuck:
            return
        del self._exits[task]
        tail = log_tail(self._logs.open(task))
        held = holder_words(facts.held)
        now, ended = time.time(), (facts.status, facts.signal)
        self._feed(ev.TaskExited(now, task, facts.attempt, *ended, held, tail))
