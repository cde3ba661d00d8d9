"""Hosts of a run, as its launcher handles them: connected to, looked at, given their files, and
released when what they hold of the run is here."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from ..cluster.readiness import Auto, PortListens
from ..errors import AgentError, HostError, TfmuxError
from ..hosts.auth_prompt import PromptHandler
from ..hosts.bootstrap import LinkSettings
from ..hosts.frames import (
    DirectoryAnswer,
    Exited,
    Gpus,
    KillReceipt,
    Listening,
    LogSize,
    Message,
    Note,
    OutputEnded,
    Ports,
    Started,
    Stats,
    TaskFacts,
    Welcome,
)
from ..hosts.link import Link
from ..hosts.transport import channel_problem
from ..hosts.ways import ssh_connector, transport_factory
from ..ids import TaskId
from ..plan.environment import PROXIES, VISIBLE
from ..plan.facts import HostFacts
from ..plan.planner import HostPlan, Plan, TaskPlan, cannot_run
from ..quantities import counted, size
from ..run import events as ev
from ..run.machine import RunStateMachine
from ..run.snapshot import HostReceipt, Survivor, TaskView
from ..run.state import named
from ..run.states import RunPhase
from ..run.views import Views
from .output import DiskWatch, Outputs

if TYPE_CHECKING:
    from ..files.collecting import Results
    from ..files.staging import Progress
    from ..files.trees import HostFiles
    from ..hosts.programs import Program, Q
    from ..hosts.ssh import SshConnector


STATS_SECONDS = 5.0
_ANSWER_SECONDS = 1.0
"""Longest wait for the answers that are shown together."""


@dataclass
class Transfers:
    """Says how far each host's files and results are; `changed` is called when one gets on."""

    views: Views
    changed: Callable[[], None]

    def staged(self, host: str, progress: Progress) -> None:
        """So many bytes and files, of so many that it lacks, have gone to a host."""
        self.views.update_host(
            host,
            staged_bytes=progress.bytes,
            staged_total=progress.total_bytes,
            staged_files=progress.files,
            staged_total_files=progress.total_files,
        )
        self.changed()

    def collected(self, host: str, done: int, total: int) -> None:
        """So many bytes of a host's results, of so many, have come back."""
        self.views.update_host(host, collected_bytes=done, collected_total=total)
        self.changed()

    def describe(self, host: str) -> str:
        """The host's name, with how much of its files is there."""
        view = self.views.hosts[host]
        if not view.staged_total:
            return host
        part = 100 * view.staged_bytes // view.staged_total
        return f"{host} ({part} % of {size(view.staged_total)})"


@dataclass
class HostStats:
    """Asks all connected hosts at once for their figures."""

    views: Views
    links: Mapping[str, Link]
    changed: Callable[[], None]
    _heard_at: dict[str, float] = field(default_factory=dict)
    """When each host was heard last, by the clock of its link."""

    async def poll(self) -> None:
        """Asks all hosts for their figures, again and again; never ends by itself. One that does
        not answer delays no other, and is not asked again until it has."""
        asked: dict[str, asyncio.Task[None]] = {}
        while True:
            for host in self.links.keys() - asked.keys():
                asked[host] = asyncio.create_task(self._ask(host), name=f"stats of {host}")
            if asked:
                done, _ = await asyncio.wait(asked.values(), timeout=_ANSWER_SECONDS)
                for task in done:
                    task.result()
            asked = {host: task for host, task in asked.items() if not task.done()}
            self.changed()
            await asyncio.sleep(STATS_SECONDS)

    async def _ask(self, host: str) -> None:
        with suppress(AgentError):  # a host that does not answer shows as lost anyway
            if self.links[host].connected:
                stats = await self.links[host].ask(Stats())
                tasks = self.views.tasks
                live = {task for task in stats.tasks if task in tasks and tasks[task].state.live}
                self.views.update_host(
                    host,
                    cpu=stats.cpu,
                    memory_used=stats.memory_used,
                    memory_total=stats.memory_total,
                    gpus=stats.gpus,
                    usage={task: stats.tasks[task] for task in live},
                )

    def note_heard(self) -> None:
        """Says when each host was heard last, in whole seconds, as people are shown it: one that
        is silent has not changed, and one that says much changes once a second."""
        for host, link in self.links.items():
            if link.last_heard and self._heard_at.get(host) != link.last_heard:
                self._heard_at[host] = link.last_heard
                when = time.time() - (time.monotonic() - link.last_heard)
                self.views.update_host(host, last_heard=float(int(when)))


@dataclass
class Forwarding:
    """Opens ports of this machine's loopback that lead to tasks, and says their addresses."""

    views: Views
    links: Mapping[str, Link]
    feed: Callable[[ev.Event], None]
    changed: Callable[[], None]
    _ports: dict[TaskId, int] = field(default_factory=dict)

    async def open(self, task: TaskPlan) -> None:
        """Forwards a task's port, as before where it was forwarded already."""
        if task.port is None:
            return
        wanted = self._ports.get(task.id, 0)
        try:
            port = await self._forwarded(task.host, task.port, wanted)
        except (HostError, OSError) as error:
            why = str(error)
            if isinstance(error, PermissionError | ConnectionRefusedError):
                why = channel_problem(task.host, task.port, error)
            self.views.update_task(task.id, url="")
            self.feed(ev.NoteAdded(time.time(), f"{task.id} is not forwarded: {why}"))
            self.changed()
            return
        self.views.update_task(task.id, url=f"http://127.0.0.1:{port}/")
        if port != wanted:
            self._ports[task.id] = port
            self.feed(ev.NoteAdded(time.time(), f"{task.id} is at http://127.0.0.1:{port}/"))
        self.changed()

    async def _forwarded(self, host: str, port: int, wanted: int) -> int:
        """The port here. A program may listen on another address first."""
        for seconds in _CHANNEL_PAUSES:
            with suppress(ConnectionRefusedError):
                return await self.links[host].forward(port, wanted)
            await asyncio.sleep(seconds)
        return await self.links[host].forward(port, wanted)


_CHANNEL_PAUSES = (0.2, 0.5, 1.0, 2.0)
_LOW, _HIGH = 15000, 32000
"""Ports are picked below the range of outgoing connections (32768 and up on Linux), where any
client on a host could take one between our look and the task's bind."""
_NOTICE_SECONDS = 0.5


def shuffled_ports() -> list[int]:
    """All ports that may be picked, in a new order: another run may be picking at the same time."""
    return random.sample(range(_LOW, _HIGH), _HIGH - _LOW)


class Ask(Protocol):
    """Asks a host's short program questions of a kind."""

    def __call__(
        self, host: str, kind: type[Q], seconds: float, questions: Sequence[Mapping[str, Any]]
    ) -> Awaitable[list[Q]]:
        """The answers.

        Raises:
            HostError: it has none, or not in time.
        """


NameCheck = Callable[[Plan, Ask, Mapping[TaskId, int]], Awaitable[Iterable[ev.Event]]]
"""Looks whether hosts of a plan find each other by name; gets the ports that are picked."""


class LaunchPreparation:
    """Asks the hosts what the plan needs to know, and brings them what the tasks need."""

    def __init__(
        self,
        links: Mapping[str, Link],
        welcomes: Mapping[str, Welcome],
        transfers: Transfers,
        feed: Callable[[ev.Event], None],
        ports: Mapping[TaskId, int],
        check_names: NameCheck | None = None,
        files: HostFiles | None = None,
    ) -> None:
        """`welcomes`: what each host's agent said when it greeted us; `ports` are those that an
        earlier launcher of the run has picked; `check_names` looks whether hosts that nobody has
        written into the file find each other; `files` are needed by hosts beside this machine."""
        self._links = links
        self._welcomes = welcomes
        self._transfers = transfers
        self._feed = feed
        self._ports = dict(ports)
        self._candidates: Iterator[int] = iter(())
        """Ports that no task of the run has yet."""
        self._check_names = check_names
        self._gpus: dict[str, int] = {}
        self._files = files
        self._checking: asyncio.Task[None] | None = None
        """The questions that are asked now, or were asked last."""
        self._staging: dict[str, asyncio.Task[None]] = {}
        self._programs: dict[str, tuple[int, asyncio.Task[Program]]] = {}
        """Programs that answer questions and will take files, each with the number of its link's
        connection."""

    # --- facts of the hosts ---------------------------------------------------------------

    async def check(self, plan: Plan, *, ports: bool) -> None:
        """Asks the hosts for what the final plan needs. `ports`: nothing runs yet, so they must
        be free; where a host is cut off meanwhile it is asked again with the others, so nothing
        else is said than whose ports are taken."""
        if self._checking is not None:
            self._checking.cancel()
        self._checking = asyncio.current_task()
        connections = self._connections([host.name for host in plan.hosts])
        gpus = asyncio.gather(*(self._ask_gpus(host) for host in plan.hosts))
        try:
            if ports and not (await self._has_directories(plan) and await self._has_ports(plan)):
                return
            await gpus
        finally:
            gpus.cancel()
        cut = self._cut_off(connections)
        if cut and ports:
            return
        known = [host for host in plan.hosts if host.name in self._welcomes.keys() - cut]
        facts = {host.name: self._facts(plan, host) for host in known}
        self._feed(ev.HostsChecked(time.time(), facts))

    async def _has_ports(self, plan: Plan) -> bool:
        """Whether every host has its tasks' ports free, and is found under its name; whoever has
        not is refused."""
        self._pick_new(plan, [task.id for task in plan.tasks if task.port is None])
        checks = {host.name: self._check_ports(plan, host.name) for host in plan.hosts}
        if not await self._are_free(checks):
            return False
        if self._check_names is None:
            return True
        for event in await self._check_names(plan, self._ask, self._ports):
            self._feed(event)
            if isinstance(event, ev.HostRefused):
                return False
        return True

    async def _has_directories(self, plan: Plan) -> bool:
        """Whether every host has the directories in which its tasks start; whoever has not is
        refused."""
        places: dict[str, dict[str, list[TaskId]]] = {}
        for task in plan.tasks:
            if task.directory:
                places.setdefault(task.host, {}).setdefault(task.cwd, []).append(task.id)
        asked = {host: self._check_directories(host, each) for host, each in places.items()}
        return await self._are_free(asked)

    async def _check_directories(self, host: str, places: Mapping[str, Sequence[TaskId]]) -> str:
        """Has a host look for directories; why no task can start in one of them, if so."""
        questions = [{"path": place} for place in places]
        try:
            answers = await self._ask(host, DirectoryAnswer, _DIRECTORY_SECONDS, questions)
        except HostError as error:
            return error.reason
        problems = zip(places.values(), answers, strict=True)
        said = [cannot_run(tasks, host, each.why) for tasks, each in problems if each.why]
        return "; ".join(said)

    async def pick_ports(self, plan: Plan, tasks: Sequence[TaskId]) -> None:
        """Picks new ports for tasks that start again and may have any, and has their hosts look at
        all of theirs. Where a host is cut off meanwhile nothing is said: it is asked again."""
        again = set(tasks)
        open_ = [task for task in tasks if task in self._ports]
        self._pick_new(plan, open_)
        hosts = dict.fromkeys(plan.task(task).host for task in tasks)
        if await self._are_free({host: self._check_ports(plan, host, again) for host in hosts}):
            picked = {task: self._ports[task] for task in open_}
            self._feed(ev.PortsPicked(time.time(), picked))

    async def _are_free(self, checks: Mapping[str, Awaitable[str]]) -> bool:
        """Whether these hosts' ports are free. All others are refused together, not only whose
        answer came first; but those that were cut off meanwhile."""
        connections = self._connections(checks)
        reasons = await asyncio.gather(*checks.values())
        if any(reasons):
            await asyncio.sleep(_NOTICE_SECONDS)  # a cut ends the question before the link knows it
        cut = self._cut_off(connections)
        for host, reason in zip(checks, reasons, strict=True):
            if reason and host not in cut:
                self._feed(ev.HostRefused(time.time(), host, reason))
        return not any(reasons)

    def _connections(self, hosts: Iterable[str]) -> dict[str, int]:
        """The numbers of the hosts' present connections, for `_cut_off`."""
        return {host: self._links[host].sessions for host in hosts}

    def _cut_off(self, connections: Mapping[str, int]) -> Set[str]:
        """The hosts that are not connected any more, or by another connection."""
        links = self._links
        return {
            host
            for host, number in connections.items()
            if not links[host].connected or links[host].sessions != number
        }

    def _pick_new(self, plan: Plan, tasks: Sequence[TaskId]) -> None:
        """Picks a port for each of these. Two names may be one machine: no port is picked twice,
        nor one that any task of the file has."""
        taken = {task.port for task in plan.tasks if task.port is not None}
        self._candidates = iter([port for port in shuffled_ports() if port not in taken])
        for task in tasks:
            self._ports[task] = next(self._candidates)

    async def _check_ports(self, plan: Plan, host: str, among: Set[TaskId] | None = None) -> str:
        """Has a host look at the ports of its tasks, or of those `among` them, and picks others for
        those that are taken; why they will not do, if so."""
        tasks = [task for task in plan.on_host(host) if among is None or task.id in among]
        open_ = [task.id for task in tasks if task.id in self._ports]
        fixed = tuple(task.port for task in tasks if task.port and task.id not in self._ports)
        while True:
            candidates = {self._ports[task]: task for task in open_}
            try:
                answer = await self._links[host].ask(Ports(fixed, tuple(candidates)))
            except AgentError as error:
                return error.reason
            if answer.owners:
                return "; ".join(owner.problem for owner in answer.owners)
            open_ = [candidates[port] for port in answer.busy]
            if not open_:
                return ""
            for task in open_:
                try:
                    self._ports[task] = next(self._candidates)
                except StopIteration:
                    return "no free port on this host"
            fixed = ()

    async def _ask_gpus(self, host: HostPlan) -> None:
        """Asks a host for its number of GPUs if the file does not say it; a host that cannot tell
        has none to split, and its tasks see all that there are."""
        if host.gpus is not None or host.name not in self._welcomes:
            return
        try:
            answer = await self._links[host.name].ask(Gpus())
        except AgentError:
            return
        self._gpus[host.name] = len(answer.gpus)
        if answer.why:
            found = counted(len(answer.gpus), "GPU")
            text = f"{found} found on {host.name}; nvidia-smi says: {answer.why}"
            self._feed(ev.NoteAdded(time.time(), text))

    async def _ask(
        self, host: str, kind: type[Q], seconds: float, questions: Sequence[Mapping[str, Any]]
    ) -> list[Q]:
        """The answers of a host's short program to questions of a kind.

        Raises:
            HostError: it has no answers, or not in time.
        """
        try:
            return await (await self._program(host)).ask(kind, seconds, questions)
        except HostError:
            await self._drop_program(host)  # its answers may still come
            raise

    async def _program(self, host: str) -> Program:
        """The short program on a host, started when it is first needed on this connection.

        Raises:
            HostError: it cannot be started.
        """
        link = self._links[host]
        if host in self._programs and self._programs[host][0] != link.sessions:
            await self._drop_program(host)
        self.begin_program(host)
        try:
            return await asyncio.shield(self._programs[host][1])
        except (HostError, OSError):
            self._programs.pop(host, None)
            raise

    def begin_program(self, host: str) -> None:
        """Starts the short program on a host that is up, so that it is there when it is needed."""
        if host not in self._programs:
            link = self._links[host]
            starting = asyncio.create_task(link.start_program(), name=f"program on {host}")
            starting.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._programs[host] = link.sessions, starting

    async def _drop_program(self, host: str) -> None:
        if host in self._programs:
            await _end_program(self._programs.pop(host)[1])

    async def aclose(self) -> None:
        """Ends the programs that nobody has needed."""
        ending = [asyncio.create_task(_end_program(task)) for _, task in self._programs.values()]
        self._programs.clear()
        if ending:
            await asyncio.wait(ending, timeout=_CLOSE_SECONDS)

    def _facts(self, plan: Plan, host: HostPlan) -> HostFacts:
        welcome = self._welcomes[host.name]
        tasks = (task.id for task in plan.on_host(host.name))
        ports = {task: self._ports[task] for task in tasks if task in self._ports}
        gpus = self._gpus.get(host.name, 0)
        proxied = any(welcome.environ.get(name) for name in PROXIES)
        if host.local:
            environ = {name: welcome.environ[name] for name in {VISIBLE} & welcome.environ.keys()}
            return HostFacts(
                home=welcome.home, gpus=gpus, ports=ports, environ=environ, proxied=proxied
            )
        assert self._files is not None
        workdir, trainer, tools = self._files.places(plan, host, welcome)
        environ = {n: value for n, value in welcome.environ.items() if n not in PROXIES}
        return HostFacts(welcome.home, workdir, trainer, tools, gpus, ports, environ, proxied)

    # --- files ----------------------------------------------------------------------------

    async def stage(self, plan: Plan, host: HostPlan) -> None:
        """Brings a host's files there, if it gets any; this machine's lie where they are.

        When it begins again, because the host is back, what was under way is given up: it may still
        have been reading files here, and a second copy would replace the folder under the tasks.
        """
        if not plan.sends_files(host):
            self._feed(ev.Staged(time.time(), host.name))
            return
        if host.name in self._staging:
            self._staging[host.name].cancel()
        if (this := asyncio.current_task()) is not None:
            self._staging[host.name] = this

        connections = self._connections([host.name])
        try:
            assert self._files is not None
            manifest = await self._files.manifest(plan, host)
            if note := self._files.new_note():
                self._feed(ev.NoteAdded(time.time(), note))
            progress = partial(self._transfers.staged, host.name)
            program = await self._program(host.name)
            self._programs.pop(host.name, None)
            try:
                await self._files.send(program, manifest, plan, host, progress)
            finally:
                await program.aclose()
        except HostError as error:
            await asyncio.sleep(_NOTICE_SECONDS)  # a cut ends this session before the link knows it
            if not self._cut_off(connections):  # else it is staged again
                self._feed(ev.HostRefused(time.time(), host.name, error.reason))
        except TfmuxError as error:
            self._feed(ev.HostRefused(time.time(), host.name, str(error)))
        except OSError as error:
            text = f"its files were not sent: {error.strerror or error}"
            self._feed(ev.HostRefused(time.time(), host.name, text))
        else:
            self._feed(ev.Staged(time.time(), host.name))


async def _end_program(starting: asyncio.Task[Program]) -> None:
    """Ends a program, or gives its start up."""
    starting.cancel()
    await asyncio.wait([starting])
    if not starting.cancelled() and starting.exception() is None:
        await starting.result().aclose()


_CLOSE_SECONDS = 8.0
_DIRECTORY_SECONDS = 10.0
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
        self._numbers = {task.id: number for number, task in enumerate(run.data.plan.tasks)}

    def begin(self, outputs: Outputs, listening: Callable[[TaskId], None]) -> None:
        """Connects to all hosts. `listening` gets tasks that listen."""
        self._outputs = outputs
        self._listening = listening
        if not self._run.data.awaits_nodes:
            self.connect()

    def connect(self) -> None:
        """Begins the link to each host; nothing is waited for."""
        for host in self._run.data.plan.hosts:
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
            LinkSettings.of(self._run.data.plan, host, self._folder, persistent=self._persistent),
            transport_factory(host, self.logins),
            self._outputs.monitor,
            self,
            lambda: self._run.data.phase in (RunPhase.KILLING, RunPhase.ENDED),
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
        for task in self._run.data.plan.on_host(host):
            attempts = self._run.data.tasks[task.id].attempts
            last = attempts[-1].number if attempts else 0
            link.follow(task.id, self._numbers[task.id], task.log_limit, last)
        held = tuple(ev.HeldTask(one.task, one.attempt, one.gated) for one in welcome.tasks)
        self._feed(ev.HostUp(time.time(), host, held, welcome.previous_end))
        for facts in welcome.tasks:
            self._add_facts(facts)

    def link_lost(self, host: str, reason: str) -> None:
        link = self.links[host]
        until = time.time() + self._run.data.plan.settings.lease
        until -= time.monotonic() - link.last_heard if link.last_heard else 0.0
        lost = ev.HostLost(time.time(), host, reason, max(0.0, until), link.agent_gone)
        self._feed(lost)

    def link_refused(self, host: str, error: HostError) -> None:
        self._feed(ev.HostRefused(time.time(), host, error.reason))

    def link_superseded(self, host: str, by: str) -> None:
        self._feed(ev.Superseded(time.time(), host, by))

    def agent_silent(self, host: str) -> None:
        if self.links[host].sessions or self._persistent:  # else it is being made
            self._feed(ev.AgentSilent(time.time(), host))

    def agent_said(self, host: str, message: Message) -> None:
        match message:
            case KillReceipt() as receipt:
                self._receipt(host, receipt)
            case Note(text=text):
                self._note(f"{host}: {text}")
            case Started() as facts:
                self._add_facts(facts)
            case Listening() as facts:
                self._listens(facts)
            case Exited() as facts:
                self._exited(facts)
            case LogSize(task=task, size=size, attempt=int(attempt)):
                self._outputs.ended_unseen(task, attempt, size)
            case OutputEnded() as facts:
                self._outputs.ended(facts)
                for size, why in ((facts.lost, "the disk there is full"), (facts.cut, "log_limit")):
                    if size:
                        text = f"{facts.task}: {size} bytes of its log were dropped on {host}"
                        self._note(f"{text} ({why})")

    def _add_facts(self, facts: TaskFacts) -> None:
        """Handles what an agent knows of an attempt: it has begun, and what became of it since; or
        it could not be started. After a cut this is what it would have said meanwhile."""
        began = (facts.task, facts.attempt, facts.pid, facts.began_at)
        self._feed(ev.TaskStarted(time.time(), *began, facts.error, facts.port_holder))
        if facts.error:
            return
        if facts.listening:
            self._listens(facts)
        if facts.ended:
            self._exited(facts)
        if facts.eof:
            self._outputs.ended(facts)

    def _listens(self, facts: TaskFacts) -> None:
        task, attempt = facts.task, facts.attempt
        if facts.loopback:
            self._feed(ev.ListensOnLoopback(time.time(), task, attempt, facts.loopback))
        # A line of its log, or a time, may be what makes it ready.
        if isinstance(self._run.data.plan.task(task).ready, PortListens | Auto):
            self._feed(ev.TaskReady(time.time(), task, attempt))
        self._listening(task)

    def _exited(self, facts: TaskFacts) -> None:
        killing = self._run.data.phase in (RunPhase.KILLING, RunPhase.ENDED)
        self._outputs.exited(facts, at_once=killing)

    def _receipt(self, host: str, said: KillReceipt) -> None:
        receipt = HostReceipt(
            host,
            signalled=said.signalled,
            survivors=tuple(Survivor(one.pid, one.command, one.state) for one in said.survivors),
            unlisted=said.unlisted,
            confirmed=said.confirmed,
            seconds=said.seconds,
            doubt=said.doubt,
            until_boot=said.until_boot,
        )
        if said.tasks is None and not (said.confirmed or said.survivors or said.doubt):
            receipt = replace(receipt, doubt=_NO_REASON)
        if said.tasks is not None and (said.signalled or said.doubt or said.survivors):
            self._note(_told(host, said))  # in no receipt of the run
        if said.tasks is None and not said.ids and not self._run.data.plan.host(host).has_agent:
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
    """None where nothing goes over SSH."""
    if run.data.allocation is None and all(host.ssh is None for host in run.data.plan.hosts):
        return None
    return ssh_connector(ask)


COLLECT_STALL = 10.0
SURVIVORS_STALL = 1.0
"""The same where processes are left that hold logs open: their end does not come."""
STALLED_SECONDS = 2.0
"""Longest wait for a disk that takes nothing."""
LEAVE_SECONDS = 5.0
FIND_SECONDS, FIND_SECONDS_FORCED = 10.0, 1.0
"""Longest wait for what tasks have left in a workdir: the disk there may hang."""
_SHORT_LEAVE_SECONDS = 1.0
_PACE = 0.1


@dataclass(eq=False)
class _Wait:
    """Wait for the last log bytes of a host."""

    link: Link
    since: float
    """When it began, or the last bytes came."""
    patience: float
    """Seconds without another byte until the wait is given up."""
    news: asyncio.Event = field(default_factory=asyncio.Event)
    """There is more, or it has been given up."""
    given_up: bool = False

    def give_up(self) -> None:
        self.given_up = True
        self.news.set()


class Teardown:
    """Releases hosts, each when what it holds of the run is here."""

    def __init__(
        self,
        run: RunStateMachine,
        links: Mapping[str, Link],
        outputs: Outputs,
        feed: Callable[[ev.Event], None],
        disk: DiskWatch,
        results: Results | None = None,
    ) -> None:
        """`results` brings what is collected, where something is."""
        self._run = run
        self._links = links
        self._outputs = outputs
        self._feed = feed
        self._disk = disk
        self._results = results
        self._waits: dict[str, _Wait] = {}
        """Hosts whose last log bytes have not come."""
        self._fetching = 0
        """Hosts from which something is being fetched."""
        self._watching: asyncio.Task[None] | None = None

    def force(self) -> None:
        """Gives the results up: a person does not wait for them. They stay on their hosts."""
        if self._results is not None:
            self._results.stop()

    async def release(self, host: HostPlan, gone: asyncio.Task[None]) -> None:
        """Fetches what is left and tells the agent to go; `gone` ends with its link. Beside
        survivors the agent stays: nothing else sees what they do, and when they have gone."""
        link = self._links[host.name]
        with self._watched():
            whole = await self._logs_are_here(host.name)
            brought = await self._bring_results(host)
        remove = whole and brought and not self._run.data.survivors_on(host.name)
        here = host.collect if brought else ()
        await self._find_results(host, here, moved=remove)
        if self._run.data.survivors_on(host.name):
            return
        link.leave(remove=remove, brought=here)
        with suppress(TimeoutError):
            # An agent that has bytes for us which we do not take waits for us in vain.
            async with asyncio.timeout(LEAVE_SECONDS if whole else _SHORT_LEAVE_SECONDS):
                await asyncio.wait([gone])

    def _views(self, host: str) -> list[TaskView]:
        return self._run.data.on_host(host)

    async def _bring_results(self, host: HostPlan) -> bool:
        """False when results stay on the host, and its folder with them."""
        begun = any(view.attempt for view in self._views(host.name))
        if self._results is None or not host.collect or not begun:
            return True
        if self._run.data.run.forced and not host.local:
            reason = "the run was killed at once"
            self._feed(ev.ResultsMissing(time.time(), host.name, reason, host.collect))
            return False
        return await self._results.bring(host, self._links[host.name])

    async def _find_results(self, host: HostPlan, brought: Sequence[str], *, moved: bool) -> None:
        """Says what tasks have left in the workdir of a host, which is a copy."""
        copied = self._run.data.plan.copies(host)
        begun = any(view.attempt for view in self._views(host.name))
        if self._results is not None and copied and begun:
            seconds = FIND_SECONDS_FORCED if self._run.data.run.forced else FIND_SECONDS
            link = self._links[host.name]
            await self._results.find(host, link, brought, seconds, moved=moved)

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Has what is fetched meanwhile given up in time: one watch for all hosts, since a thousand
        would take the loop for themselves."""
        self._fetching += 1
        if self._watching is None:
            self._watching = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            self._fetching -= 1
            if not self._fetching:
                self._watching.cancel()
                self._watching = None

    async def _watch(self) -> None:
        """Gives up what does not come, and what there is nowhere to put."""
        stalled_since: float | None = None
        while True:
            await asyncio.sleep(_PACE)
            now = time.monotonic()
            stalled_since = (stalled_since or now) if self._disk.stalled else None
            stalled = stalled_since is not None and now - stalled_since > STALLED_SECONDS
            if stalled:
                self.force()
            for wait in self._waits.values():
                late = now - wait.since > wait.patience
                if stalled or late or self._is_out_of_reach(wait.link):
                    wait.give_up()

    def _is_out_of_reach(self, link: Link) -> bool:
        """The host is not connected, and nobody waits until it is: its agent has just answered."""
        lost = link.closed or link.agent_gone or self._run.data.run.forced
        return lost and not link.connected

    async def _logs_are_here(self, host: str) -> bool:
        """Waits until all logs of a host are here; False when nothing came for ten seconds, or for
        one where processes are left there."""
        views = [view for view in self._views(host) if view.attempts]
        patience = SURVIVORS_STALL if self._run.data.survivors_on(host) else COLLECT_STALL
        wait = self._waits[host] = _Wait(self._links[host], time.monotonic(), patience)
        self._outputs.listen(host, wait.news.set)
        last = -1
        try:
            while views := [view for view in views if not self._outputs.is_whole(view)]:
                if wait.given_up:
                    text = f"the last log bytes of {host} did not come; they stay there"
                    self._feed(ev.NoteAdded(time.time(), text))
                    return False
                size = sum(self._outputs.monitor.size(view.id) for view in views)
                if size != last:
                    last, wait.since = size, time.monotonic()
                wait.news.clear()
                await wait.news.wait()
        finally:
            self._outputs.listen(host, None)
            del self._waits[host]
        cut = [str(view.id) for view in self._views(host) if self._outputs.is_cut(view)]
        if cut:  # nothing of it stays on the host either
            text = f"the last output of {named(cut)} is lost: its log was removed or cut"
            self._feed(ev.NoteAdded(time.time(), text))
        return True
