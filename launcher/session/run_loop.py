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
from contextlib import suppress
from dataclasses import replace
from typing import Any

from ..cluster.model import ClusterModel
from ..hosts.auth_prompt import PromptHandler
from ..ids import TaskId
from ..plan.plan import Resume, unset_names, unset_note
from ..run import events as ev
from ..run.instructions import Instruction
from ..run.run import RunStateMachine
from ..run.shutdown import KILL_PATIENCE
from ..run.snapshot import HostReceipt, HostView, Receipt, Snapshot, TaskView
from ..run.state import named
from ..run.states import Outcome, RunPhase
from ..slurm.job import slurm_job
from ..store.journal import as_stored
from ..store.logs import LogStore
from ..store.metrics_file import latest_metrics
from ..store.public_events import ChangeRecords, PublicEvent, metric_record
from ..store.run_writer import RunWriter
from .allocation import Allocation
from .attach import StoredRun
from .connections import Connections
from .disk_watch import DiskWatch
from .executor import END, Executor
from .launch_preparation import LaunchPreparation
from .live_data import Forwarding, HostStats, Transfers
from .node_checks import name_for_nodes
from .outputs import Outputs
from .teardown import Teardown

_STATS = "stats of hosts"


class RunLoop:
    """Runs one run from connecting to the receipt.

    `publish` is called when there is a new snapshot, `record` every event of the run as the
    public JSON object; both are called on this loop and must only hand over.
    """

    def __init__(
        self,
        cluster: ClusterModel,
        run_id: str,
        logs: LogStore,
        *,
        publish: Callable[[], None],
        record: Callable[[PublicEvent], None],
        writer: RunWriter,
        ask: PromptHandler | None = None,
        resume: Resume | None = None,
        past: StoredRun | None = None,
    ) -> None:
        """`writer` keeps the journal and the metrics; `past` is a run to be taken up."""
        self.run = (
            past.run if past else RunStateMachine(cluster, run_id, time.time(), resume=resume)
        )
        begin = ev.Begin(time.time(), resume)
        self._first = as_stored(ev.Attached(time.time(), past.complete) if past else begin)
        self._shown = self.run.snapshot()
        """The latest snapshot that could be made."""
        self._changes = ChangeRecords(self._shown if past else None)
        self._first_instructions = self.run.handle(self._first)
        self._cluster = cluster
        self._past = past
        self._logs = logs
        self._publish = publish
        self._record = record
        self._writer = writer
        self.connections = Connections(
            self.run,
            logs.folder,
            feed=self.feed,
            failed=self.fail,
            ask=ask,
            persistent=past is not None,
        )
        links = self.connections.links
        self.outputs = Outputs(
            self.run,
            logs,
            links,
            latest=latest_metrics(past.folder.metrics) if past else {},
            feed=self.feed,
            metrics=self._metrics,
            publish=publish,
            trouble=lambda reason: self._disk.complain(reason),
            failed=self.fail,
        )
        self._disk = DiskWatch(self.outputs, writer, self.feed)
        self._transfers = Transfers(self._transferred)
        self._forwarding = Forwarding(links, self.feed, publish)
        self._stats = HostStats(links, publish)
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
        )
        self._work: set[asyncio.Task[None]] = set()
        self._early: list[ev.Event] | None = []
        """Events that came before `main` had begun."""
        self._failure = ""
        self._over = asyncio.Event()
        self._told: str | None = None
        """Launcher's error in the last record of the journal; None: that is no run's end."""

    # --- life -----------------------------------------------------------------------------

    async def main(self) -> None:
        """Runs until the run has ended and all hosts are released."""
        self.outputs.begin()
        try:
            self._begin()
        except Exception as error:
            self.fail("start", error)
        try:
            await self._over.wait()
        finally:
            await self._close()
            self.final()

    def _begin(self) -> None:
        past, now = self._past, time.time()
        self._past = None
        early, self._early = self._early or [], None
        self._writer.journal(self._first, after=past.events if past else None)
        self._carry_out(self._first_instructions)
        for event in early:
            self.feed(event)
        for name, tasks in unset_names(self.run.plan.tasks, os.environ).items():
            start = "would be restarted without it" if past else "start without it"
            self.feed(ev.NoteAdded(now, f"{unset_note(name, tasks)} {start}"))
        self.connections.begin(self.outputs, self._on_listening, self._on_receipt)
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
            self.fail(type(event).__name__, error)

    def _feed(self, event: ev.Event) -> None:
        event = as_stored(event)
        self._writer.journal(event)
        self._told = None
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
            try:
                self._executor.carry_out(instruction)
            except Exception as error:
                self.fail(type(instruction).__name__, error)
        self._changed()

    def fail(self, where: str, error: BaseException) -> None:
        """Ends everything because something of the launcher itself is broken: the exit code is 4
        and it is said why. Ends in any case, whatever else is broken."""
        if self._failure:
            return
        self._failure = f"{where}: {type(error).__name__}: {error}"
        grace = self.run.plan.settings.grace
        try:
            self._feed(ev.LauncherFailed(time.time(), self._failure))
        except Exception:  # nothing can be decided any more: every host is told
            self._executor.drop_starts()
            self.connections.kill_everything(grace)
        asyncio.get_running_loop().call_later(grace + KILL_PATIENCE + 1.0, self._give_up)

    def _give_up(self) -> None:
        if self.run.phase is not RunPhase.ENDED:
            self._over.set()

    def _on_receipt(self) -> None:
        """Ends when every host has given its receipt, where nothing decides any more."""
        if self._failure and self.run.phase not in (RunPhase.KILLING, RunPhase.ENDED):
            if self.connections.receipts.keys() >= set(self._contacted):
                self._over.set()

    @property
    def _contacted(self) -> list[str]:
        """Hosts whose agents have greeted us or, as the journal says, an earlier launcher."""
        return list(dict.fromkeys([*self.run.contacted_hosts, *self.connections.contacted]))

    def _on_listening(self, task: TaskId) -> None:
        plan = self.run.plan.task(task)
        if plan.forward:
            self._spawn(self._forwarding.open(plan), f"forward of {task}")

    async def _close(self) -> None:
        self._executor.stop_timers()
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
                self.fail(task.get_name(), error)

    # --- what others see ------------------------------------------------------------------

    def _changed(self) -> None:
        """Records what is different now, and has it published."""
        self._record_changes(*self.run.pop_changed())

    def _transferred(self, host: str) -> None:
        self._record_changes([self.run.host(host)], [])

    def _record_changes(self, hosts: list[HostView], tasks: list[TaskView]) -> None:
        hosts = [self._transfers.added_to(view) for view in hosts]
        for record in self._changes.changes(self.run.summary(), hosts, tasks, time.time()):
            self._record(record)
        self._publish()

    def snapshot(self) -> Snapshot:
        """The run with what only the shell knows: metrics, sizes, progress, stats, forwards."""
        now = self._with_progress(self.run.snapshot())
        views = (self.outputs.added_to(view) for view in now.tasks)
        tasks = tuple(self._forwarding.added_to(view) for view in views)
        live = {view.id for view in now.tasks if view.state.live}
        hosts = tuple(self._stats.added_to(view, live) for view in now.hosts)
        self._shown = replace(now, tasks=tasks, hosts=hosts)
        return self._shown

    def final(self, error: BaseException | None = None) -> Snapshot:
        """The run at its end, whatever broke before (`error` ended the loop), and the last record
        of its journal, unless this launcher was to take the run up and did not begin."""
        final = self._final_snapshot(error)
        over = final.state is RunPhase.ENDED and final.outcome is not Outcome.DETACHED
        if over and self._past is None and final.launcher_error != self._told:
            self._told = final.launcher_error
            self._writer.final(final)
        return final

    def _final_snapshot(self, error: BaseException | None) -> Snapshot:
        failure = self._failure or (f"{type(error).__name__}: {error}" if error else "")
        try:
            now = self.snapshot()
        except Exception as broken:
            now = self._shown
            with suppress(Exception):
                now = self.run.snapshot()
            failure = failure or f"snapshot: {type(broken).__name__}: {broken}"
        if now.state is RunPhase.ENDED and (now.launcher_error or not failure):
            return now
        receipts = self.connections.receipts
        confirmed = tuple(receipts.get(name, HostReceipt(name)) for name in self._contacted)
        return replace(
            now,
            state=RunPhase.ENDED,
            outcome=now.outcome or Outcome.FAILED,
            exit_code=4,
            ended=now.ended or time.time(),
            receipt=now.receipt or Receipt(confirmed),
            launcher_error=failure,
        )

    def _with_progress(self, now: Snapshot) -> Snapshot:
        hosts = tuple(self._transfers.added_to(view) for view in now.hosts)
        waiting = now.waiting
        if now.state is RunPhase.STAGING:
            waiting = named(map(self._transfers.describe, self.run.unstaged_hosts))
        return replace(now, hosts=hosts, waiting=waiting)

    def _metrics(
        self, now: float, task: TaskId, values: Mapping[str, float], rate: float | None
    ) -> None:
        self._record(metric_record(now, task, self.run.task(task).host, values, rate))
        self._writer.metrics(now, task, values, rate)
