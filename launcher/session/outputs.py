"""Output and exits of tasks, as the launcher's loop hears them.

Bytes go to the run's `LogMonitor`; what it finds in them comes back here. The latest metrics of
each task are kept here, at most some tens a second; the run hears only that there are some.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import NoReturn

from ..cluster.readiness import Auto, LogMatches
from ..hosts.frames import TaskFacts
from ..hosts.link import Link
from ..ids import TaskId
from ..run import events as ev
from ..run.run import RunStateMachine
from ..run.snapshot import Metric, TaskView
from ..run.states import TaskState
from ..store.logs import LogStore
from ..store.metrics_file import NO_METRICS, LatestMetrics, count_of
from .log_monitor import Found, LogMonitor
from .stacks import look_after

METRIC_SECONDS = 1 / 30
_SILENCE_PACE = 1.0
SHOWN_SECONDS = 0.25
"""Between two times that new metrics, sizes and times of output are published."""


@dataclass
class _Silence:
    """Silence of a task after which it is reported."""

    limit: float
    last: float | None
    """Time of its last output that is known here."""
    seconds: float
    """Negative until the first look: that may come at once."""

    def counted(self, last: float | None) -> float:
        """Adds the time between two looks, or begins anew where there was output."""
        self.seconds = self.seconds + _SILENCE_PACE if last == self.last else 0.0
        self.last = last
        return self.seconds


class Outputs:
    """The logs of a run's tasks as they grow, and the ends of its tasks, which are told only
    when their output is here to the last byte, if the disk takes it."""

    def __init__(
        self,
        run: RunStateMachine,
        logs: LogStore,
        links: Mapping[str, Link],
        *,
        latest: Mapping[TaskId, LatestMetrics],
        feed: Callable[[ev.Event], None],
        metrics: Callable[[Metric], None],
        publish: Callable[[], None],
        trouble: Callable[[str], None],
        failed: Callable[[str, BaseException], NoReturn],
        silent: Callable[[TaskId], None] = lambda task: None,
    ) -> None:
        """`latest` are the metrics from before an attach; `metrics` gets each further line,
        `trouble` why bytes are not stored, `failed` what goes wrong here. `publish` is called when
        there are new figures."""
        self._run = run
        self._links = links
        self._feed = feed
        self._record = metrics
        self._latest = dict(latest)
        self._total_told: int | None = None
        self._publish = publish
        self._publishing = False
        self._trouble = trouble
        self._failed = failed
        self._silent = silent
        """Called some seconds before the silence of a watched task is reported."""
        self._hosts_of = {task.id: task.host for task in run.plan.tasks}
        self.monitor = LogMonitor(run.plan, logs, self._wake, partial(failed, "logs"))
        self._loop: asyncio.AbstractEventLoop | None = None
        self._woken = False
        self._metrics: dict[TaskId, tuple[float, Mapping[str, float], float | None]] = {}
        self._exits: dict[TaskId, TaskFacts] = {}
        self._tails: set[TaskId] = set()
        """Tasks whose last lines are being read."""
        self._ends: dict[TaskId, TaskFacts] = {}
        self._lost: dict[TaskId, int] = {}
        """Sizes up to which logs of this machine cannot be followed: somebody has removed them."""
        self._listeners: dict[str, Callable[[], None]] = {}
        self._silences: dict[TaskId, _Silence] = {}
        self._counting = False
        self.last: dict[TaskId, float] = {}
        """Time of each task's last output."""

    def begin(self) -> None:
        """Takes note of the running loop; called in it, before any output."""
        self._loop = asyncio.get_running_loop()
        views = self._run.views
        for task, latest in self._latest.items():
            if task in views.tasks:
                views.update_task(task, **latest.figures(views.tasks[task].last_output))
        for task in views.tasks:
            views.update_task(task, log_size=self.monitor.size(task))

    # --- what the monitor finds -----------------------------------------------------------

    def _call(self, function: Callable[[], None]) -> None:
        """Calls a function on the loop; from the monitor's thread."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(function)

    def _wake(self) -> None:
        if not self._woken:
            self._woken = True
            self._call(self._process_findings)

    def _process_findings(self) -> None:
        self._woken = False
        found = self.monitor.pop_found()
        try:
            self._handle(found)
        except Exception as error:
            self._failed("logs", error)

    def _handle(self, found: Found) -> None:
        for stored, count in found.stored.items():
            stored(count)
        self.last.update(found.wrote)
        for task, last in found.wrote.items():
            size = self.monitor.size(task)
            self._run.views.update_task(task, last_output=last, log_size=size)
        self._lost.update(found.lost)
        if found.wrote and not self._publishing:
            self._publishing = True
            asyncio.get_running_loop().call_later(SHOWN_SECONDS, self._show)
        if found.metrics:
            if not self._metrics:
                asyncio.get_running_loop().call_later(METRIC_SECONDS, self._publish_metrics)
            self._metrics.update(found.metrics)
        for task, attempt in found.ready:
            self._feed(ev.TaskReady(time.time(), task, attempt))
        if found.trouble:
            self._trouble(found.trouble)
        for task in found.wrote:
            if task in self._exits:
                self._check_exit(task)
            self._notify_host(task)

    def _show(self) -> None:
        self._publishing = False
        self._publish()

    def _publish_metrics(self) -> None:
        metrics, self._metrics = self._metrics, {}
        for task, (now, values, rate) in metrics.items():
            latest = self._latest.get(task, NO_METRICS).updated(now, values, rate)
            self._latest[task] = latest
            view = self._run.task(task)
            self._run.views.update_task(task, **latest.figures(view.last_output))
            named = (values.get("step"), values.get("loss"))
            self._record(Metric(task, view.host, values, rate, *named, time=now))
            total = count_of(values, "total")
            news = total is not None and total != self._total_told
            if news or self._awaits_metrics(task):
                self._total_told = total if news else self._total_told
                self._feed(ev.MetricsSeen(now, task, total))

    def _awaits_metrics(self, task: TaskId) -> bool:
        """A metric line changes the state of a task."""
        state, ready = self._run.task(task).state, self._run.plan.task(task).ready
        return state is TaskState.READY or (state is TaskState.STARTING and isinstance(ready, Auto))

    def await_line(self, started: ev.TaskStarted) -> None:
        """Attached while a task is awaited by its log: the line may have come meanwhile."""
        ready, view = self._run.plan.task(started.task).ready, self._run.task(started.task)
        awaited = view.state is TaskState.STARTING and view.attempt == started.attempt
        if awaited and isinstance(ready, LogMatches):
            since = started.log_start
            self.monitor.await_line(started.task, started.attempt, ready.pattern, since)

    def watch_silence(self, task: TaskId, seconds: float) -> bool:
        """Says so when a task has written nothing for `seconds`; True where the caller has to run
        `check_silences` for that."""
        self._silences[task] = _Silence(seconds, self.last.get(task), -_SILENCE_PACE)
        begins, self._counting = not self._counting, True
        return begins

    async def check_silences(self) -> None:
        """Counts the time for which watched tasks are silent, until none is left. Time in which
        nothing could be heard (a busy loop, Ctrl-Z, a lid) is none, whatever clocks say."""
        while self._silences:
            await asyncio.sleep(_SILENCE_PACE)
            stalled = []
            for task, silence in list(self._silences.items()):
                if self._run.task(task).state.ended:
                    del self._silences[task]
                    continue
                silent = silence.counted(self.last.get(task))
                if silent >= silence.limit:
                    stalled.append((self._silences.pop(task), task))
                if silent >= look_after(silence.limit) > silent - _SILENCE_PACE:
                    self._silent(task)
            for silence, task in stalled:
                self._feed(ev.OutputStalled(time.time(), task, silence.seconds))
                await asyncio.sleep(0)  # thousands may hang, and beats do not wait for them
        self._counting = False

    # --- ending ---------------------------------------------------------------------------

    def exited(self, facts: TaskFacts, *, at_once: bool) -> None:
        """The agent says that the task has exited, and how much it had written by then.
        `at_once`: nobody needs its last lines."""
        task = facts.task
        self._exits[task] = facts
        self._tails.discard(task)
        self._count_local(task, facts.size)
        if at_once:
            self._report_exit(task, facts, ())
        else:
            self._check_exit(task)

    def ended(self, facts: TaskFacts) -> None:
        """Nobody will write to the log of this attempt any more."""
        self._ends[facts.task] = facts
        self._count_local(facts.task, facts.size)
        self._notify_host(facts.task)

    async def report_exits(self) -> None:
        """The disk takes nothing: the run goes on without what finds no room, with the lines
        that are known."""
        if exits := dict(self._exits):
            lines = self.monitor.waiting_lines(exits)
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
        if end is None or end.attempt < view.attempts[-1].number or view.id in self._exits:
            return False
        return self._is_here(view.id, end.size)

    def is_cut(self, view: TaskView) -> bool:
        """The last bytes of a log of this machine are gone: somebody has removed the file."""
        return view.id in self._lost and self.monitor.size(view.id) < self._lost[view.id]

    def _is_here(self, task: TaskId, size: int) -> bool:
        """The log is here up to `size`, or nothing more can come."""
        return self.monitor.size(task) >= size or self._lost.get(task, -1) >= size

    def _count_local(self, task: TaskId, size: int) -> None:
        if self._links[self._hosts_of[task]].settings.local:
            self.monitor.grown(task, size)

    def _check_exit(self, task: TaskId) -> None:
        facts = self._exits[task]
        if task not in self._tails and self._is_here(task, facts.size):
            self._tails.add(task)
            told = partial(self._report_exit, task, facts)
            self.monitor.tail(task, lambda tail: self._call(partial(told, tail)))

    def _report_exit(self, task: TaskId, facts: TaskFacts, tail: tuple[str, ...]) -> None:
        if self._exits.get(task) is not facts:
            return  # told already
        del self._exits[task]
        self._tails.discard(task)
        self._notify_host(task)
        if task in self._metrics:
            self._publish_metrics()  # in the order in which it was written
        if not self._run.needs_tail(task, facts.attempt, facts.status):
            tail = ()
        held = facts.port_holder
        now, ended = time.time(), (facts.status, facts.signal)
        self._feed(ev.TaskExited(now, task, facts.attempt, *ended, held, tail))
