"""Connections to the hosts of a run: what their agents say becomes events of the run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from ..cluster.readiness import Auto, PortListens
from ..errors import HostError
from ..hosts.auth_prompt import PromptHandler
from ..hosts.bootstrap import LinkSettings
from ..hosts.frames import (
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
from ..hosts.link import Link
from ..hosts.ways import transport_factory
from ..ids import TaskId
from ..plan.plan import HostPlan
from ..run import events as ev
from ..run.run import RunStateMachine
from ..run.snapshot import HostReceipt, Survivor
from ..run.state import named
from ..run.states import RunPhase
from .outputs import Outputs

if TYPE_CHECKING:
    from ..hosts.ssh import SshConnector

_CLOSE_SECONDS = 8.0
_NO_REASON = "its agent does not say why"


class Connections:
    """One link a host; implements `hosts.link.Listener`."""

    def __init__(
        self,
        run: RunStateMachine,
        folder: Path,
        *,
        feed: Callable[[ev.Event], None],
        failed: Callable[[str, BaseException], NoReturn],
        ask: PromptHandler | None,
        persistent: bool,
    ) -> None:
        """`persistent`: a host that cannot be reached is tried again and again."""
        self.links: dict[str, Link] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.welcomes: dict[str, Welcome] = {}
        """Greeting of each host's agent."""
        self._run = run
        self._folder = folder
        self._feed = feed
        self._failed = failed
        self._persistent = persistent
        self.logins = _logins(run, ask)
        self._numbers = {task.id: number for number, task in enumerate(run.plan.tasks)}

    def begin(self, outputs: Outputs, listening: Callable[[TaskId], None]) -> None:
        """Connects to all hosts. `listening` gets tasks that listen."""
        self._outputs = outputs
        self._listening = listening
        if not self._run.awaits_nodes:
            self.connect()

    def connect(self) -> None:
        """Begins the link to each host; nothing is waited for."""
        for host in self._run.plan.hosts:
            self._connect(host)

    async def aclose(self) -> None:
        """Lets go of all hosts."""
        closing = [asyncio.create_task(link.aclose()) for link in self.links.values()]
        if closing:
            await asyncio.wait(closing, timeout=_CLOSE_SECONDS)
        rest = [*self.tasks.values(), *closing]
        for task in rest:
            task.cancel()
        if rest:
            await asyncio.wait(rest, timeout=1.0)
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                if self.logins is not None:
                    await self.logins.aclose()

    def _connect(self, host: HostPlan) -> None:
        link = Link(
            LinkSettings.of(self._run.plan, host, self._folder, persistent=self._persistent),
            transport_factory(host, self.logins),
            self._outputs.monitor,
            self,
            lambda: self._run.phase in (RunPhase.KILLING, RunPhase.ENDED),
        )
        self.links[host.name] = link
        task = self.tasks[host.name] = asyncio.create_task(link.run())
        task.add_done_callback(lambda ended: self._link_ended(host.name, ended))

    def _link_ended(self, host: str, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failed(f"link to {host}", error)

    # --- what links say -------------------------------------------------------------------

    def link_up(self, host: str, welcome: Welcome) -> None:
        self.welcomes[host] = welcome
        link = self.links[host]
        for task in self._run.plan.on_host(host):
            link.follow(task.id, self._numbers[task.id], task.log_limit)
        held = tuple(ev.HeldTask(one.task, one.attempt, one.gated) for one in welcome.tasks)
        self._feed(ev.HostUp(time.time(), host, held, welcome.previous_end))
        for facts in welcome.tasks:
            self._add_facts(facts)

    def link_lost(self, host: str, reason: str) -> None:
        link = self.links[host]
        until = time.time() + self._run.plan.settings.lease
        until -= time.monotonic() - link.last_heard if link.last_heard else 0.0
        lost = ev.HostLost(time.time(), host, reason, max(0.0, until), link.agent_gone)
        self._feed(lost)

    def link_refused(self, host: str, error: HostError) -> None:
        self._feed(ev.HostRefused(time.time(), host, error.reason))

    def link_superseded(self, host: str, by: str) -> None:
        self._feed(ev.Superseded(time.time(), host, by))

    def agent_said(self, host: str, message: Message) -> None:
        match message:
            case KillReceipt() as receipt:
                self._receipt(host, receipt)
            case Note(text=text):
                self._note(f"{host}: {text}")
            case Started() as facts:
                self._started(facts, facts.error, facts.port_holder)
                if facts.ended and not facts.error:
                    self._exited(facts)
            case Listening() as facts:
                self._listens(facts.task, facts.attempt)
            case Exited() as facts:
                self._exited(facts)
            case OutputEnded() as facts:
                self._outputs.ended(facts)
                for size, why in ((facts.lost, "the disk there is full"), (facts.cut, "log_limit")):
                    if size:
                        text = f"{facts.task}: {size} bytes of its log were dropped on {host}"
                        self._note(f"{text} ({why})")

    def _add_facts(self, facts: TaskFacts) -> None:
        """Handles what an agent holds after a cut as if it had just said so."""
        if facts.pid:
            self._started(facts)
        if facts.listening:
            self._listens(facts.task, facts.attempt)
        if facts.ended:
            self._exited(facts)
        if facts.eof:
            self._outputs.ended(facts)

    def _started(self, facts: TaskFacts, error: str = "", port_holder: str = "") -> None:
        began = (facts.task, facts.attempt, facts.pid, facts.began_at)
        self._feed(ev.TaskStarted(time.time(), *began, error, port_holder))

    def _listens(self, task: TaskId, attempt: int) -> None:
        # A line of its log, or a time, may be what makes it ready.
        if isinstance(self._run.plan.task(task).ready, PortListens | Auto):
            self._feed(ev.TaskReady(time.time(), task, attempt))
        self._listening(task)

    def _exited(self, facts: TaskFacts) -> None:
        killing = self._run.phase in (RunPhase.KILLING, RunPhase.ENDED)
        self._outputs.exited(facts, at_once=killing)

    def _receipt(self, host: str, said: KillReceipt) -> None:
        receipt = HostReceipt(
            host,
            signalled=said.signalled,
            survivors=tuple(Survivor(one.pid, one.command, one.state) for one in said.survivors),
            unlisted=said.unlisted,
            confirmed=said.confirmed,
            seconds=said.seconds,
            doubt=said.doubt or (_NO_REASON if said.tasks is None and not said.confirmed else ""),
        )
        if said.tasks is not None and (said.signalled or said.doubt):  # in no receipt of the run
            self._note(_told(host, said))
        if said.tasks is None and not said.ids and not self._run.plan.host(host).has_agent:
            return  # nobody has asked: an agent that acted by itself, as its tasks' ends tell
        self._feed(ev.ReceiptReceived(time.time(), receipt, said.tasks))

    def _note(self, text: str) -> None:
        self._feed(ev.NoteAdded(time.time(), text))


def _told(host: str, said: KillReceipt) -> str:
    """The receipt of a kill of some tasks. What is left of one task among others the kernel does
    not say: it is seen gone, never confirmed."""
    left = len(said.survivors) + said.unlisted
    what = f"{left} left" if left else "seen gone"
    tasks = named(map(str, said.tasks or ()))
    signalled = f"{said.signalled} process{'' if said.signalled == 1 else 'es'} signalled"
    why = f"; not confirmed: {said.doubt}" if said.doubt else ""
    return f"{tasks} on {host}: {signalled}, {what} after {said.seconds:.2f} s{why}"


def _logins(run: RunStateMachine, ask: PromptHandler | None) -> SshConnector | None:
    """None where nothing goes over SSH: its library takes as long to import as half of the
    launcher."""
    if run.allocation is None and all(host.ssh is None for host in run.plan.hosts):
        return None
    from ..hosts.ssh import SshConnector

    return SshConnector(ask)
