"""Preparation of a launch: hosts are asked what the plan needs to know, ports are picked, and files
are brought to the hosts."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from ..errors import AgentError, HostError, TfmuxError
from ..hosts.frames import DirectoryAnswer, GpusQuestion, Ports
from ..hosts.other_names import other_names
from ..ids import TaskId
from ..plan.environment import PROXIES, SHARING, VISIBLE
from ..plan.facts import HostFacts
from ..plan.run_plan import HostPlan, Plan, cannot_run
from ..printable import printable
from ..quantities import counted, size
from ..run import events as ev
from ..run.state import RunData, named
from ..run.states import RunPhase
from .core import Core
from .gpu_watch import GpuWatch
from .host_links import CLOSE_SECONDS, HostLinks

if TYPE_CHECKING:
    from ..files.staging import Progress
    from ..files.trees import HostFiles
    from ..hosts.programs import HostProgram, Q
    from .slurm_allocation import Allocation

_LOW, _HIGH = 15000, 32000
"""Ports are picked below the range of outgoing connections (32768 and up on Linux), where any
client on a host could take one between our look and the task's bind."""
_NOTICE_SECONDS = 0.5
_DIRECTORY_SECONDS = 10.0


def shuffled_ports() -> Iterator[int]:
    """All ports that may be picked, in a new order: another run may be picking at the same time.
    Each is drawn when it is asked for: most runs need a few of 17,000."""
    moved: dict[int, int] = {}
    for last in range(_HIGH - 1, _LOW - 1, -1):
        drawn = random.randint(_LOW, last)
        yield moved.get(drawn, drawn)
        moved[drawn] = moved.get(last, last)


class Ask(Protocol):
    """Asks a host's short program questions of a kind."""

    def __call__(
        self, host: str, kind: type[Q], seconds: float, questions: Sequence[Mapping[str, Any]]
    ) -> Awaitable[list[Q]]:
        """The answers.

        Raises:
            HostError: it has none, or not in time.
        """


class LaunchPreparation:
    """Asks the hosts what the plan needs to know, and brings them what the tasks need."""

    def __init__(
        self, core: Core, hosts: HostLinks, gpus: GpuWatch, allocation: Allocation | None
    ) -> None:
        self._core, self._data, self._links = core, core.data, core.links
        self._logins, self._welcomes = hosts.logins, hosts.welcomes
        self._gpu_watch, self._allocation = gpus, allocation
        self._ports = dict(self._data.ports)
        """Picked ports, also those that an earlier launcher of the run has picked."""
        self._candidates: Iterator[int] = iter(())
        """Ports that no task of the run has yet."""
        self._gpus: dict[str, int] = {}
        self._files = _host_files(core.data)
        self._checking: asyncio.Task[None] | None = None
        """The questions that are asked now, or were asked last."""
        self._staging: dict[str, asyncio.Task[None]] = {}
        self._programs: dict[str, tuple[int, asyncio.Task[HostProgram]]] = {}
        """Programs that answer questions and will take files, each with the number of its link's
        connection."""

    # --- facts of the hosts ---------------------------------------------------------------

    async def check(self, *, ports: bool) -> None:
        """Asks the hosts for what the final plan needs. `ports`: nothing runs yet, so they must
        be free; where a host is cut off meanwhile it is asked again with the others, so nothing
        else is said than whose ports are taken."""
        if self._checking is not None:
            self._checking.cancel()
        self._checking = asyncio.current_task()
        plan = self._data.plan
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
        for host, address in self._addresses(first=ports).items():
            if host in facts:
                facts[host] = replace(facts[host], address=address)
        self._core.feed(ev.HostsChecked(time.time(), facts))

    async def _has_ports(self, plan: Plan) -> bool:
        """Whether every host has its tasks' ports free, and is found under its name; whoever has
        not is refused."""
        self._pick_new(plan, [task.id for task in plan.tasks if task.port is None])
        checks = {host.name: self._check_ports(plan, host.name) for host in plan.hosts}
        if not await self._none_refuses(checks):
            return False
        allocation = self._allocation
        if allocation is None:
            return True
        for event in await allocation.check_names(plan, self._ask, self._ports):
            self._core.feed(event)
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
        return await self._none_refuses(asked)

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

    async def pick_ports(self, tasks: Sequence[TaskId]) -> None:
        """Picks new ports for tasks that start again and may have any, and has their hosts look at
        all of theirs. Where a host is cut off meanwhile nothing is said: it is asked again."""
        plan, again = self._data.plan, set(tasks)
        open_ = [task for task in tasks if task in self._ports]
        self._pick_new(plan, open_)
        hosts = dict.fromkeys(plan.task(task).host for task in tasks)
        if await self._none_refuses({host: self._check_ports(plan, host, again) for host in hosts}):
            picked = {task: self._ports[task] for task in open_}
            self._core.feed(ev.PortsPicked(time.time(), picked))

    async def _none_refuses(self, checks: Mapping[str, Awaitable[str]]) -> bool:
        """Whether no check of a host has found a reason against the launch. All hosts where one has
        are refused together, not only whose answer came first; but those that were cut off
        meanwhile."""
        connections = self._connections(checks)
        reasons = await asyncio.gather(*checks.values())
        if any(reasons):
            await asyncio.sleep(_NOTICE_SECONDS)  # a cut ends the question before the link knows it
        cut = self._cut_off(connections)
        for host, reason in zip(checks, reasons, strict=True):
            if reason and host not in cut:
                self._core.feed(ev.HostRefused(time.time(), host, reason))
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
        self._candidates = (port for port in shuffled_ports() if port not in taken)
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
            answer = await self._links[host.name].ask(GpusQuestion())
        except AgentError:
            return
        self._gpus[host.name] = len(answer.gpus)
        self._gpu_watch.seen(host.name, answer.gpus, answer.why)
        if answer.why:
            found = counted(len(answer.gpus), "GPU")
            text = f"{found} found on {host.name}; nvidia-smi says: {answer.why}"
            self._core.note(text)

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

    async def _program(self, host: str) -> HostProgram:
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

    def expect_files(self, host: str) -> None:
        """Has a host that is up make ready for its files while others are still logged in to."""
        plan = self._data.plan
        if self._data.phase is RunPhase.CONNECTING and plan.sends_files(plan.host(host)):
            self.begin_program(host)

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
            await asyncio.wait(ending, timeout=CLOSE_SECONDS)

    def _addresses(self, *, first: bool) -> Mapping[str, str]:
        """Addresses that the cluster file does not give. Tasks may run under those of the `first`
        plan, which stay."""
        if not first:
            return {host: facts.address for host, facts in self._data.host_facts.items()}
        logins = self._logins
        if logins is None or self._data.allocation is not None:
            return {}
        return other_names(self._data.cluster, logins.configs).addresses

    def _facts(self, plan: Plan, host: HostPlan) -> HostFacts:
        welcome = self._welcomes[host.name]
        tasks = (task.id for task in plan.on_host(host.name))
        ports = {task: self._ports[task] for task in tasks if task in self._ports}
        gpus = self._gpus.get(host.name, 0)
        proxied = any(welcome.environ.get(name) for name in PROXIES)
        if host.local:
            asked = {VISIBLE, *SHARING}
            environ = {name: welcome.environ[name] for name in asked & welcome.environ.keys()}
            return HostFacts(
                home=welcome.home, gpus=gpus, ports=ports, environ=environ, proxied=proxied
            )
        assert self._files is not None
        workdir, trainer, tools = self._files.places(plan, host, welcome)
        environ = {n: value for n, value in welcome.environ.items() if n not in PROXIES}
        return HostFacts(welcome.home, workdir, trainer, tools, gpus, ports, environ, proxied)

    # --- files ----------------------------------------------------------------------------

    async def stage(self, name: str) -> None:
        """Brings a host's files there, if it gets any; this machine's lie where they are.

        When it begins again, because the host is back, what was under way is given up: it may still
        have been reading files here, and a second copy would replace the folder under the tasks.
        """
        plan = self._data.plan
        host = plan.host(name)
        if not plan.sends_files(host):
            self._core.feed(ev.Staged(time.time(), name))
            await self._drop_program(name)  # it may have answered questions
            return
        if name in self._staging:
            self._staging[name].cancel()
        if (this := asyncio.current_task()) is not None:
            self._staging[name] = this

        connections = self._connections([name])
        try:
            assert self._files is not None
            manifest = await self._files.manifest(plan, host)
            if note := self._files.new_note():
                self._core.note(note)
            progress = partial(self._note_progress, name)
            program = await self._program(name)
            self._programs.pop(name, None)
            try:
                warning = await self._files.send(program, manifest, plan, host, progress)
            finally:
                await program.aclose()
        except HostError as error:
            await asyncio.sleep(_NOTICE_SECONDS)  # a cut ends this session before the link knows it
            if not self._cut_off(connections):  # else it is staged again
                self._core.feed(ev.HostRefused(time.time(), name, error.reason, error.code))
        except TfmuxError as error:
            self._core.feed(ev.HostRefused(time.time(), name, printable(str(error))))
        except OSError as error:
            text = f"its files were not sent: {error.strerror or error}"
            self._core.feed(ev.HostRefused(time.time(), name, text))
        else:
            if warning and plan.copies(host):
                self._core.note(warning)
            self._core.feed(ev.Staged(time.time(), name))

    async def note_old_files(self, task: TaskId) -> None:
        """Says which files have been written here since the launch, for a task that starts again on
        a host: what was copied there stays as it was."""
        plan = self._data.plan
        host = plan.host(plan.task(task).host)
        if not plan.copies(host) or plan.task(task).directory:
            return
        from ..files.trees import written_since  # this launcher may not have sent any

        began = self._data.run.started
        try:
            found = await asyncio.to_thread(written_since, plan, host, began)
        except (TfmuxError, OSError):
            return  # its files here are gone, and those there are what there is
        if found:
            files = ", ".join(map(printable, found[:3]))
            files += f" and {len(found) - 3} more" * (len(found) > 3)
            have = "has" if len(found) == 1 else "have"
            self._core.note(
                f"{task} starts again with the files that {host.name} got at the launch: {files} "
                f"{have} been written here since, and a new launch sends them"
            )

    def _note_progress(self, host: str, progress: Progress) -> None:
        """Notes how many bytes and files, of those that it lacks, have gone to a host."""
        size, files = (progress.bytes, progress.total_bytes), (progress.files, progress.total_files)
        self._core.gauges.sent(host, *size, *files)
        self._core.publish()

    def describe_waiting(self) -> str:
        """The hosts that do not have all files, with how much of them is there."""
        return named(map(self._describe, self._data.unstaged_hosts))

    def _describe(self, host: str) -> str:
        view = self._data.hosts[host]
        if not view.staged_total:
            return host
        part = 100 * view.staged_bytes // view.staged_total
        return f"{host} ({part} % of {size(view.staged_total)})"


async def _end_program(starting: asyncio.Task[HostProgram]) -> None:
    """Ends a program, or gives its start up."""
    starting.cancel()
    await asyncio.wait([starting])
    if not starting.cancelled() and starting.exception() is None:
        await starting.result().aclose()


def _host_files(data: RunData) -> HostFiles | None:
    """What sends files; None where all hosts are this machine. It is imported where it is needed,
    and before the run begins: the loop that kills waits for no disk."""
    if data.allocation is None and all(host.local for host in data.plan.hosts):
        return None
    from ..files.trees import HostFiles

    return HostFiles()
