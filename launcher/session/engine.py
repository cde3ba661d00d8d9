"""The asyncio shell around a run: feeds it events, carries its instructions out.

Lives on the launcher's own loop, in the launcher's own thread (`session`): the control loop. It
beats, kills and hears receipts, so nothing on it reads log text or touches a file; that is done
by workers in threads of their own (`log_monitor`, `store.runs.Journal`), which tell it what they
have found. Everything that waits is a task here that is kept and reaped; everything that decides
is in `run`.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from typing import Any

from ..agent import requests
from ..agent.messages import (
    Exited,
    KillReceipt,
    Listening,
    Message,
    Note,
    OutputEnded,
    Started,
    TaskFacts,
    Welcome,
)
from ..cluster.spec import Cluster
from ..errors import HostError
from ..hosts.handshake import link_settings
from ..hosts.link import Link
from ..hosts.port_owner import describe_owner
from ..hosts.ssh import PromptHandler, SshConnector
from ..hosts.transport_factory import transport_factory
from ..ids import TaskId, tag
from ..plan.environment import unset_names, unset_note
from ..plan.plan import HostPlan, LogMatches, Plan, TaskPlan
from ..run import events as ev
from ..run.ending import KILL_PATIENCE
from ..run.run import Run
from ..run.snapshot import HostReceipt, Receipt, Snapshot, Survivor, TaskView
from ..run.states import Outcome, RunState
from ..store.logs import LogStore
from ..store.metrics import Series
from ..store.records import changes
from ..store.replay import Replay
from .elsewhere import look_elsewhere
from .figures import Figures
from .leaving import Leaving
from .outputs import Outputs
from .readying import Readying

PUBLISH_SECONDS = 1 / 30
_WATCH_SECONDS = 0.25
_CLOSE_SECONDS = 8.0
_END = "end"
_FIGURES = "figures of hosts"


class Engine:
    """Runs one run from connecting to the receipt.

    `publish` gets a new snapshot (at most 30 a second), `record` every event of the run as the
    public JSON object; both are called on this loop and must only hand over.
    """

    def __init__(
        self,
        cluster: Cluster,
        plan: Plan,
        logs: LogStore,
        *,
        publish: Callable[[Snapshot], None],
        record: Callable[[dict[str, Any]], None],
        ask: PromptHandler | None = None,
        resume: str | None = None,
        past: Replay | None = None,
        unrecorded: Callable[[], str] = str,
    ) -> None:
        """`unrecorded` says why records wait for the disk, if they do."""
        self.run = Run.attach(plan, past.snapshot, past.met) if past else Run(plan, time.time())
        self.series = past.series if past else {task.id: Series() for task in plan.tasks}
        self._attached = past is not None
        self._began = time.time()
        self._logs = logs
        self._publish = publish
        self._record = record
        self._logins = SshConnector(ask)
        self._links: dict[str, Link] = {}
        self._link_tasks: dict[str, asyncio.Task[None]] = {}
        self._numbers = {task.id: number for number, task in enumerate(plan.tasks)}
        self.outputs = Outputs(
            plan,
            logs,
            self._links,
            self.series,
            feed=self.feed,
            record=record,
            trouble=self._log_trouble,
            failed=self.fail,
        )
        self._readying = Readying(
            cluster, self._links, self.feed, resume=resume, ports=past.ports if past else {}
        )
        self._leaving = Leaving(
            self.run, logs, self._links, self.outputs, self.feed, lambda: self.stalled
        )
        self._figures = Figures(self._links, self._publish_soon)
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._work: set[asyncio.Task[None]] = set()
        self._forwarded: dict[TaskId, int] = {}
        """The ports of this machine's loopback that lead to tasks."""
        self._let_go: list[str] = []
        self._unrecorded = unrecorded
        self._receipts: dict[str, HostReceipt] = {}
        """The last receipt of each host for everything, whatever the run makes of it."""
        self._failure = ""
        self._grace = plan.settings.grace
        self.detaching = False
        """A launcher that was started from here is to take over."""
        self._over = asyncio.Event()
        self._publishing = False
        self._last_full = 0.0
        self._said_unrecorded = False
        self._written = self.run.snapshot()

    # --- life -----------------------------------------------------------------------------

    async def main(self) -> None:
        """Runs until the run has ended and all hosts are let go."""
        self.outputs.begin()
        try:
            self._begin()
        except Exception as error:
            self.fail("start", error)
        try:
            await self._over.wait()
        finally:
            await self._close()

    def _begin(self) -> None:
        self._record_changes(None, self._written)
        self.feed(ev.Begin(time.time()))
        for name, tasks in unset_names(self.run.plan.tasks, os.environ).items():
            start = "would be restarted without it" if self._attached else "start without it"
            self.feed(ev.Noted(time.time(), f"{unset_note(name, tasks)} {start}"))
        for host in self.run.plan.hosts:
            self._connect(host)
        if self._attached:
            self.outputs.look_again(self.run.plan, self.run.snapshot())
        self._spawn(self._figures.poll(), _FIGURES)
        self._spawn(self._watch_disk(), "disk")
        if any(host.ssh is None for host in self.run.plan.hosts):  # the network is no flood
            self.outputs.monitor.expect_floods()

    def feed(self, event: ev.Event) -> None:
        """Gives the run an event and does what it says; what is recorded comes after that."""
        try:
            self._feed(event)
        except Exception as error:
            self.fail(type(event).__name__, error)

    def _feed(self, event: ev.Event) -> None:
        if isinstance(event, ev.KillAll) and self.run.state is RunState.ENDED:
            self._leaving.hurry()
        for instruction in self.run.handle(event):
            try:
                self._carry_out(instruction)
            except Exception as error:
                self.fail(type(instruction).__name__, error)
        after = self.run.snapshot()
        before, self._written = self._written, after
        self._record_changes(before, after)
        self._publish_soon()

    def fail(self, where: str, error: BaseException) -> None:
        """Something of the launcher itself is broken: everything is ended, the exit code is 4,
        and it is said why. Ends in any case, whatever else is broken."""
        if self._failure:
            return
        self._failure = f"{where}: {type(error).__name__}: {error}"
        grace = self._grace
        try:
            self._feed(ev.LauncherFailed(time.time(), self._failure))
        except Exception:  # nothing can be decided any more: every host is told
            for link in self._links.values():
                link.send(requests.Kill(0, None, grace))
        asyncio.get_running_loop().call_later(grace + KILL_PATIENCE + 1.0, self._give_up)

    def _give_up(self) -> None:
        if self.run.state is not RunState.ENDED:
            self._over.set()

    def _look_broken(self) -> None:
        """Where nothing decides any more, it is over when every host has given its receipt."""
        if self._failure and self.run.state not in (RunState.KILLING, RunState.ENDED):
            met = {name for name, link in self._links.items() if link.sessions}
            if self._receipts.keys() >= met:
                self._over.set()

    @property
    def stalled(self) -> bool:
        """Our disk is full, or does not answer."""
        return self.outputs.monitor.stalled or bool(self._unrecorded())

    async def _watch_disk(self) -> None:
        """Says so when the disk takes nothing, and goes on without it."""
        while True:
            await asyncio.sleep(_WATCH_SECONDS)
            if self.outputs.monitor.stalled:
                self._log_trouble("the disk does not answer")
                self.outputs.tell_exits()
            trouble = self._unrecorded()
            if trouble and not self._said_unrecorded:
                self.feed(ev.Noted(time.time(), f"events are not stored for now: {trouble}"))
            self._said_unrecorded = bool(trouble)

    def snapshot(self) -> Snapshot:
        """The run with what only the shell knows: sizes, silence, stats, forwards."""
        now = self.run.snapshot()
        tasks = tuple(
            replace(
                view,
                last_output=self.outputs.last.get(view.id, view.last_output),
                log_size=self.outputs.monitor.size(view.id),
                url=self._url(view),
            )
            for view in now.tasks
        )
        live = {view.id for view in now.tasks if view.state.live}
        hosts = tuple(self._figures.added_to(view, live) for view in now.hosts)
        return replace(now, tasks=tasks, hosts=hosts)

    def final(self, error: BaseException | None = None) -> Snapshot:
        """The run at its end, whatever broke before; `error` ended the loop."""
        failure = self._failure or (f"{type(error).__name__}: {error}" if error else "")
        try:
            now = self.snapshot()
        except Exception as broken:
            now = self._written
            failure = failure or f"snapshot: {type(broken).__name__}: {broken}"
        if now.state is RunState.ENDED and (now.launcher_error or not failure):
            return now
        met = [name for name, link in self._links.items() if link.sessions]
        receipts = tuple(self._receipts.get(name, HostReceipt(name)) for name in met)
        return replace(
            now,
            state=RunState.ENDED,
            outcome=now.outcome or Outcome.FAILED,
            exit_code=4,
            ended=now.ended or time.time(),
            receipt=now.receipt or Receipt(receipts),
            launcher_error=failure,
        )

    async def _close(self) -> None:
        for handle in self._timers.values():
            handle.cancel()
        closing = [asyncio.create_task(link.aclose()) for link in self._links.values()]
        if closing:
            await asyncio.wait(closing, timeout=_CLOSE_SECONDS)
        rest = [*self._work, *self._link_tasks.values(), *closing]
        for task in rest:
            task.cancel()
        if rest:
            await asyncio.wait(rest, timeout=1.0)
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self._logins.aclose()

    def _spawn(self, work: Coroutine[Any, Any, None], what: str) -> None:
        task = asyncio.create_task(work, name=what)
        self._work.add(task)
        task.add_done_callback(self._reap)

    def _reap(self, task: asyncio.Task[None]) -> None:
        self._work.discard(task)
        if task.get_name() == _END:
            self._over.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            if task.get_name() == _FIGURES:  # nice to have: no reason to end anything
                self.feed(ev.Noted(time.time(), f"no {_FIGURES} any more: {error!r}"))
            else:
                self.fail(task.get_name(), error)

    def _publish_soon(self) -> None:
        if not self._publishing:
            self._publishing = True
            asyncio.get_running_loop().call_later(PUBLISH_SECONDS, self._publish_now)

    def _publish_now(self) -> None:
        self._publishing = False
        try:
            self._publish(self.snapshot())
        except Exception as error:
            self.fail("snapshot", error)

    def _record_changes(self, before: Snapshot | None, after: Snapshot) -> None:
        for record in changes(before, after, time.time()):
            self._record(record)

    # --- links ----------------------------------------------------------------------------

    def _connect(self, host: HostPlan) -> None:
        link = Link(
            link_settings(self.run.plan, host, self._logs.folder, persistent=self._attached),
            transport_factory(host, self._logins),
            self.outputs.monitor,
            self,
        )
        self._links[host.name] = link
        self._link_tasks[host.name] = asyncio.create_task(link.run())
        self._link_tasks[host.name].add_done_callback(
            lambda task: self._link_ended(host.name, task)
        )

    def _link_ended(self, host: str, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(f"link to {host}", error)

    def link_up(self, host: str, welcome: Welcome) -> None:
        self._readying.welcomes[host] = welcome
        link = self._links[host]
        for task in self.run.plan.on_host(host):
            link.follow(task.id, self._numbers[task.id], task.log_limit)
        held = tuple({"task": str(one.task), "attempt": one.attempt} for one in welcome.tasks)
        ended = welcome.previous_exit
        self.feed(ev.HostUp(time.time(), host, held, ended.text if ended else ""))
        for facts in welcome.tasks:
            self._take_facts(facts)

    def _take_facts(self, facts: TaskFacts) -> None:
        """What an agent holds after a cut, as if it had just said so."""
        now, task = time.time(), facts.task
        if facts.pid:
            self.feed(ev.TaskStarted(now, task, facts.attempt, facts.pid, facts.began_at))
        if facts.listening:
            self._listens(task, facts.attempt)
        if facts.ended:
            self._exited(facts)
        if facts.eof:
            self.outputs.ended(facts)

    def _exited(self, facts: TaskFacts) -> None:
        killing = self.run.state in (RunState.KILLING, RunState.ENDED)
        self.outputs.exited(facts, at_once=killing)

    def link_lost(self, host: str, reason: str) -> None:
        link = self._links[host]
        until = time.time() + self.run.plan.settings.lease
        until -= time.monotonic() - link.last_heard if link.last_heard else 0.0
        self.feed(ev.HostLost(time.time(), host, reason, until))

    def link_refused(self, host: str, error: HostError) -> None:
        self.feed(ev.HostRefused(time.time(), host, error.reason))

    def link_superseded(self, host: str, by: str) -> None:
        self.feed(ev.Superseded(time.time(), host, by))

    def _log_trouble(self, reason: str) -> None:
        now = time.monotonic()
        if now - self._last_full > 30 or not self._last_full:
            self._last_full = now
            self.feed(ev.Noted(time.time(), f"log not stored here for now: {reason}"))

    # --- what agents say ------------------------------------------------------------------

    def agent_said(self, host: str, message: Message) -> None:
        now = time.time()
        match message:
            case KillReceipt() as receipt:
                self._receipt(host, receipt)
            case Note(text=text):
                self.feed(ev.Noted(now, f"{host}: {text}"))
            case Started() as facts:
                held = describe_owner(facts.port_owner)
                self.feed(
                    ev.TaskStarted(
                        now,
                        facts.task,
                        facts.attempt,
                        facts.pid,
                        facts.began_at,
                        facts.error,
                        held,
                    )
                )
                if facts.ended and not facts.error:
                    self._exited(facts)
            case Listening() as facts:
                self._listens(facts.task, facts.attempt)
            case Exited() as facts:
                self._exited(facts)
            case OutputEnded() as facts:
                self.outputs.ended(facts)
                for size, why in ((facts.lost, "the disk there is full"), (facts.cut, "log_limit")):
                    if size:
                        text = f"{facts.task}: {size} bytes of its log were dropped on {host}"
                        self.feed(ev.Noted(now, f"{text} ({why})"))

    def _receipt(self, host: str, said: KillReceipt) -> None:
        receipt = HostReceipt(
            host,
            signalled=said.signalled,
            survivors=tuple(Survivor(one.pid, one.command, one.state) for one in said.survivors),
            confirmed=said.confirmed,
            seconds=said.seconds,
        )
        if said.doubt:
            self.feed(ev.Noted(time.time(), f"{host}: not confirmed: {said.doubt}"))
        if said.tasks is None and not said.ids:
            return  # nobody has asked: an agent that acted by itself, as its tasks' ends tell
        if said.tasks is None:
            self._receipts[host] = receipt
        self.feed(ev.Receipted(time.time(), receipt, said.tasks))
        self._look_broken()

    # --- instructions ---------------------------------------------------------------------

    def _carry_out(self, what: ev.Instruction) -> None:
        match what:
            case ev.CheckHosts(ports):
                self._spawn(self._check_hosts(ports), "check of hosts")
            case ev.StageHost(host):
                work = self._readying.stage(self.run.plan, self.run.plan.host(host))
                self._spawn(work, f"files to {host}")
            case ev.StartTask(task, attempt):
                self._start(task, attempt)
            case ev.KillHost(host, tasks, grace):
                named = None if tasks is None else tuple(tasks)
                if host in self._links:  # else it has not been tried yet, and is told when it is up
                    self._links[host].send(requests.Kill(0, named, grace))
            case ev.SetTimer(name, seconds):
                self._set_timer(name, seconds)
            case ev.WatchSilence(task_id, seconds):
                self._spawn(self.outputs.watch_silence(task_id, seconds), "silence")
            case ev.LeaveHost(host):
                self._let_go.append(host)
            case ev.LookElsewhere(by):
                self._spawn(self._look_elsewhere(by), "other launcher")
            case ev.End():
                self._spawn(self._finish(), _END)

    def _set_timer(self, name: str, seconds: float) -> None:
        if name in self._timers:
            self._timers[name].cancel()

        def fire() -> None:
            self._timers.pop(name, None)
            self.feed(ev.Timer(time.time(), name))

        self._timers[name] = asyncio.get_running_loop().call_later(seconds, fire)

    def _start(self, task: TaskPlan, attempt: int) -> None:
        if isinstance(task.ready, LogMatches):
            self.outputs.monitor.await_line(task.id, attempt, task.ready.pattern)
        secrets = {name: os.environ[name] for name in task.env_from if name in os.environ}
        if attempt > 1:  # the shell that attached may not have what the first one had
            for name in unset_names([task], os.environ):
                text = f"{unset_note(name, [task.id])} restarts without it"
                self.feed(ev.Noted(time.time(), text))
        argv = list(task.argv)
        if task.setup:
            argv = ["/bin/sh", "-c", f'{task.setup}\nexec "$@"', "tfmux", *argv]
        own = {"TFMUX_TASK": tag(self.run.plan.run_id, task.id, attempt)}
        start = requests.Start(
            task=task.id,
            attempt=attempt,
            argv=tuple(argv),
            env={**task.env, **secrets, **own},
            cwd=task.cwd,
            log_limit=task.log_limit,
            port=task.port,
            pty=task.pty,
        )
        self._links[task.host].send(start)

    async def _check_hosts(self, ports: bool) -> None:
        """The blocking part of the preflight: ports; then the final plan."""
        plan = await self._readying.check(self.run.plan, ports=ports)
        if plan is not None:
            promised = self._readying.promised(plan.run_id)
            self.feed(ev.Checked(time.time(), plan))
            self._record({"time": time.time(), "event": "run", "state": "planned", **promised})

    def _listens(self, task: TaskId, attempt: int) -> None:
        self.feed(ev.TaskReady(time.time(), task, attempt))
        if self.run.plan.task(task).forward:
            self._spawn(self._forward(task), f"forward of {task}")

    def _url(self, view: TaskView) -> str:
        port = self._forwarded.get(view.id)
        return f"http://127.0.0.1:{port}/" if port and view.state.live else ""

    async def _forward(self, task: TaskId) -> None:
        plan = self.run.plan.task(task)
        if plan.port is None:
            return
        try:
            wanted = self._forwarded.get(task, 0)
            port = await self._links[plan.host].forward(plan.port, wanted)
        except (HostError, OSError) as error:
            self.feed(ev.Noted(time.time(), f"{task} is not forwarded: {error}"))
            return
        if port != wanted:
            self._forwarded[task] = port
            self.feed(ev.Noted(time.time(), f"{task} is at http://127.0.0.1:{port}/"))
        self._publish_soon()

    # --- the end --------------------------------------------------------------------------

    async def _look_elsewhere(self, by: str) -> None:
        """What became of the run under the launcher that has it now."""
        if self.detaching:
            event = ev.LookedElsewhere(time.time(), by)
        else:
            event = await look_elsewhere(self.run.plan, self._logs.folder, by, self._began)
        self.feed(event)

    async def _finish(self) -> None:
        """Collects what is left of the logs and takes our folders off the hosts."""
        plan, tasks = self.run.plan, self._link_tasks
        leaves = (self._leaving.leave(plan.host(host), tasks[host]) for host in self._let_go)
        for failed in await asyncio.gather(*leaves, return_exceptions=True):
            if isinstance(failed, Exception):
                self.fail("letting go of hosts", failed)
        if self.run.snapshot().outcome is Outcome.DETACHED:
            for link in self._links.values():
                link.hand_over()
