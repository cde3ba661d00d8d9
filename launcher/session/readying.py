"""Before the first task: free ports, GPUs, the final plan, and the files on every host."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from ..agent.messages import Welcome
from ..agent.probes import GpusProbe
from ..agent.requests import Ports
from ..cluster.spec import Cluster
from ..errors import AgentError, TfmuxError
from ..files import staging
from ..files.trees import TOOLS, TRAINER, WORK, stage_key, trees_of
from ..hosts.link import Link
from ..hosts.port_owner import port_in_use
from ..ids import TaskId
from ..plan.plan import HostFacts, HostPlan, Plan, make_plan
from ..run import events as ev


class Readying:
    """Asks the hosts what the plan needs to know, and gives them what the tasks need."""

    def __init__(
        self,
        cluster: Cluster,
        links: Mapping[str, Link],
        feed: Callable[[ev.Event], None],
        *,
        resume: str | None,
        ports: Mapping[TaskId, int],
    ) -> None:
        """`ports` are those that an earlier launcher of the run has picked."""
        self._cluster = cluster
        self._links = links
        self._feed = feed
        self._resume = resume
        self._ports = dict(ports)
        self._gpus: dict[str, int] = {}
        self._manifests = staging.Manifests()
        self.welcomes: dict[str, Welcome] = {}
        """What each host's agent said when it greeted us."""

    def promised(self, run_id: str) -> dict[str, Any]:
        """What an attaching launcher needs beside the cluster file."""
        ports = {str(task): port for task, port in self._ports.items()}
        return {"run": run_id, "ports": ports, "resume": self._resume}

    # --- the final plan -------------------------------------------------------------------

    async def check(self, plan: Plan, *, ports: bool) -> Plan | None:
        """The plan with what the hosts say; None when a host will not do, which has been told
        then. `ports`: nothing runs yet, so they must be free."""
        if ports:
            reasons = await asyncio.gather(*(self._check_ports(plan, h.name) for h in plan.hosts))
            for host, reason in zip(plan.hosts, reasons, strict=True):
                if reason:  # all are told, not only whose answer came first
                    self._feed(ev.HostRefused(time.time(), host.name, reason))
            if any(reasons):
                return None
        await asyncio.gather(*(self._ask_gpus(host) for host in plan.hosts))
        facts = {
            host.name: self._facts(plan, host) for host in plan.hosts if host.name in self.welcomes
        }
        return make_plan(self._cluster, plan.run_id, facts, self._resume)

    async def _check_ports(self, plan: Plan, host: str) -> str:
        """Looks at a host's fixed ports and picks the free ones; why it will not do, if so."""
        tasks = plan.on_host(host)
        fixed = [task.port for task in tasks if task.port is not None]
        free = [task.id for task in tasks if task.port is None]
        # Two names may be one machine, so no host's fixed port is picked on any other.
        avoid = [task.port for task in plan.tasks if task.port is not None]
        ports = Ports(tuple(fixed), len(free), tuple(avoid))
        try:
            answer = await self._links[host].ask(ports)
        except AgentError as error:
            return error.reason
        self._ports.update(zip(free, answer.picked, strict=True))
        return "; ".join(port_in_use(owner) for owner in answer.owners)

    async def _ask_gpus(self, host: HostPlan) -> None:
        """How many GPUs a host reports, where the file does not say it; a host that cannot tell
        has none to split."""
        with suppress(AgentError):
            if host.gpus is None and host.name in self.welcomes:
                answer = await self._links[host.name].ask(GpusProbe())
                self._gpus[host.name] = len(answer.gpus)

    def _facts(self, plan: Plan, host: HostPlan) -> HostFacts:
        welcome = self.welcomes[host.name]
        ids = {task.id for task in plan.on_host(host.name)}
        ports = {task: port for task, port in self._ports.items() if task in ids}
        gpus = self._gpus.get(host.name, 0)
        if host.ssh is None:
            return HostFacts(home=welcome.home, gpus=gpus, ports=ports)
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
        """Brings a host's files there; this machine's lie where they are."""
        if host.ssh is None:
            self._feed(ev.Staged(time.time(), host.name))
            return

        def tell(seen: staging.Progress) -> None:
            done, total = (seen.bytes, seen.files), (seen.total_bytes, seen.total_files)
            now = time.time()
            self._feed(ev.StageProgress(now, host.name, done[0], total[0], done[1], total[1]))

        link = self._links[host.name]
        try:
            manifest = await self._manifests.of(trees_of(plan, host))
            await staging.stage(link, manifest, stage_key(plan, host.name), tell)
        except AgentError as error:
            if link.connected:  # else it is staged again when the host is back
                self._feed(ev.HostRefused(time.time(), host.name, error.reason))
        except (TfmuxError, OSError) as error:
            self._feed(ev.HostRefused(time.time(), host.name, str(error)))
        else:
            self._feed(ev.Staged(time.time(), host.name))
