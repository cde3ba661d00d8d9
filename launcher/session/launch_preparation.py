"""Preparation of a launch: free ports, GPUs and other facts of the hosts, and files to them."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from functools import partial
from typing import Any

from ..errors import AgentError, HostError, TfmuxError
from ..files import staging
from ..files.trees import TOOLS, TRAINER, WORK, stage_key, trees_of
from ..hosts.frames import Gpus, Ports, Welcome
from ..hosts.link import Link
from ..hosts.programs import Program
from ..ids import TaskId
from ..plan.environment import VISIBLE
from ..plan.plan import HostFacts, HostPlan, Plan
from ..preflight.probes import ConnectAnswer
from ..quantities import counted
from ..run import events as ev
from .live_data import Transfers
from .node_checks import SLOWEST, check_names

_LOW, _HIGH = 15000, 32000
"""Ports are picked below the range of outgoing connections (32768 and up on Linux), where any
client on a host could take one between our look and the task's bind."""
_NOTICE_SECONDS = 0.5


def shuffled_ports() -> list[int]:
    """All ports that may be picked, in a new order: another run may be picking at the same time."""
    return random.sample(range(_LOW, _HIGH), _HIGH - _LOW)


class LaunchPreparation:
    """Asks the hosts what the plan needs to know, and brings them what the tasks need."""

    def __init__(
        self,
        links: Mapping[str, Link],
        welcomes: Mapping[str, Welcome],
        transfers: Transfers,
        feed: Callable[[ev.Event], None],
        ports: Mapping[TaskId, int],
        launcher: str = "",
    ) -> None:
        """`welcomes`: what each host's agent said when it greeted us; `ports` are those that an
        earlier launcher of the run has picked; `launcher` is the name by which hosts must know
        this machine, if any."""
        self._links = links
        self._welcomes = welcomes
        self._transfers = transfers
        self._feed = feed
        self._ports = dict(ports)
        self._candidates: Iterator[int] = iter(())
        """Ports that no task of the run has yet."""
        self._launcher = launcher
        self._gpus: dict[str, int] = {}
        self._manifests = staging.Manifests()
        self._staging: dict[str, asyncio.Task[None]] = {}
        self._programs: dict[str, tuple[int, Program]] = {}
        """Programs that have answered questions and will take files, each with the number of its
        link's connection."""

    # --- facts of the hosts ---------------------------------------------------------------

    async def check(self, plan: Plan, *, ports: bool) -> None:
        """Asks the hosts for what the final plan needs. `ports`: nothing runs yet, so they must
        be free."""
        gpus = asyncio.gather(*(self._ask_gpus(host) for host in plan.hosts))
        try:
            if ports and not await self._has_ports(plan):
                return
            await gpus
        finally:
            gpus.cancel()
        facts = {
            host.name: self._facts(plan, host) for host in plan.hosts if host.name in self._welcomes
        }
        self._feed(ev.HostsChecked(time.time(), facts))

    async def _has_ports(self, plan: Plan) -> bool:
        """Whether every host has its tasks' ports free, and is found under its name; whoever has
        not is refused."""
        self._pick_new(plan, [task.id for task in plan.tasks if task.port is None])
        checks = (self._check_ports(plan, host.name) for host in plan.hosts)
        reasons = await asyncio.gather(*checks)
        for host, reason in zip(plan.hosts, reasons, strict=True):
            if reason:  # all are told, not only whose answer came first
                self._feed(ev.HostRefused(time.time(), host.name, reason))
        if any(reasons):
            return False
        for event in await check_names(plan, self._connect, self._ports, self._launcher):
            self._feed(event)
            if isinstance(event, ev.HostRefused):
                return False
        return True

    async def pick_ports(self, plan: Plan, tasks: Sequence[TaskId]) -> None:
        """Picks new ports for tasks that start again and may have any, and has their hosts look at
        all of theirs. Where a host is cut off meanwhile nothing is said: it is asked again."""
        again = set(tasks)
        open_ = [task for task in tasks if task in self._ports]
        self._pick_new(plan, open_)
        hosts = list(dict.fromkeys(plan.task(task).host for task in tasks))
        links = [self._links[host] for host in hosts]
        connections = [link.sessions for link in links]
        reasons = await asyncio.gather(*(self._check_ports(plan, host, again) for host in hosts))
        if any(reasons):
            await asyncio.sleep(_NOTICE_SECONDS)  # a cut ends the question before the link knows it
        for host, link, connection, reason in zip(hosts, links, connections, reasons, strict=True):
            if reason and link.connected and link.sessions == connection:
                self._feed(ev.HostRefused(time.time(), host, reason))
        if not any(reasons):
            picked = {task: self._ports[task] for task in open_}
            self._feed(ev.PortsPicked(time.time(), picked))

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

    async def _connect(self, host: str, places: list[dict[str, Any]]) -> list[ConnectAnswer]:
        """How a host's connections to some places went.

        Raises:
            HostError: it has no answers, or not in time.
        """
        try:
            return await (await self._program(host)).ask(ConnectAnswer, SLOWEST, places)
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
        if host not in self._programs:
            self._programs[host] = link.sessions, await link.start_program()
        return self._programs[host][1]

    async def _drop_program(self, host: str) -> None:
        if host in self._programs:
            await self._programs.pop(host)[1].aclose()

    def _facts(self, plan: Plan, host: HostPlan) -> HostFacts:
        welcome = self._welcomes[host.name]
        tasks = (task.id for task in plan.on_host(host.name))
        ports = {task: self._ports[task] for task in tasks if task in self._ports}
        gpus = self._gpus.get(host.name, 0)
        if host.local:
            environ = {name: welcome.environ[name] for name in {VISIBLE} & welcome.environ.keys()}
            return HostFacts(home=welcome.home, gpus=gpus, ports=ports, environ=environ)
        stage = welcome.stage
        return HostFacts(
            home=welcome.home,
            workdir=f"{stage}/{WORK}" if plan.workdir or host.data else welcome.home,
            trainer=f"{stage}/{TRAINER}",
            tools=f"{stage}/{TOOLS}",
            gpus=gpus,
            ports=ports,
            environ=welcome.environ,
        )

    # --- files ----------------------------------------------------------------------------

    async def stage(self, plan: Plan, host: HostPlan) -> None:
        """Brings a host's files there; this machine's lie where they are.

        When it begins again, because the host is back, what was under way is given up: it may still
        have been reading files here, and a second copy would replace the folder under the tasks.
        """
        if host.local:
            self._feed(ev.Staged(time.time(), host.name))
            return
        if host.name in self._staging:
            self._staging[host.name].cancel()
        if (this := asyncio.current_task()) is not None:
            self._staging[host.name] = this

        link = self._links[host.name]
        connection = link.sessions
        try:
            manifest = await self._manifests.of(trees_of(plan, host))
            progress = partial(self._transfers.staged, host.name)
            program = await self._program(host.name)
            del self._programs[host.name]
            try:
                await staging.stage(program, manifest, stage_key(plan, host.name), progress)
            finally:
                await program.aclose()
        except AgentError as error:
            await asyncio.sleep(_NOTICE_SECONDS)  # a cut ends this session before the link knows it
            if link.connected and link.sessions == connection:  # else it is staged again
                self._feed(ev.HostRefused(time.time(), host.name, error.reason))
        except (TfmuxError, OSError) as error:
            self._feed(ev.HostRefused(time.time(), host.name, str(error)))
        else:
            self._feed(ev.Staged(time.time(), host.name))
