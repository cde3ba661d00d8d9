"""Links to the hosts of a run: what their agents say becomes events, and their figures and ports
are shown."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
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
from ..run.state import RunData, named
from ..run.states import Halt, Purpose, RunPhase, StoppedBy
from .core import Core
from .gpu_watch import GpuWatch
from .output import Outputs

if TYPE_CHECKING:
    from ..hosts.auth_prompt import PromptHandler
    from ..hosts.ssh import SshConnector

STATS_SECONDS = 5.0
_HALTS = {"T": Halt.STOPPED, "D": Halt.WAITING, "I": Halt.INPUT}
_ANSWER_SECONDS = 1.0
"""Longest wait for the answers that are shown together."""
_TAKEN_SECONDS = 5.0
"""Longest wait for the takeover of further hosts."""
CLOSE_SECONDS = 8.0
"""Longest wait for the end of a connection."""
_NO_REASON = "its agent does not say why"


class HostLinks:
    """One link a host; implements `hosts.link.Listener`."""

    def __init__(
        self,
        core: Core,
        outputs: Outputs,
        logins: SshConnector | None,
        folder: Path,
        crash: Callable[[str, BaseException], object],
        *,
        attached: bool,
        kills: bool,
    ) -> None:
        """
        Args:
            logins: what logs in to hosts; None where nothing goes over SSH.
            crash: ends the launcher for what nobody expected.
            attached: an earlier launcher has begun the run: a host that cannot be reached is tried
                again and again.
            kills: this launcher was started to end the run.
        """
        self._core, self._outputs, self.logins = core, outputs, logins
        self._data, self._links = core.data, core.links
        self._folder, self._crash = folder, crash
        self._attached, self._kills = attached, kills
        allow_connections(len(self._data.plan.hosts))
        self.tasks: dict[str, asyncio.Task[None]] = {}
        """Work of each link."""
        self.welcomes: dict[str, Welcome] = {}
        """Greeting of each host's agent."""
        self._forwarding = Forwarding(core)
        self._numbers = {task.id: number for number, task in enumerate(self._data.plan.tasks)}

    def connect(self) -> None:
        """Begins the link to each host; nothing is waited for."""
        for host in self._data.plan.hosts:
            self._connect(host)

    async def aclose(self) -> None:
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
                self._core.note(f"not taken over: {hosts}; agents there act without a launcher")

    def _connect(self, host: HostPlan) -> None:
        settings = LinkSettings.of(
            self._data.plan,
            host,
            self._folder,
            persistent=self._attached,
            background=self._data.run.background,
        )
        link = Link(
            settings,
            transport_factory(host, self.logins),
            self._outputs.monitor,
            self,
            self._ending,
        )
        self._links[host.name] = link
        task = self.tasks[host.name] = asyncio.create_task(link.run())
        task.add_done_callback(partial(self._link_ended, host.name))

    def _ending(self) -> bool:
        return self._kills or self._data.phase in (RunPhase.KILLING, RunPhase.ENDED)

    def _link_ended(self, host: str, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._crash(f"link to {host}", error)

    # --- what links say -------------------------------------------------------------------

    def link_up(self, host: str, welcome: Welcome) -> None:
        self.welcomes[host] = welcome
        link = self._links[host]
        for task in self._data.plan.on_host(host):
            attempts = self._data.tasks[task.id].attempts
            last = attempts[-1].number if attempts else 0
            link.follow(task.id, self._numbers[task.id], task.log_limit, last)
        held = tuple(ev.HeldTask(one.task, one.attempt, one.gated) for one in welcome.tasks)
        self._core.feed(ev.HostUp(time.time(), host, held, welcome.previous_end))
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
            self._core.spawn(self._await_lease(host, link, rules), f"lease of {host}")

    async def _await_lease(self, host: str, link: Link, rules: Rules) -> None:
        session = link.sessions
        try:
            await link.ask(RulesQuestion(rules))
        except AgentError as error:
            if link.connected and link.sessions == session:  # else it is asked when it is back
                self._core.note(
                    f"{host} has not confirmed a lease of {span(rules.lease)}: {error.reason}"
                )
        else:
            self._core.feed(ev.LeaseConfirmed(time.time(), host, rules.lease))

    def link_lost(self, host: str, reason: str) -> None:
        link = self._links[host]
        until = time.time() + self._data.longest_lease(host)
        until -= time.monotonic() - link.last_heard if link.last_heard else 0.0
        lost = ev.HostLost(time.time(), host, reason, max(0.0, until), link.agent_gone)
        self._core.feed(lost)

    def link_refused(self, host: str, error: HostError) -> None:
        self._core.feed(ev.HostRefused(time.time(), host, error.reason, error.code))

    def link_superseded(self, host: str, by: str, purpose: Purpose) -> None:
        self._core.feed(ev.Superseded(time.time(), host, by, purpose))

    def agent_silent(self, host: str) -> None:
        if self._links[host].sessions or self._attached:  # else it is being made
            self._core.feed(ev.AgentSilent(time.time(), host))

    def agent_said(self, host: str, message: Message) -> None:
        outputs = self._outputs
        match message:
            case KillReceipt() as receipt:
                self._receipt(host, receipt)
            case AgentNote(text=text):
                self._core.note(f"{host}: {text}")
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
                        self._core.note(f"{text} ({why})")

    def _add_facts(self, facts: TaskFacts) -> None:
        """Handles what an agent knows of an attempt: it has begun, and what became of it since; or
        it could not be started. After a cut this is what it would have said meanwhile."""
        began = (facts.task, facts.attempt, facts.pid, facts.began_at)
        ends = facts.stopped_why if facts.stopped_by is StoppedBy.AGENT else ""
        error = facts.error and (facts.start_problem or facts.error)
        said = (error, facts.port_holder, facts.refused, ends)
        self._core.feed(ev.TaskStarted(time.time(), *began, *said))
        if facts.error:
            return
        if facts.listening:
            self._listens(facts)
        if facts.ended:
            self._outputs.exited(facts, at_once=self._ending())
        if facts.eof:
            self._outputs.ended(facts)

    def _listens(self, facts: TaskFacts) -> None:
        task, attempt = self._data.plan.task(facts.task), facts.attempt
        if facts.loopback:
            self._core.feed(ev.ListensOnLoopback(time.time(), task.id, attempt, facts.loopback))
        # A line of its log, or a time, may be what makes it ready.
        if isinstance(task.ready, PortListens | Auto):
            self._core.feed(ev.TaskReady(time.time(), task.id, attempt))
        if task.forward:
            self._core.spawn(self._forwarding.open(task), f"forward of {task.id}")

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
            self._core.note(_told(host, said))  # in no receipt of the run
        if said.tasks is None and not said.ids and not self._links[host].settings.has_agent:
            return  # nobody has asked: an agent that acted by itself, as its tasks' ends tell
        self._core.feed(ev.ReceiptReceived(time.time(), receipt, said.tasks, bool(said.ids)))


def _told(host: str, said: KillReceipt) -> str:
    """The receipt of a kill of some tasks. The kernel cannot confirm the end of one task among
    others: its processes are gone, as far as a search shows."""
    left = len(said.survivors) + said.unlisted
    what = f"{left} left" if left else "gone"
    tasks = named(map(str, said.tasks or ()))
    signalled = f"{said.signalled} process{'' if said.signalled == 1 else 'es'} signalled"
    why = f"; not confirmed: {said.doubt}" if said.doubt else ""
    return f"{tasks} on {host}: {signalled}, {what} after {said.seconds:.2f} s{why}"


def logins_of(data: RunData, prompts: PromptHandler) -> SshConnector | None:
    """Returns what logs in to a run's hosts; None where nothing goes over SSH."""
    if data.allocation is None and all(host.ssh is None for host in data.plan.hosts):
        return None
    return ssh_connector(prompts)


class HostStats:
    """Asks all connected hosts at once for their figures."""

    def __init__(
        self, core: Core, gpus: GpuWatch, wrote_beyond_limit: Callable[[TaskId], None]
    ) -> None:
        self._core, self._gpus = core, gpus
        self._wrote_beyond_limit = wrote_beyond_limit
        self._data, self._links = core.data, core.links
        self._heard_at: dict[str, float] = {}
        """When each host was heard last, by the clock of its link."""
        self._waiting: dict[TaskId, float] = {}
        """Tasks that waited in the kernel at the last look, and since when."""
        self._beyond: dict[TaskId, int] = {}
        """Bytes for which tasks' logs had no room at the last look."""

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
            self._core.publish()
            await asyncio.sleep(STATS_SECONDS)

    async def _ask(self, host: str) -> None:
        with suppress(AgentError):  # a host that does not answer shows as lost anyway
            if self._links[host].connected:
                stats = await self._links[host].ask(Stats())
                tasks = self._data.tasks
                live = {task for task in stats.tasks if task in tasks and tasks[task].state.live}
                usage = {task: stats.tasks[task] for task in live}
                memory = stats.memory_used, stats.memory_total
                self._core.gauges.load(host, stats.cpu, *memory, usage)
                self._gpus.seen(host, stats.gpus, stats.gpu_problem)
                for task in live:
                    if tasks[task].host == host:
                        self._note_halt(task, stats.halted.get(task))
                        self._note_output(task, stats.beyond.get(task, 0))

    def _note_output(self, task: TaskId, beyond: int) -> None:
        """Takes note that a task writes whose log has reached its limit: nothing of it comes."""
        if beyond > self._beyond.get(task, 0):
            self._wrote_beyond_limit(task)
        self._beyond[task] = beyond

    def _note_halt(self, task: TaskId, state: str | None) -> None:
        """Takes note of a task that is stopped, at once, or waits in the kernel or for input, at
        the second look in a row: a disk may be slow for a moment."""
        view, now = self._data.tasks[task], time.time()
        waits = state in ("D", "I")
        if not waits:
            self._waiting.pop(task, None)
        if waits and view.halted is not _HALTS[state or ""]:
            since = self._waiting.setdefault(task, now)
            if since == now:
                state = None
            else:
                now = since
        halt = _HALTS.get(state or "", Halt.NONE)
        if halt is not view.halted:
            event = ev.TaskHalted(time.time(), task, halt, now if halt else None)
            self._core.feed(event)
            if halt is Halt.INPUT:
                self._core.note(f"{task} {halt} from its terminal, {_NO_KEYS}")

    def note_heard(self) -> None:
        """Says when each host was heard last, in whole seconds, as people are shown it: one that
        is silent has not changed, and one that says much changes once a second."""
        for host, link in self._links.items():
            if link.last_heard and self._heard_at.get(host) != link.last_heard:
                self._heard_at[host] = link.last_heard
                when = time.time() - (time.monotonic() - link.last_heard)
                self._core.gauges.heard(host, when)


_NO_KEYS = (
    "and no key sends any: give the answer in `command` (yes | …, an option like --yes), or leave "
    "out `pty`, so that the program finds no terminal"
)


class Forwarding:
    """Opens ports of this machine's loopback that lead to tasks, and says their addresses."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._ports: dict[TaskId, int] = {}

    async def open(self, task: TaskPlan) -> None:
        """Forwards a task's port, as before where it was forwarded already."""
        if task.port is None:
            return
        core, wanted = self._core, self._ports.get(task.id, 0)
        try:
            port = await self._forward(task.host, task.port, wanted)
        except (HostError, OSError) as error:
            why = str(error)
            if isinstance(error, PermissionError | ConnectionRefusedError):
                why = channel_problem(task.host, task.port, error)
            core.feed(ev.Forwarded(time.time(), task.id, ""))
            core.note(f"{task.id} is not forwarded: {why}")
            return
        url = f"http://127.0.0.1:{port}/"
        core.feed(ev.Forwarded(time.time(), task.id, url))
        if port != wanted:
            self._ports[task.id] = port
            core.note(f"{task.id} is at {url}")

    async def _forward(self, host: str, port: int, wanted: int) -> int:
        """The port here. A program may listen on another address first."""
        link = self._core.links[host]
        for seconds in _CHANNEL_PAUSES:
            with suppress(ConnectionRefusedError):
                return await link.forward(port, wanted)
            await asyncio.sleep(seconds)
        return await link.forward(port, wanted)


_CHANNEL_PAUSES = (0.2, 0.5, 1.0, 2.0)
