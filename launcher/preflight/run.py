"""All hosts at once: nobody waits for anybody but for those whom it must reach."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from typing import Any

from ..cluster.addresses import join
from ..cluster.spec import Cluster
from ..errors import AgentError
from ..hosts.host_keys import ShownKey
from ..hosts.ssh import Ask, Logins
from ..ids import new_run_id
from ..plan.environment import unset_names, unset_note
from ..plan.plan import Plan, TaskPlan, make_plan
from . import across, judge, matrix
from .findings import CHECKS, OK, Check, Finding, Pair, Reach, Result, Severity, passed, warning
from .host import HostCheck
from .report import Report
from .visit import Visit

PROBES_AT_ONCE = 32
_STEPS = {
    Check.NAME: "its name resolves to",
    Check.TCP: "it answers in",
    Check.SSH: "its SSH server is",
    Check.KEY: "its host key:",
    Check.LOGIN: "we log in",
}


async def preflight(
    cluster: Cluster,
    ask: Ask | None = None,
    on_result: Callable[[Result], None] = lambda result: None,
    *,
    accept_new: bool = False,
) -> Report:
    """Looks at every host of a cluster; starts nothing.

    Each finding and each pair of the matrix goes to `on_result` as soon as it is known, on this
    loop; a later finding of the same host and check stands beside the earlier one. `ask`
    answers what only a person can (`credentials.Question`), `accept_new` trusts unknown host
    keys. Cancelled, it still sends its agents away.
    """
    return await _Preflight(cluster, ask, on_result, accept_new).run()


class _Preflight:
    """One preflight."""

    def __init__(
        self,
        cluster: Cluster,
        ask: Ask | None,
        on_result: Callable[[Result], None],
        accept_new: bool,
    ) -> None:
        self._cluster = cluster
        self._plan: Plan = make_plan(cluster, new_run_id("check"))
        self._on_result = on_result
        self._findings: list[Finding] = []
        self._pairs: dict[tuple[str, str], Pair] = {}
        self._accepted: list[tuple[str, ShownKey]] = []
        self._resolved: dict[str, set[str]] = {}
        self._said: set[tuple[str, str, Reach]] = set()
        self._logins = Logins(
            ask,
            accept_new=accept_new,
            on_step=self._step,
            on_accepted=self._accept,
            on_note=self._note,
        )
        self._gates: dict[str, asyncio.Semaphore] = {}

    async def run(self) -> Report:
        began = time.monotonic()
        chief, others, why = across.sharers(self._plan)
        self._tell_unset()
        try:
            async with AsyncExitStack() as visits:
                checks = await self._visit_all(visits)
                async with asyncio.TaskGroup() as group:
                    for name, check in checks.items():
                        keep = name == chief and bool(others)
                        group.create_task(check.run(keep_mark=keep))
                    for source in matrix.sources(self._plan):
                        for task in matrix.targets(self._plan, source):
                            group.create_task(self._reach(checks, source, task))
                await self._compare(checks, chief, others, why)
        finally:
            await self._logins.aclose()
        return self._report(time.monotonic() - began)

    async def _visit_all(self, visits: AsyncExitStack) -> dict[str, HostCheck]:
        """A visit to each host; they end together, side by side."""
        mark = f".{self._plan.run_id}"
        checks = {}
        for host in self._plan.hosts:
            visit = Visit(host, self._plan.run_id, self._logins)
            checks[host.name] = HostCheck(self._cluster, self._plan, host, visit, self._tell, mark)

        async def leave() -> None:
            await asyncio.gather(*(check.visit.aclose() for check in checks.values()))

        visits.push_async_callback(leave)
        return checks

    async def _reach(self, checks: dict[str, HostCheck], source: str, task: TaskPlan) -> None:
        """One connection, as soon as both of its ends are ready."""
        name = self._cluster.address(task.host)
        ready = await checks[task.host].open
        port = task.port if ready is None else ready.ports[task.id]
        address = join(name, port)
        here = await checks[source].open
        answer = None
        if ready is not None and here is not None and task.id in ready.tokens and port:
            connect = partial(self._connect, checks[source], name, port, ready.tokens[task.id])
            answer = await connect()
            if answer is not None and answer["outcome"] == Reach.REFUSED:
                # The name may lead to another host, which is found out when it listens, too.
                await asyncio.gather(*(check.open for check in checks.values()))
                answer = await connect()
        pair = matrix.pair(source, task, address, answer)
        self._pairs[source, str(task.id)] = pair
        self._on_result(pair)
        if answer is None:
            return
        self._resolved.setdefault(task.host, set()).add(pair.resolved)
        finding = matrix.finding(pair, answer)
        said = (source, task.host if pair.by_name else str(task.id), pair.reach)
        if finding is not None and said not in self._said:
            self._said.add(said)
            self._tell(replace(finding, pair=pair))

    async def _connect(
        self, source: HostCheck, name: str, port: int, token: str
    ) -> dict[str, Any] | None:
        gate = self._gates.setdefault(source.name, asyncio.Semaphore(PROBES_AT_ONCE))
        try:
            async with gate:
                return await source.connect(name, port, token, matrix.CONNECT_SECONDS)
        except AgentError as error:
            self._tell(judge.unanswered(Check.REACH, Severity.ERROR, error))
            return None

    async def _compare(
        self, checks: dict[str, HostCheck], chief: str, others: tuple[str, ...], why: str
    ) -> None:
        found = {name: check.tensorflow for name, check in checks.items() if check.tensorflow}
        for finding in across.versions(found):
            self._tell(finding)
        for name in matrix.sources(self._plan):
            self._tell_reach(name)
            address = self._cluster.address(name)
            public = judge.address(name, address, sorted(self._resolved.get(name, set()) - {""}))
            if public is not None:
                self._tell(public)
        folder = checks[chief].folder if others else None
        if folder is None:
            return
        for name in others:
            check = checks[name]
            if check.folder is None:
                continue
            try:
                seen = await check.sees(folder, f".{self._plan.run_id}")
            except AgentError as error:
                self._tell(judge.unanswered(Check.LOGDIR, Severity.WARN, error))
                continue
            self._tell(across.sharing(name, chief, check.folder.path, why, seen=seen))

    def _tell_unset(self) -> None:
        """Variables that the tasks of a host would not get from this shell."""
        for host in self._plan.hosts:
            unset = unset_names(self._plan.on_host(host.name), os.environ)
            for name, tasks in unset.items():
                sentence = f"{unset_note(name, tasks)} would start without it"
                todo = f"export {name} before the launch, or take it out of env_from"
                brief = f"{name} is not set"
                self._tell(warning(Check.SHELL, "env-unset", host.name, brief, sentence, todo))

    def _tell_reach(self, source: str) -> None:
        """A host that reaches all it must."""
        pairs = [pair for pair in self._pairs.values() if pair.source == source]
        fine = [pair for pair in pairs if pair.reach in (Reach.OK, Reach.SLOW)]
        if pairs and len(fine) == len(pairs):
            brief = f"all {len(pairs)}" if len(pairs) > 1 else "reached"
            self._tell(passed(Check.REACH, source, brief, f"reaches all {len(pairs)} tasks"))

    def _tell(self, finding: Finding) -> None:
        self._findings.append(finding)
        self._on_result(finding)

    def _step(self, host: str, step: str, found: str) -> None:
        """A step of a login; one that is taken again after a dropped connection is told once."""
        check = Check(step)
        finding = passed(check, host, found, f"{_STEPS[check]} {found}")
        if not any(f.host == host and f.code == OK and f.check is check for f in self._findings):
            self._tell(finding)

    def _note(self, host: str, note: str) -> None:
        """Something odd in a known_hosts file; told once, for the first host that met it."""
        todo = "remove the line, or correct it"
        self._tell(
            Finding(Severity.WARN, Check.KEY, "known-hosts-odd", host, "odd line", note, todo)
        )

    def _accept(self, host: str, key: ShownKey) -> None:
        self._accepted.append((host, key))

    def _report(self, seconds: float) -> Report:
        hosts = tuple(host.name for host in self._plan.hosts)
        order = {name: number for number, name in enumerate(hosts)}
        findings = sorted(
            self._findings, key=lambda f: (order.get(f.host, -1), CHECKS.index(f.check))
        )
        return Report(
            name=self._cluster.name,
            hosts=hosts,
            findings=tuple(findings),
            pairs=tuple(
                self._pairs[source, str(task.id)]
                for source in matrix.sources(self._plan)
                for task in matrix.targets(self._plan, source)
            ),
            accepted=tuple(self._accepted),
            seconds=seconds,
        )
