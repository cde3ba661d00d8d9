"""Links to the hosts of a run: what their agents say becomes events, and their figures and ports
are shown."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from ..cluster.choices import OnDisconnect
from ..cluster.readiness import Auto, PortListens
from ..errors import AgentError, HostError
from ..hosts.bootstrap import LinkSettings
from ..hosts.frames import (
    AgentNote,
    Exited,
    KillReceipt,
    Listening,
    LogSize,
    Message,
    OutputEnded,
    Rules,
    RulesQuestion,
    Started,
    Stats,
    TaskFacts,
    Welcome,
)
from ..hosts.link import Link
from ..hosts.transport import allow_connections, channel_problem
from ..hosts.ways import ssh_connector, transport_factory
from ..ids import TaskId
from ..plan.run_plan import HostPlan, TaskPlan
from ..quantities import span
from ..run import events as ev
from ..run.snapshot import HostReceipt
from ..run.state import named
from ..run.states import Halt, Purpose, RunPhase, StoppedBy
from .gpu_watch import GpuWatch

if TYPE_CHECKING:
    from ..hosts.ssh import SshConnector
    from .run_shell import RunShell

STATS_SECONDS = 5.0
_HALTS = {"T": Halt.STOPPED, "D": Halt.WAITING}
_ANSWER_SECONDS = 1.0
"""Longest wait for the answers that are shown together."""
_TAKEN_SECONDS = 5.0
"""Longest wait for the takeover of further hosts."""
CLOSE_SECONDS = 8.0
"""Longest wait for the end of a connection."""
_NO_REASON = "its agent does not say why"


class HostLinks:
    """One link a host; implements `hosts.link.Listener`."""

    def __init__(self, shell: RunShell) -> None:
        self._shell = shell
        self._data, self._links = shell.data, shell.links
        allow_connections(len(self._data.plan.hosts))
        self.tasks: dict[str, asyncio.Task[None]] = {}
        """Work of each link."""
        self.welcomes: dict[str, Welcome] = {}
        """Greeting of each host's agent."""
        self.logins = _logins(shell)
        self.stats = HostStats(shell)
        self.forwarding = Forwarding(shell)
        self._numbers = {task.id: number for number, task in enumerate(self._data.plan.tasks)}

    def connect(self) -> None:
        """Begins the link to each host; nothing is waited for."""
        self._shell.closing.push_async_callback(self._close)
        for host in self._data.plan.hosts:
            self._connect(host)

    async def _close(self) -> None:
        """Lets go of all hosts."""
        closing = [asyncio.create_task(link.aclose()) for link in self._links.values()]
        if closing:
            await asyncio.wait(closing, timeout=CLOSE_SECONDS)
        rest = [*self.tasks.values(), *closing]
        for task in rest:
            task.cancel()
        if rest:
            await asyncio.wait(rest, timeout=1.0)
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                if self.logins is not None:
                    await self.logins.aclose()

    async def let_go(self) -> None:
        """Waits until the launcher that has taken a host over has taken the others, too, but not
        for long: an agent of this machine ends everything when it loses its launcher."""
        held = {self.tasks[host]: host for host, link in self._links.items() if link.connected}
        if held:
            _, left = await asyncio.wait(held, timeout=_TAKEN_SECONDS)
            if left:
                hosts = named(held[task] for task in left)
                self._shell.note(f"not taken over: {hosts}; agents there act without a launcher")

    def _connect(self, host: HostPlan) -> None:
        # A host that cannot be reached is tried again and again where the run has begun before.
        persistent, folder = self._shell.attached, self._shell.folder.path
        background = self._data.run.background
        link = Link(
            LinkSettings.of(
                self._data.plan, host, folder, persistent=persistent, background=background
            ),
            transport_factory(host, self.logins),
            self._shell.outputs.monitor,
            self,
            self._ending,
        )
        self._links[host.name] = link
        task = self.tasks[host.name] = asyncio.create_task(link.run())
        task.add_done_callback(partial(self._link_ended, host.name))

    def _ending(self) -> bool:
        return self._shell.kills or self._data.phase in (RunPhase.KILLING, RunPhase.ENDED)

    def _link_ended(self, host: str, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._shell.crash(f"link to {host}", error)

    # --- what links say -------------------------------------------------------------------

    def link_up(self, host: str, welcome: Welcome) -> None:
        self.welcomes[host] = welcome
        link = self._links[host]
        for task in self._data.plan.on_host(host):
            attempts = self._data.tasks[task.id].attempts
            last = attempts[-1].number if attempts else 0
            link.follow(task.id, self._numbers[task.id], task.log_limit, last)
        held = tuple(ev.HeldTask(one.task, one.attempt, one.gated) for one in welcome.tasks)
        self._shell.feed(ev.HostUp(time.time(), host, held, welcome.previous_end))
        for facts in welcome.tasks:
            self._add_facts(facts)
        # An answer says what the agent holds; a greeting is all that it has got of the rules.
        if self._data.run.background or self._data.hosts[host].lease is not None:
            self._ask_lease(host)

    def ask_leases(self) -> None:
        """Has all hosts hold the lease that the run has now; one that is lost is asked when it is
        back."""
        for host in self._links:
            self._ask_lease(host)

    def _ask_lease(self, host: str) -> None:
        plan, link = self._data.plan, self._links[host]
        if plan.settings.on_disconnect is OnDisconnect.KEEP:
            return
        rules = Rules.of(plan, background=self._data.run.background)
        link.change_rules(rules)
        if link.connected:
            self._shell.spawn(self._await_lease(host, link, rules), f"lease of {host}")

    async def _await_lease(self, host: str, link: Link, rules: Rules) -> None:
        session = link.sessions
        try:
            await link.ask(RulesQuestion(rules))
        except AgentError as error:
            if link.connected and link.sessions == session:  # else it is asked when it is back
                self._shell.note(
                    f"{host} has not confirmed a lease of {span(rules.lease)}: {error.reason}"
                )
        else:
            self._shell.feed(ev.LeaseConfirmed(time.time(), host, rules.lease))

    def link_lost(self, host: str, reason: str) -> None:
        link = self._links[host]
        until = time.time() + self._data.longest_lease(host)
        until -= time.monotonic() - link.last_heard if link.last_heard else 0.0
        lost = ev.HostLost(time.time(), host, reason, max(0.0, until), link.agent_gone)
        self._shell.feed(lost)

    def link_refused(self, host: str, error: HostError) -> None:
        self._shell.feed(ev.HostRefused(time.time(), host, error.reason, error.code))

    def link_superseded(self, host: str, by: str, purpose: Purpose) -> None:
        self._shell.feed(ev.Superseded(time.time(), host, by, purpose))

    def agent_silent(self, host: str) -> None:
        if self._links[host].sessions or self._shell.attached:  # else it is being made
            self._shell.feed(ev.AgentSilent(time.time(), host))

    def agent_said(self, host: str, message: Message) -> None:
        outputs = self._shell.outputs
        match message:
            case KillReceipt() as receipt:
                self._receipt(host, receipt)
            case AgentNote(text=text):
                self._shell.note(f"{host}: {text}")
            case Started() as facts:
                self._add_facts(facts)
            case Listening() as facts:
                self._listens(facts)
            case Exited() as facts:
                outputs.exited(facts, at_once=self._ending())
            case LogSize(task=task, size=size, attempt=int(attempt)):
                outputs.ended_unseen(task, attempt, size)
            case OutputEnded() as facts:
                outputs.ended(facts)
                for size, why in ((facts.lost, "the disk there is full"), (facts.cut, "log_limit")):
                    if size:
                        text = f"{facts.task}: {size} bytes of its log were dropped on {host}"
                        self._shell.note(f"{text} ({why})")

    def _add_facts(self, facts: TaskFacts) -> None:
        """Handles what an agent knows of an attempt: it has begun, and what became of it since; or
        it could not be started. After a cut this is what it would have said meanwhile."""
        began = (facts.task, facts.attempt, facts.pid, facts.began_at)
        ends = facts.stopped_why if facts.stopped_by is StoppedBy.AGENT else ""
        error = facts.error and (facts.start_problem or facts.error)
        said = (error, facts.port_holder, facts.refused, ends)
        self._shell.feed(ev.TaskStarted(time.time(), *began, *said))
        if facts.error:
            return
        if facts.listening:
            self._listens(facts)
        if facts.ended:
            self._shell.outputs.exited(facts, at_once=self._ending())
        if facts.eof:
            self._shell.outputs.ended(facts)

    def _listens(self, facts: TaskFacts) -> None:
        task, attempt = self._data.plan.task(facts.task), facts.attempt
        if facts.loopback:
            self._shell.feed(ev.ListensOnLoopback(time.time(), task.id, attempt, facts.loopback))
        # A line of its log, or a time, may be what makes it ready.
        if isinstance(task.ready, PortListens | Auto):
            self._shell.feed(ev.TaskReady(time.time(), task.id, attempt))
        if task.forward:
            self._shell.spawn(self.forwarding.open(task), f"forward of {task.id}")

    def _receipt(self, host: str, said: KillReceipt) -> None:
        receipt = HostReceipt(
            host,
            signalled=said.signalled,
            survivors=said.survivors,
            unlisted=said.unlisted,
            confirmed=said.confirmed,
            seconds=said.seconds,
            doubt=said.doubt,
            until_boot=said.until_boot,
        )
        if said.tasks is None and not (said.confirmed or said.survivors or said.doubt):
            receipt = replace(receipt, doubt=_NO_REASON)
        if said.tasks is not None and (said.signalled or said.doubt or said.survivors):
            self._shell.note(_told(host, said))  # in no receipt of the run
        if said.tasks is None and not said.ids and not self._links[host].settings.has_agent:
            return  # nobody has asked: an agent that acted by itself, as its tasks' ends tell
        self._shell.feed(ev.ReceiptReceived(time.time(), receipt, said.tasks, bool(said.ids)))


def _told(host: str, said: KillReceipt) -> str:
    """The receipt of a kill of some tasks. The kernel cannot confirm the end of one task among
    others: its processes are gone, as far as a search shows."""
    left = len(said.survivors) + said.unlisted
    what = f"{left} left" if left else "gone"
    tasks = named(map(str, said.tasks or ()))
    signalled = f"{said.signalled} process{'' if said.signalled == 1 else 'es'} signalled"
    why = f"; not confirmed: {said.doubt}" if said.doubt else ""
    return f"{tasks} on {host}: {signalled}, {what} after {said.seconds:.2f} s{why}"


def _logins(shell: RunShell) -> SshConnector | None:
    """None where nothing goes over SSH."""
    hosts = shell.data.plan.hosts
    if shell.data.allocation is None and all(host.ssh is None for host in hosts):
        return None
    return ssh_connector(shell.prompts)


class HostStats:
    """Asks all connected hosts at once for their figures."""

    def __init__(self, shell: RunShell) -> None:
        self._shell = shell
        self._data, self._links = shell.data, shell.links
        self.gpus = GpuWatch(shell)
        self._heard_at: dict[str, float] = {}
        """When each host was heard last, by the clock of its link."""
        self._waiting: dict[TaskId, float] = {}
        """Tasks that waited in the kernel at the last look, and since when."""

    async def poll(self) -> None:
        """Asks all hosts for their figures, again and again; never ends by itself. One that does
        not answer delays no other, and is not asked again until it has."""
        asked: dict[str, asyncio.Task[None]] = {}
        while True:
            for host in self._links.keys() - asked.keys():
                asked[host] = asyncio.create_task(self._ask(host), name=f"stats of {host}")
            if asked:
                done, _ = await asyncio.wait(asked.values(), timeout=_ANSWER_SECONDS)
                for task in done:
                    task.result()
            asked = {host: task for host, task in asked.items() if not task.done()}
            self._shell.publish()
            await asyncio.sleep(STATS_SECONDS)

    async def _ask(self, host: str) -> None:
        with suppress(AgentError):  # a host that does not answer shows as lost anyway
            if self._links[host].connected:
                stats = await self._links[host].ask(Stats())
                tasks = self._data.tasks
                live = {task for task in stats.tasks if task in tasks and tasks[task].state.live}
                self._data.update_host(
                    host,
                    cpu=stats.cpu,
                    memory_used=stats.memory_used,
                    memory_total=stats.memory_total,
                    usage={task: stats.tasks[task] for task in live},
                )
                self.gpus.seen(host, stats.gpus, stats.gpu_problem)
                for task in live:
                    if tasks[task].host == host:
                        self._note_halt(task, stats.halted.get(task))

    def _note_halt(self, task: TaskId, state: str | None) -> None:
        """Takes note of a task that is stopped, at once, or waits in the kernel, at the second look
        in a row: a disk may be slow for a moment."""
        view, now = self._data.tasks[task], time.time()
        if state != "D":
            self._waiting.pop(task, None)
        if state == "D" and view.halted is not Halt.WAITING:
            since = self._waiting.setdefault(task, now)
            if since == now:
                state = None
            else:
                now = since
        halt = _HALTS.get(state or "", Halt.NONE)
        if halt is not view.halted:
            self._data.update_task(task, halted=halt, halted_since=now if halt else None)

    def note_heard(self) -> None:
        """Says when each host was heard last, in whole seconds, as people are shown it: one that
        is silent has not changed, and one that says much changes once a second."""
        for host, link in self._links.items():
            if link.last_heard and self._heard_at.get(host) != link.last_heard:
                self._heard_at[host] = link.last_heard
                when = time.time() - (time.monotonic() - link.last_heard)
                self._data.update_host(host, last_heard=float(int(when)))


class Forwarding:
    """Opens ports of this machine's loopback that lead to tasks, and says their addresses."""

    def __init__(self, shell: RunShell) -> None:
        self._shell = shell
        self._forwarded = [task.id for task in shell.data.plan.tasks if task.forward]
        self._ports: dict[TaskId, int] = {}

    def closed(self) -> list[TaskId]:
        """Tasks that have ended and whose addresses are shown."""
        views = [self._shell.data.tasks[task] for task in self._forwarded]
        return [view.id for view in views if view.url and not view.state.live]

    async def open(self, task: TaskPlan) -> None:
        """Forwards a task's port, as before where it was forwarded already."""
        if task.port is None:
            return
        shell, wanted = self._shell, self._ports.get(task.id, 0)
        try:
            port = await self._forward(task.host, task.port, wanted)
        except (HostError, OSError) as error:
            why = str(error)
            if isinstance(error, PermissionError | ConnectionRefusedError):
                why = channel_problem(task.host, task.port, error)
            shell.data.update_task(task.id, url="")
            shell.note(f"{task.id} is not forwarded: {why}")
            return
        shell.data.update_task(task.id, url=f"http://127.0.0.1:{port}/")
        if port != wanted:
            self._ports[task.id] = port
            shell.note(f"{task.id} is at http://127.0.0.1:{port}/")
        shell.publish()

    async def _forward(self, host: str, port: int, wanted: int) -> int:
        """The port here. A program may listen on another address first."""
        link = self._shell.links[host]
        for seconds in _CHANNEL_PAUSES:
            with suppress(ConnectionRefusedError):
                return await link.forward(port, wanted)
            await asyncio.sleep(seconds)
        return await link.forward(port, wanted)


_CHANNEL_PAUSES = (0.2, 0.5, 1.0, 2.0)
