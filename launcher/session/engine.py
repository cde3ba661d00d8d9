"""The asyncio shell around a run: feeds it events, carries its instructions out.

Lives on the launcher's own loop, in the launcher's own thread (`session`). Everything that
waits is a task here that is kept and reaped; everything that decides is in `run`.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

from ..agent import wire
from ..cluster.spec import Cluster
from ..errors import HostError
from ..hosts.doors import door, link_settings
from ..hosts.holders import holder_words
from ..hosts.link import Link
from ..hosts.messages import (
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
from ..hosts.ssh import Ask, Logins
from ..ids import TaskId, tag
from ..plan.plan import HostPlan, LogMatches, Plan, TaskPlan
from ..run import events as ev
from ..run.run import Run
from ..run.snapshot import HostReceipt, Snapshot, Survivor, TaskView
from ..run.states import Outcome, RunState
from ..store.logs import LogStore, expect_floods
from ..store.metrics import Series
from ..store.records import changes
from ..store.replay import Replay
from .figures import Figures
from .leaving import Leaving
from .outputs import Outputs
from .readying import Readying

PUBLISH_SECONDS = 1 / 30


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
        ask: Ask | None = None,
        resume: str | None = None,
        past: Replay | None = None,
    ) -> None:
        self.run = Run.attach(plan, past.snapshot, past.met) if past else Run(plan, time.time())
        self.series = past.series if past else {task.id: Series() for task in plan.tasks}
        self._attached = past is not None
        self._logs = logs
        self._publish = publish
        self._record = record
        self._logins = Logins(ask)
        self._links: dict[str, Link] = {}
        self._link_tasks: dict[str, asyncio.Task[None]] = {}
        self._numbers = {task.id: number for number, task in enumerate(plan.tasks)}
        self._outputs = Outputs(plan, logs, self._links, self.series, self.feed, record)
        self._readying = Readying(
            cluster, self._links, self.feed, resume=resume, ports=past.ports if past else {}
        )
        self._leaving = Leaving(self.run, logs, self._links, self._outputs, self.feed)
        self._figures = Figures(self._links, self._publish_soon)
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._work: set[asyncio.Task[None]] = set()
        self._forwarded: dict[TaskId, int] = {}
        """The ports of this machine's loopback that lead to tasks."""
        self._let_go: list[str] = []
        self._over = asyncio.Event()
        self._publishing = False
        self._last_full = 0.0
        self._written = self.run.snapshot()

    # --- life -----------------------------------------------------------------------------

    async def main(self) -> None:
        """Runs until the run has ended and all hosts are let go."""
        self._record_changes(None, self._written)
        self.feed(ev.Begin(time.time()))
        for host in self.run.plan.hosts:
            self._connect(host)
        if self._attached:
            self._outputs.look_again(self.run.plan, self.run.snapshot())
        self._spawn(self._figures.poll())
        if any(host.ssh is None for host in self.run.plan.hosts):  # the network is no flood
            self._spawn(asyncio.to_thread(expect_floods))
        try:
            await self._over.wait()
        finally:
            await self._close()

    def feed(self, event: ev.Event) -> None:
        """Gives the run an event and does what it says."""
        if isinstance(event, ev.KillAll) and self.run.state is RunState.ENDED:
            self._leaving.hurry()
        instructions = self.run.handle(event)
        after = self.run.snapshot()
        self._record_changes(self._written, after)
        self._written = after
        for instruction in instructions:
            self._carry_out(instruction)
        self._publish_soon()

    def snapshot(self) -> Snapshot:
        """The run with what only the shell knows: sizes, silence, stats, forwards."""
        now = self.run.snapshot()
        tasks = tuple(
            replace(
                view,
                last_output=self._outputs.last.get(view.id, view.last_output),
                log_size=self._logs.open(view.id).size,
                url=self._url(view),
            )
            for view in now.tasks
        )
        live = {view.id for view in now.tasks if view.state.live}
        hosts = tuple(self._figures.added_to(view, live) for view in now.hosts)
        return replace(now, tasks=tasks, hosts=hosts)

    async def _close(self) -> None:
        for handle in self._timers.values():
            handle.cancel()
        for link in self._links.values():
            await link.aclose()
        for task in [*self._work, *self._link_tasks.values()]:
            task.cancel()
        await asyncio.gather(*self._work, *self._link_tasks.values(), return_exceptions=True)
        await self._logins.aclose()
        self._logs.close()
        self._publish(self.snapshot())

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._work.add(task)
        task.add_done_callback(self._reap)

    def _reap(self, task: asyncio.Task[None]) -> None:
        self._work.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.feed(ev.Noted(time.time(), f"internal error: {type(error).__name__}: {error}"))

    def _publish_soon(self) -> None:
        if not self._publishing:
            self._publishing = True
            asyncio.get_running_loop().call_later(PUBLISH_SECONDS, self._publish_now)

    def _publish_now(self) -> None:
        self._publishing = False
        self._publish(self.snapshot())

    def _record_changes(self, before: Snapshot | None, after: Snapshot) -> None:
        for record in changes(before, after, time.time()):
            self._record(record)

    # --- links ----------------------------------------------------------------------------

    def _connect(self, host: HostPlan) -> None:
        link = Link(
            link_settings(self.run.plan, host, self._logs.folder, persistent=self._attached),
            door(host, self._logins),
            self._logs,
            self,
        )
        self._links[host.name] = link
        self._link_tasks[host.name] = asyncio.create_task(link.run())
        self._link_tasks[host.name].add_done_callback(
            lambda task: self._link_ended(host.name, task)
        )

    def _link_ended(self, host: str, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            reason = f"{type(error).__name__}: {error}"
            self.feed(ev.HostRefused(time.time(), host, reason))

    def link_up(self, host: str, welcome: Welcome) -> None:
        self._readying.welcomes[host] = welcome
        link = self._links[host]
        for task in self.run.plan.on_host(host):
            link.follow(task.id, self._numbers[task.id], task.log_limit)
        held = tuple({"task": str(one.task), "attempt": one.attempt} for one in welcome.tasks)
        self.feed(ev.HostUp(time.time(), host, held, welcome.was))
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
            self._outputs.exited(facts)
        if facts.eof:
            self._outputs.ended(facts)

    def link_lost(self, host: str, reason: str) -> None:
        link = self._links[host]
        until = time.time() + self.run.plan.settings.lease
        until -= time.monotonic() - link.last_heard if link.last_heard else 0.0
        self.feed(ev.HostLost(time.time(), host, reason, until))

    def link_refused(self, host: str, error: HostError) -> None:
        self.feed(ev.HostRefused(time.time(), host, error.reason))

    def link_superseded(self, host: str, by: str) -> None:
        self.feed(ev.Superseded(time.time(), host, by))

    def disk_full(self, reason: str) -> None:
        now = time.monotonic()
        if now - self._last_full > 30 or not self._last_full:
            self._last_full = now
            self.feed(ev.Noted(time.time(), f"log not stored here for now: {reason}"))
        self._outputs.tell_exits()

    # --- what agents say ------------------------------------------------------------------

    def agent_said(self, host: str, message: Message) -> None:
        now = time.time()
        match message:
            case KillReceipt() as receipt:
                self._receipt(host, receipt)
            case Note(text=text):
                self.feed(ev.Noted(now, f"{host}: {text}"))
            case Started() as facts:
                held = holder_words(facts.held)
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
                    self._outputs.exited(facts)
            case Listening() as facts:
                self._listens(facts.task, facts.attempt)
            case Exited() as facts:
                self._outputs.exited(facts)
            case OutputEnded() as facts:
                self._outputs.ended(facts)
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
        self.feed(ev.Receipted(time.time(), receipt, said.tasks))

    def log_grew(self, task: TaskId, data: bytes, now: float) -> None:
        self._outputs.grew(task, data, now)
        self._publish_soon()

    # --- instructions ---------------------------------------------------------------------

    def _carry_out(self, what: ev.Instruction) -> None:
        match what:
            case ev.CheckHosts(ports):
                self._spawn(self._check_hosts(ports))
            case ev.StageHost(host):
                self._spawn(self._readying.stage(self.run.plan, self.run.plan.host(host)))
            case ev.StartTask(task, attempt):
                self._start(task, attempt)
            case ev.KillHost(host, tasks, grace):
                names = None if tasks is None else [str(task) for task in tasks]
                body = {"id": 0, "tasks": names, "grace": grace}
                if host in self._links:  # else it has not been tried yet, and is told when it is up
                    self._links[host].send(wire.KILL, body)
            case ev.SetTimer(name, seconds):
                self._set_timer(name, seconds)
            case ev.WatchSilence(task_id, seconds):
                self._spawn(self._outputs.watch_silence(task_id, seconds))
            case ev.LeaveHost(host):
                self._let_go.append(host)
            case ev.End():
                self._spawn(self._finish())

    def _set_timer(self, name: str, seconds: float) -> None:
        if name in self._timers:
            self._timers[name].cancel()

        def fire() -> None:
            self._timers.pop(name, None)
            self.feed(ev.Timer(time.time(), name))

        self._timers[name] = asyncio.get_running_loop().call_later(seconds, fire)

    def _start(self, task: TaskPlan, attempt: int) -> None:
        if isinstance(task.ready, LogMatches):
            self._outputs.await_line(task.id, attempt, task.ready)
        secrets = {name: os.environ[name] for name in task.env_from if name in os.environ}
        argv = list(task.argv)
        if task.setup:
            argv = ["/bin/sh", "-c", f'{task.setup}\nexec "$@"', "tfmux", *argv]
        body = {
            "task": str(task.id),
            "attempt": attempt,
            "argv": argv,
            "env": {
                **task.env,
                **secrets,
                "TFMUX_TASK": tag(self.run.plan.run_id, task.id, attempt),
            },
            "cwd": task.cwd,
            "log_limit": task.log_limit,
            "port": task.port,
            "pty": task.pty,
        }
        self._links[task.host].send(wire.START, body)

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
            self._spawn(self._forward(task))

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

    async def _finish(self) -> None:
        """Collects what is left of the logs and takes our folders off the hosts."""
        if self.run.state is not RunState.ENDED:
            return
        plan, tasks = self.run.plan, self._link_tasks
        leaves = (self._leaving.leave(plan.host(host), tasks[host]) for host in self._let_go)
        await asyncio.gather(*leaves)
        if self.run.snapshot().outcome is Outcome.DETACHED:
            for link in self._links.values():
                link.hand_over()
        self._over.set()
