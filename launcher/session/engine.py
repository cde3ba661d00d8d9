"""The asyncio shell around a run: feeds it events, carries its instructions out.

Lives on the launcher's own loop, in the launcher's own thread (`session`). Everything that
waits is a task here that is kept and reaped; everything that decides is in `run`.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from typing import Any

from ..agent import wire
from ..cluster.spec import Cluster
from ..errors import AgentError, HostError, TfmuxError
from ..files import staging
from ..files.collecting import Results
from ..files.trees import TOOLS, TRAINER, WORK, stage_key, trees_of
from ..hosts.doors import door, link_settings
from ..hosts.holders import holder_words, port_words
from ..hosts.link import Link
from ..hosts.ssh import Ask, Logins
from ..ids import TaskId, tag
from ..plan.plan import HostFacts, HostPlan, LogMatches, Plan, TaskPlan, make_plan
from ..run import events as ev
from ..run.run import Run
from ..run.snapshot import HostReceipt, Snapshot, Survivor, TaskView
from ..run.states import Outcome, RunState, TaskState
from ..store.logs import LogStore
from ..store.metrics import Extractor, Series
from ..store.records import changes, log_tail
from ..store.replay import Replay

PUBLISH_SECONDS = 1 / 30
STATS_SECONDS = 5.0
COLLECT_STALL = 10.0
LEAVE_SECONDS = 5.0
_OVERLAP = 4096
_LOOK = 1 << 20


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
        self._cluster = cluster
        self._logs = logs
        self._publish = publish
        self._record = record
        self._resume = resume
        self._logins = Logins(ask)
        self._links: dict[str, Link] = {}
        self._link_tasks: dict[str, asyncio.Task[None]] = {}
        self._welcomes: dict[str, dict[str, Any]] = {}
        self._gpus: dict[str, int] = {}
        self._numbers = {task.id: number for number, task in enumerate(plan.tasks)}
        self._hosts_of = {task.id: task.host for task in plan.tasks}
        self._extractors = {task.id: Extractor(plan.metrics_pattern) for task in plan.tasks}
        self._patterns: dict[TaskId, tuple[int, re.Pattern[bytes], bytes]] = {}
        self._last_output: dict[TaskId, float] = {}
        self._exits: dict[TaskId, dict[str, Any]] = {}
        self._ends: dict[TaskId, dict[str, Any]] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._work: set[asyncio.Task[None]] = set()
        self._stats: dict[str, dict[str, Any]] = {}
        self._forwarded: dict[TaskId, int] = {}
        """The ports of this machine's loopback that lead to tasks."""
        self._ports = dict(past.ports) if past else {}
        self._manifests = staging.Manifests()
        self._results = Results(logs.folder, self.feed)
        self._leaving: list[str] = []
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
            self._look_again()
        self._spawn(self._poll_stats())
        try:
            await self._over.wait()
        finally:
            await self._close()

    def feed(self, event: ev.Event) -> None:
        """Gives the run an event and does what it says."""
        if isinstance(event, ev.KillAll) and self.run.state is RunState.ENDED:
            self._results.stop()
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
                last_output=self._last_output.get(view.id, view.last_output),
                log_size=self._logs.open(view.id).size,
                url=self._url(view),
            )
            for view in now.tasks
        )
        live = {view.id for view in now.tasks if view.state.live}
        hosts = []
        for view in now.hosts:
            figures = self._stats.get(view.name, {})
            link = self._links.get(view.name)
            heard = time.time() - (time.monotonic() - link.last_heard) if link else None
            hosts.append(
                replace(
                    view,
                    last_heard=heard,
                    cpu=figures.get("cpu"),
                    memory_used=figures.get("memory_used"),
                    memory_total=figures.get("memory_total"),
                    gpus=tuple(figures.get("gpus", ())),
                    usage={
                        TaskId.parse(name): (float(cpu), int(rss))
                        for name, (cpu, rss) in figures.get("tasks", {}).items()
                        if TaskId.parse(name) in live
                    },
                )
            )
        return replace(now, tasks=tasks, hosts=tuple(hosts))

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

    def link_up(self, host: str, welcome: dict[str, Any]) -> None:
        self._welcomes[host] = welcome
        link = self._links[host]
        for task in self.run.plan.on_host(host):
            link.follow(task.id, self._numbers[task.id], task.log_limit)
        held = tuple(welcome["tasks"])
        self.feed(ev.HostUp(time.time(), host, held, welcome["was"]))
        for facts in held:
            self._take_facts(facts)

    def _take_facts(self, facts: dict[str, Any]) -> None:
        """What an agent holds after a cut, as if it had just said so."""
        now = time.time()
        task = TaskId.parse(facts["task"])
        if task not in self._numbers:
            return
        if facts["pid"]:
            self.feed(ev.TaskStarted(now, task, facts["attempt"], facts["pid"], facts["began_at"]))
        if facts["listening"]:
            self._listens(task, facts["attempt"])
        if facts["ended"]:
            self._exited(task, facts)
        if facts["eof"]:
            self._ended(task, facts)

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
        for task in list(self._exits):  # the run goes on without what finds no room
            self._complete_exit(task)

    # --- what agents say ------------------------------------------------------------------

    def agent_said(self, host: str, kind: int, body: dict[str, Any]) -> None:
        now = time.time()
        if kind == wire.RECEIPT:
            self._receipt(host, body)
            return
        if kind == wire.NOTE:
            self.feed(ev.Noted(now, f"{host}: {body['text']}"))
            return
        task = TaskId.parse(body["task"])
        if kind == wire.STARTED:
            held = holder_words(body.get("held"))
            self.feed(
                ev.TaskStarted(
                    now,
                    task,
                    body["attempt"],
                    body["pid"],
                    body["began_at"],
                    body["error"],
                    held,
                )
            )
            if body["ended"] and not body["error"]:
                self._exited(task, body)
        elif kind == wire.LISTENING:
            self._listens(task, body["attempt"])
        elif kind == wire.EXITED:
            self._exited(task, body)
        elif kind == wire.EOF:
            self._ended(task, body)
            for what, why in (("lost", "the disk there is full"), ("cut", "log_limit")):
                if body[what]:
                    text = f"{task}: {body[what]} bytes of its log were dropped on {host} ({why})"
                    self.feed(ev.Noted(now, text))

    def _receipt(self, host: str, body: dict[str, Any]) -> None:
        receipt = HostReceipt(
            host,
            signalled=body["signalled"],
            survivors=tuple(
                Survivor(one["pid"], one["command"], one["state"]) for one in body["survivors"]
            ),
            confirmed=True,
            seconds=body["seconds"],
        )
        tasks = body["tasks"]
        if tasks is None and not body["ids"]:
            return  # nobody has asked: an agent that acted by itself, as its tasks' ends tell
        named = None if tasks is None else tuple(TaskId.parse(task) for task in tasks)
        self.feed(ev.Receipted(time.time(), receipt, named))

    def _exited(self, task: TaskId, facts: dict[str, Any]) -> None:
        """A task is told to have exited only when its output is here to the last byte."""
        self._exits[task] = facts
        self._count_local(task, facts["size"])
        self._complete_exit(task)

    def _ended(self, task: TaskId, facts: dict[str, Any]) -> None:
        """Nobody will write to the log of this attempt any more."""
        self._ends[task] = facts
        self._count_local(task, facts["size"])

    def _count_local(self, task: TaskId, size: int) -> None:
        link = self._links[self._hosts_of[task]]
        if link.settings.local:
            link.grown(task, size)

    def _complete_exit(self, task: TaskId) -> None:
        facts = self._exits.get(task)
        if facts is None:
            return
        missing = self._logs.open(task).size < facts["size"]
        if missing and not self._links[self._hosts_of[task]].stuck:
            return
        del self._exits[task]
        tail = log_tail(self._logs.open(task))
        status, signal = facts["status"], facts["signal"]
        held = holder_words(facts.get("held"))
        now = time.time()
        self.feed(ev.TaskExited(now, task, facts["attempt"], status, signal, held, tail))

    def log_grew(self, task: TaskId, data: bytes, now: float) -> None:
        if data:
            self._last_output[task] = now
            self._look_for_metrics(task, data, now)
            self._look_for_pattern(task, data)
        if task in self._exits:
            self._complete_exit(task)
        self._publish_soon()

    def _look_for_metrics(self, task: TaskId, data: bytes, now: float) -> None:
        extractor = self._extractors[task]
        last = None
        for point in extractor.feed(data, now):
            self.series[task].add(point)
            last = point
        if last is not None:
            self.feed(ev.MetricSeen(now, task, last.values, extractor.rate))
            values = {key: value for key, value in last.values.items() if value == value}
            if extractor.rate is not None:
                values["rate"] = round(extractor.rate, 3)
            record = {"time": now, "event": "metric", "task": str(task), **values}
            self._record({**record, "host": self._hosts_of[task]})

    def _look_for_pattern(self, task: TaskId, data: bytes) -> None:
        if task not in self._patterns:
            return
        attempt, pattern, before = self._patterns[task]
        seen = before + data
        if pattern.search(seen):
            del self._patterns[task]
            self.feed(ev.TaskReady(time.time(), task, attempt))
        else:
            self._patterns[task] = (attempt, pattern, seen[-_OVERLAP:])

    def _look_again(self) -> None:
        """Attached while a task is awaited by its log: the line may have come meanwhile."""
        for view in self.run.snapshot().tasks:
            ready = self.run.plan.task(view.id).ready
            if view.state is TaskState.STARTING and isinstance(ready, LogMatches):
                log = self._logs.open(view.id)
                pattern = re.compile(ready.pattern.encode())
                self._patterns[view.id] = (view.attempt, pattern, b"")
                self._look_for_pattern(view.id, log.read(max(0, log.size - _LOOK), _LOOK))

    # --- instructions ---------------------------------------------------------------------

    def _carry_out(self, what: ev.Instruction) -> None:
        match what:
            case ev.CheckHosts(ports):
                self._spawn(self._check_hosts(ports))
            case ev.StageHost(host):
                self._spawn(self._stage(host))
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
                self._spawn(self._watch_silence(task_id, seconds))
            case ev.LeaveHost(host):
                self._leaving.append(host)
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
            self._patterns[task.id] = (attempt, re.compile(task.ready.pattern.encode()), b"")
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
        hosts = self.run.plan.hosts
        if ports:
            reasons = await asyncio.gather(*(self._check_ports(host.name) for host in hosts))
            for host, reason in zip(hosts, reasons, strict=True):
                if reason:  # all are told, not only whose answer came first
                    self.feed(ev.HostRefused(time.time(), host.name, reason))
            if any(reasons):
                return
        await asyncio.gather(*(self._ask_gpus(host) for host in hosts))
        plan = make_plan(self._cluster, self.run.plan.run_id, self._facts(), self._resume)
        self.feed(ev.Checked(time.time(), plan))
        self._record({"time": time.time(), "event": "run", "state": "planned", **self._promised()})

    async def _ask_gpus(self, host: HostPlan) -> None:
        """How many GPUs a host reports, where the file does not say it; a host that cannot tell
        has none to split."""
        with suppress(AgentError):
            if host.gpus is None and host.name in self._welcomes:
                answer = await self._links[host.name].ask(wire.PROBE, {"what": "gpus"})
                self._gpus[host.name] = len(answer["gpus"])

    def _promised(self) -> dict[str, Any]:
        """What an attaching launcher needs beside the cluster file."""
        ports = {str(task): port for task, port in self._ports.items()}
        return {"run": self.run.plan.run_id, "ports": ports, "resume": self._resume}

    async def _check_ports(self, host: str) -> str:
        """Looks at a host's fixed ports and picks the free ones; why it will not do, if so."""
        tasks = self.run.plan.on_host(host)
        fixed = [task.port for task in tasks if task.port is not None]
        free = [task.id for task in tasks if task.port is None]
        # Two names may be one machine, so no host's fixed port is picked on any other.
        avoid = [task.port for task in self.run.plan.tasks if task.port is not None]
        body = {"look": fixed, "pick": len(free), "avoid": avoid}
        try:
            answer = await self._links[host].ask(wire.PORTS, body)
        except AgentError as error:
            return error.reason
        self._ports.update(zip(free, answer["picked"], strict=True))
        return "; ".join(port_words(held) for held in answer["held"])

    def _facts(self) -> dict[str, HostFacts]:
        plan = self.run.plan
        return {
            host.name: _facts(
                self._welcomes[host.name],
                host,
                {t: p for t, p in self._ports.items() if self._hosts_of[t] == host.name},
                self._gpus.get(host.name, 0),
                plan,
            )
            for host in plan.hosts
            if host.name in self._welcomes
        }

    async def _stage(self, host: str) -> None:
        plan = next(entry for entry in self.run.plan.hosts if entry.name == host)
        if plan.ssh is None:
            self.feed(ev.Staged(time.time(), host))
            return

        def tell(seen: staging.Progress) -> None:
            done, total = (seen.bytes, seen.files), (seen.total_bytes, seen.total_files)
            now = time.time()
            self.feed(ev.StageProgress(now, host, done[0], total[0], done[1], total[1]))

        try:
            manifest = await self._manifests.of(trees_of(self.run.plan, plan))
            key = stage_key(self.run.plan, host)
            await staging.stage(self._links[host], manifest, key, tell)
        except AgentError as error:
            if self._links[host].connected:  # else it is staged again when the host is back
                self.feed(ev.HostRefused(time.time(), host, error.reason))
        except (TfmuxError, OSError) as error:
            self.feed(ev.HostRefused(time.time(), host, str(error)))
        else:
            self.feed(ev.Staged(time.time(), host))

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

    async def _watch_silence(self, task: TaskId, seconds: float) -> None:
        began = time.time()
        while True:
            quiet = time.time() - max(began, self._last_output.get(task, 0.0))
            if quiet >= seconds:
                self.feed(ev.Silent(time.time(), task, quiet))
                return
            await asyncio.sleep(seconds - quiet)

    async def _poll_stats(self) -> None:
        while True:
            await asyncio.gather(*(self._ask_stats(host) for host in list(self._links)))
            self._publish_soon()
            await asyncio.sleep(STATS_SECONDS)

    async def _ask_stats(self, host: str) -> None:
        with suppress(AgentError):  # a host that does not answer shows as lost anyway
            if self._links[host].connected:
                self._stats[host] = await self._links[host].ask(wire.STATS, {})

    # --- the end --------------------------------------------------------------------------

    async def _finish(self) -> None:
        """Collects what is left of the logs and takes our folders off the hosts."""
        if self.run.state is not RunState.ENDED:
            return
        await asyncio.gather(*(self._leave(host) for host in self._leaving))
        if self.run.snapshot().outcome is Outcome.DETACHED:
            for link in self._links.values():
                link.hand_over()
        self._over.set()

    async def _leave(self, host: str) -> None:
        link = self._links[host]
        whole = await self._collect(host)
        whole = await self._bring_results(host) and whole
        receipt = self.run.snapshot().receipt
        survived = {one.host for one in receipt.hosts if one.survivors} if receipt else set()
        # What knows the survivors stays there, for the next `tfmux kill`.
        link.leave(remove=whole and host not in survived)
        with suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_SECONDS):
                await asyncio.wait([self._link_tasks[host]])

    async def _bring_results(self, host: str) -> bool:
        """False when results stay on the host, and its folder with them."""
        plan = next(entry for entry in self.run.plan.hosts if entry.name == host)
        views = [view for view in self.run.snapshot().tasks if view.host == host]
        if not plan.collect or not any(view.attempt for view in views) or self.run.hurried:
            return True
        return await self._results.bring(plan, self._links[host])

    async def _collect(self, host: str) -> bool:
        """Waits until all logs of a host are here; False when nothing came for ten seconds."""
        views = [view for view in self.run.snapshot().tasks if view.host == host and view.attempts]
        last, since = -1, time.monotonic()
        while True:
            sizes = {view.id: self._logs.open(view.id).size for view in views}
            if all(self._is_whole(view) for view in views):
                return True
            if sum(sizes.values()) != last:
                last, since = sum(sizes.values()), time.monotonic()
            if time.monotonic() - since > COLLECT_STALL or not self._links[host].connected:
                text = f"the last log bytes of {host} did not come; they stay there"
                self.feed(ev.Noted(time.time(), text))
                return False
            await asyncio.sleep(0.02)

    def _is_whole(self, view: TaskView) -> bool:
        """The end of the last attempt's output is known, and all up to it is here."""
        end = self._ends.get(view.id)
        if end is None or end["attempt"] < view.attempts[-1].number or view.id in self._exits:
            return False
        return self._logs.open(view.id).size >= int(end["size"])


def _facts(
    welcome: dict[str, Any],
    host: HostPlan,
    ports: dict[TaskId, int],
    gpus: int,
    plan: Plan,
) -> HostFacts:
    if host.ssh is None:
        return HostFacts(home=welcome["home"], gpus=gpus, ports=ports)
    stage = welcome["stage"]
    return HostFacts(
        home=welcome["home"],
        workdir=f"{stage}/{WORK}" if plan.workdir or host.data else welcome["home"],
        trainer=f"{stage}/{TRAINER}",
        tools=f"{stage}/{TOOLS}",
        gpus=gpus,
        ports=ports,
        environ=welcome["environ"],
    )
