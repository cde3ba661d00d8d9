"""Asyncio shell around a run: feeds it events, carries its instructions out.

Lives on the launcher's own loop: the control loop. It beats, kills and hears receipts, so nothing
on it reads log text or touches a file; that is done by workers in threads of their own
(`log_monitor`, `store.run_writer`), which tell it what they have found. Everything that waits is
a task here that is kept and reaped; everything that decides is in `run`.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, NoReturn

from ..cluster.model import ClusterModel
from ..hosts.auth_prompt import PromptHandler
from ..ids import TaskId
from ..plan.plan import Resume, unset_names, unset_note
from ..printable import printable
from ..run import events as ev
from ..run.instructions import Instruction
from ..run.run import RunStateMachine
from ..run.snapshot import Metric, Receipt, RunView, Snapshot
from ..run.state import named
from ..run.states import Hang, Outcome, RunPhase
from ..run.views import Views
from ..slurm.job import slurm_job
from ..store.logs import LogStore
from ..store.metrics_file import latest_metrics
from ..store.run_writer import RunWriter
from ..store.stream import Line, Summary
from .allocation import Allocation
from .attach import StoredRun
from .connections import Connections
from .disk_watch import DiskWatch
from .executor import END, Executor
from .launch_preparation import LaunchPreparation
from .live_data import Forwarding, HostStats, Transfers
from .node_checks import name_for_nodes
from .outputs import Outputs
from .stacks import HangWatch, StackTaker
from .teardown import Teardown

Crash = Callable[[str, BaseException], NoReturn]
"""Ends the launcher; called with what was being done, and what nobody expected there."""
_STATS = "stats of hosts"
_LONGEST_TEXT = 1 << 16


class RunLoop:
    """Runs one run from connecting to the receipt.

    `publish` is called when the views have changed, with True for what a client must hear at once;
    `observe` gets every record; both are called on this loop and must only hand over.
    """

    def __init__(
        self,
        cluster: ClusterModel,
        run_id: str,
        logs: LogStore,
        *,
        publish: Callable[[bool], None],
        observe: Callable[[Line], None],
        writer: RunWriter,
        ask: PromptHandler | None = None,
        resume: Resume | None = None,
        past: StoredRun | None = None,
        died: str = "",
        end: bool = False,
        crash: Crash,
    ) -> None:
        """`writer` keeps the records; `past` is a run to be taken up, after a launcher that died
        as `died` says, and with `end` in order to end it. `crash` gets what nobody expected, in
        any thread, and ends this process."""
        self.run = (
            past.run if past else RunStateMachine(cluster, run_id, time.time(), resume=resume)
        )
        now = time.time()
        self._first: ev.Event = ev.Attached(now, past.complete) if past else ev.Begin(now)
        self._first_instructions = self.run.handle(self._first)
        self._past = past
        self._publish = publish
        self._observe = observe
        self._writer = writer
        self.connections = Connections(
            self.run,
            logs.folder,
            feed=self.feed,
            failed=crash,
            ask=ask,
            persistent=past is not None,
        )
        links, views = self.connections.links, self.run.views
        self.outputs = Outputs(
            self.run,
            logs,
            links,
            latest=latest_metrics(past.folder.metrics) if past else {},
            feed=self.feed,
            metrics=self._on_metric,
            publish=self._changed,
            trouble=lambda reason: self._disk.complain(reason),
            failed=crash,
            silent=lambda task: self.hangs.begin(Hang.AT_END, task),
        )
        self._disk = DiskWatch(self.outputs, writer, self.feed)
        self._transfers = Transfers(views, self._changed)
        self._forwarding = Forwarding(views, links, self.feed, self._changed)
        self._stats = HostStats(views, links, self._changed)
        self.stacks = StackTaker(self.run, links)
        self.hangs = HangWatch(self.stacks, logs.folder, self.outputs.last, self.feed)
        self._teardown = Teardown(
            self.run, logs.folder, links, self.outputs, self._transfers, self.feed, self._disk
        )
        engine = slurm_job(cluster, self.run.plan, self.connections.logins)
        self._allocation = (
            Allocation(self.run, engine, self.feed, attached=past is not None) if engine else None
        )
        welcomes = self.connections.welcomes
        self._executor = Executor(
            self.run,
            self.connections,
            self.outputs,
            LaunchPreparation(
                links,
                welcomes,
                self._transfers,
                self.feed,
                self.run.ports,
                name_for_nodes(cluster),
            ),
            self._teardown,
            feed=self.feed,
            spawn=self._spawn,
            allocation=self._allocation,
            hangs=self.hangs,
        )
        self._work: set[asyncio.Task[None]] = set()
        self._early: list[ev.Event] | None = []
        """Events that came before `main` had begun."""
        self._died, self._ends = died, end
        self._crash = crash
        self._over = asyncio.Event()
        self._end_is_last = False
        """The end of the stream has been written, and nothing behind it."""

    # --- life -----------------------------------------------------------------------------

    async def main(self) -> None:
        """Runs until the run has ended and all hosts are released."""
        self.outputs.begin()
        try:
            self._begin()
        except Exception as error:
            self._crash("start", error)
        await self._over.wait()
        await self._close()
        self.finish()

    def _begin(self) -> None:
        past, now = self._past, time.time()
        self._past = None
        early, self._early = self._early or [], None
        self._carry_out(self._first_instructions)
        for event in early:
            self.feed(event)
        if self._ends:
            self.feed(ev.LauncherFailed(now, self._died))
        elif self._died:
            self.feed(ev.NoteAdded(now, f"the launcher before this one has died: {self._died}"))
        for name, tasks in unset_names(self.run.plan.tasks, os.environ).items():
            start = "would be restarted without it" if past else "start without it"
            self.feed(ev.NoteAdded(now, f"{unset_note(name, tasks)} {start}"))
        self.connections.begin(self.outputs, self._on_listening)
        if self._allocation is not None and (self.run.awaits_nodes or self.run.nodes):
            self._spawn(self._allocation.supervise(), "allocation")
        self._spawn(self._stats.poll(), _STATS)
        self._spawn(self._disk.watch(), "disk")
        if any(host.local for host in self.run.plan.hosts):  # the network is no flood
            self.outputs.monitor.expect_floods()

    def feed(self, event: ev.Event) -> None:
        """Gives the run an event and does what it says; what is recorded comes after that."""
        if self._early is not None:
            self._early.append(event)
            return
        try:
            self._feed(event)
        except Exception as error:
            self._crash(type(event).__name__, error)

    def _feed(self, event: ev.Event) -> None:
        event = shown(event)
        if isinstance(event, ev.KillAll) and event.force:
            self._teardown.force()
        if self._allocation is not None:
            self._watch_allocation(self._allocation, event)
        self._carry_out(self.run.handle(event))
        if isinstance(event, ev.TaskStarted) and isinstance(self._first, ev.Attached):
            self.outputs.await_line(event)

    def _watch_allocation(self, allocation: Allocation, event: ev.Event) -> None:
        match event:
            case ev.HostLost() | ev.TaskExited():
                allocation.poll_soon()
            case ev.KillAll(force=True) if self.run.releasing:
                allocation.force()

    def _carry_out(self, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            self._executor.carry_out(instruction)
        self._changed()

    def _on_listening(self, task: TaskId) -> None:
        plan = self.run.plan.task(task)
        if plan.forward:
            self._spawn(self._forwarding.open(plan), f"forward of {task}")

    async def _close(self) -> None:
        self._executor.stop_timers()
        await self.stacks.aclose()
        await self.connections.aclose()
        rest = list(self._work)
        for task in rest:
            task.cancel()
        if rest:
            await asyncio.wait(rest, timeout=1.0)

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=name)
        self._work.add(task)
        task.add_done_callback(self._reap)
        return task

    def _reap(self, task: asyncio.Task[None]) -> None:
        self._work.discard(task)
        if task.get_name() == END:
            self._over.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            if task.get_name() == _STATS:  # nice to have: no reason to end anything
                self.feed(ev.NoteAdded(time.time(), f"no {_STATS} any more: {error!r}"))
            else:
                self._crash(task.get_name(), error)

    # --- what others see ------------------------------------------------------------------

    def _changed(self) -> None:
        """Records what is different now, and has it published."""
        try:
            self._record()
        except Exception as error:
            self._crash("records", error)

    def _record(self) -> None:
        views = self.run.views
        for task in self._unreachable_pages():
            views.update_task(task, url="")
        records = views.pop_changed(time.time())
        for record in records:
            self._put(record)
        # A client that hears nothing of a kill takes the launcher for dead.
        self._publish(any(isinstance(record, RunView | Receipt) for record in records))

    def _unreachable_pages(self) -> list[TaskId]:
        """Tasks that have ended and whose ports were forwarded."""
        forwarded = (task.id for task in self.run.plan.tasks if task.forward)
        views = (self.run.task(task) for task in forwarded)
        return [view.id for view in views if view.url and not view.state.live]

    def _put(self, line: Line) -> None:
        self._end_is_last = False
        if self.run.views.run.outcome is not Outcome.DETACHED:  # the record is another launcher's
            self._writer.put(line)
        self._observe(line)

    def _on_metric(self, metric: Metric) -> None:
        self._put(metric)
        self._publish(False)

    def refresh(self) -> Views:
        """The views, with figures that nobody tells of but that change with the time."""
        waiting = None
        if self.run.phase is RunPhase.STAGING:
            waiting = named(map(self._transfers.describe, self.run.unstaged_hosts))
        self.run.refresh_waiting(waiting)
        self._stats.note_heard()
        return self.run.views

    def snapshot(self) -> Snapshot:
        """The run as it stands."""
        return self.refresh().snapshot()

    def finish(self) -> Snapshot:
        """The run at its end, which is recorded, with what was said since it was recorded last."""
        final = self.snapshot()
        if final.outcome is not Outcome.DETACHED and not self._end_is_last:
            self.run.views.flush_figures()
            self._changed()
            self._put(Summary.of(final, time.time()))
            self._end_is_last = True
        return final


def shown(event: ev.Event) -> ev.Event:
    """An event whose texts are safe to show, but for facts, which go back to hosts as they are."""
    if isinstance(event, ev.HostsChecked):
        return event
    made: ev.Event = _shown(event)
    return made


def _shown(value: Any) -> Any:
    if type(value) is str:
        return printable(value, _LONGEST_TEXT)
    if type(value) is tuple:
        return tuple(map(_shown, value))
    if isinstance(value, Mapping):
        return {_shown(key): _shown(item) for key, item in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        before = {field.name: getattr(value, field.name) for field in fields(value)}
        after = {name: _shown(item) for name, item in before.items()}
        news = {name: item for name, item in after.items() if item != before[name]}
        return replace(value, **news) if news else value
    return value
