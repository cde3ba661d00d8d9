"""Preflight of a cluster: checks all hosts at the same time and makes one report."""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from ..cluster.addresses import join
from ..cluster.file_model import ClusterModel, hook_problem
from ..errors import AgentError, TfmuxError
from ..files.listing import MARKER
from ..files.trees import CopiedFiles
from ..hosts.auth_prompt import PromptHandler
from ..hosts.other_names import read_other_names
from ..hosts.transport import allow_connections
from ..hosts.ways import ssh_connector
from ..ids import TaskId, new_run_id
from ..plan.planner import make_plan
from ..plan.run_plan import Plan, TaskPlan, unset_names, unset_note
from ..plan.shell_text import hook_texts
from ..slurm.job import SlurmJob, slurm_job
from ..slurm.limits import LimitsVerdict, SlurmFinding, Subject
from ..slurm.login import SlurmError
from ..slurm.script import JobRequest, request_of
from . import evaluation, reachability
from .findings import (
    CHECKS,
    ENGINE_CHECKS,
    OK,
    Check,
    Finding,
    Reach,
    Reachability,
    Result,
    Severity,
    blocking,
    passed,
    warning,
)
from .host import HostCheck
from .probes import ConnectAnswer, ProbeSession
from .report import Report

if TYPE_CHECKING:
    from ..hosts.host_keys import HostKey

PROBES_AT_ONCE = 32
_MARK_SECONDS = 3600.0
"""Age from which on a mark in the workdir is nobody's: a preflight takes seconds."""
_SLURM = "Slurm"
_CHECKS = {Subject.REQUEST: Check.QUEUE, Subject.LIMITS: Check.LIMITS}
_HOOK_TODO = "correct the program, or install it on this machine"
_STEPS = {
    Check.NAME: "name resolves to",
    Check.TCP: "connected in",
    Check.SSH: "SSH server:",
    Check.KEY: "host key:",
    Check.LOGIN: "logged in",
}


async def preflight(
    cluster: ClusterModel,
    ask: PromptHandler | None = None,
    on_result: Callable[[Result], None] = lambda result: None,
    *,
    accept_new: bool = False,
) -> Report:
    """Checks every host of a cluster; starts nothing.

    Each result goes to `on_result` as soon as it is known, on this loop; there may be several
    findings of one host and check. `ask` answers what only a person can (`auth_prompt.AuthPrompt`),
    `accept_new` trusts unknown host keys. The programs on the hosts end even when it is cancelled.
    """
    if cluster.slurm is not None:
        logins = ssh_connector(ask, accept_new=accept_new)
        plan = make_plan(cluster, new_run_id("check"))
        engine = slurm_job(cluster.slurm, plan, logins)
        try:
            request = request_of(cluster, plan)
            return await _check_queue(cluster, plan, engine, request, on_result)
        finally:
            await logins.aclose()
    allow_connections(len(cluster.hosts))
    cluster = cluster.with_addresses((await read_other_names(cluster)).addresses)
    return await _Preflight(cluster, ask, on_result, accept_new).run()


async def _check_queue(
    cluster: ClusterModel,
    plan: Plan,
    job: SlurmJob,
    request: JobRequest | None,
    on_result: Callable[[Result], None],
) -> Report:
    """Asks Slurm whether it would take the request, and what matters to a kill. `request` is only
    shown."""
    began = time.monotonic()
    findings: list[Finding] = []

    def add(finding: Finding) -> None:
        findings.append(finding)
        on_result(finding)

    for found in evaluation.restarts(cluster, Check.QUEUE, _SLURM):
        add(found)
    for found in evaluation.endings(plan, Check.QUEUE, _SLURM):
        add(found)
    for host in plan.hosts:
        for found in evaluation.backgrounds(plan, host.name, Check.QUEUE, _SLURM):
            add(found)
        for found in evaluation.shell_words(cluster, plan, host.name, Check.QUEUE, _SLURM):
            add(found)
        await _check_versions_of_programs(plan, host.name, Check.QUEUE, _SLURM, add)
    await _check_hooks(cluster, Check.QUEUE, _SLURM, add)
    await _check_files(make_plan(cluster, new_run_id("check")), add)
    try:
        async for finding in job.examine():
            add(_finding(finding))
    except TfmuxError as error:
        what, todo = str(error), ""
        if isinstance(error, SlurmError):
            what, todo = error.what, error.todo
        about = (Check.QUEUE, "slurm-refused", _SLURM, "refused")
        add(blocking(*about, what, todo or "correct [slurm]"))
    return Report(
        name=cluster.name,
        hosts=(_SLURM,),
        findings=tuple(findings),
        reachability=(),
        accepted=(),
        seconds=time.monotonic() - began,
        request=request,
        checks=ENGINE_CHECKS,
    )


async def _check_files(plan: Plan, add: Callable[[Finding], None]) -> None:
    """Reports what is copied to the nodes, and that of each kind once."""
    files, told = CopiedFiles(plan), set()
    for host in plan.hosts:
        if not plan.copies(host):
            continue
        try:
            async for finding in evaluation.copies(files, plan, host, _SLURM):
                if finding.brief not in told:
                    told.add(finding.brief)
                    add(finding)
        except TfmuxError as error:
            add(evaluation.refused(_SLURM, str(error)))
            return


def _finding(finding: SlurmFinding) -> Finding:
    check = _CHECKS[finding.about]
    if finding.verdict is LimitsVerdict.PASSED:
        return passed(check, _SLURM, finding.brief, finding.text)
    return warning(check, finding.code, _SLURM, finding.brief, finding.text, finding.todo)


async def _check_versions_of_programs(
    plan: Plan, host: str, check: Check, cell: str, report: Callable[[Finding], None]
) -> None:
    found = await asyncio.to_thread(
        lambda: list(evaluation.programs_of_tensorflow_1(plan, host, check, cell))
    )
    for finding in found:
        report(finding)


async def _check_hooks(
    cluster: ClusterModel, check: Check, host: str, report: Callable[[Finding], None]
) -> None:
    """Warns of hooks that could not be run, and of words in them that only a shell would read, in
    the cell of `check` and `host`: a run goes on without them."""
    for key, text in hook_texts(cluster):
        sentence = f"{cluster.where('hooks', key)}: {text.what}"
        report(warning(check, "shell-text", host, f"{key}: shell text", sentence, text.todo))
    for key, command in cluster.hooks:
        if command is None:
            continue
        if problem := await asyncio.to_thread(hook_problem, command, cluster.base):
            sentence = f"{cluster.where('hooks', key)}: {problem}, here on the launching machine"
            report(warning(check, "hook-missing", host, f"{key}: missing", sentence, _HOOK_TODO))


@contextmanager
def _shared_mark(plan: Plan) -> Iterator[tuple[str, ...]]:
    """Makes a file in the workdir, by which a host that has the same directory is known, and
    removes it; its paths, none where no host gets a copy or nothing can be written."""
    if plan.workdir is None or not any(plan.copies(host) for host in plan.hosts):
        yield ()
        return
    path = str(plan.workdir / f"{MARKER}{secrets.token_hex(8)}")
    with suppress(OSError):
        for left in plan.workdir.glob(f"{MARKER}*"):  # by a preflight that was killed
            if time.time() - left.lstat().st_mtime > _MARK_SECONDS:
                left.unlink()
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except OSError:
        path = ""
    try:
        yield tuple(dict.fromkeys((path, os.path.realpath(path)))) if path else ()
    finally:
        if path:
            with suppress(OSError):
                os.unlink(path)


class _Preflight:
    def __init__(
        self,
        cluster: ClusterModel,
        ask: PromptHandler | None,
        on_result: Callable[[Result], None],
        accept_new: bool,
    ) -> None:
        self._cluster = cluster
        self._plan: Plan = make_plan(cluster, new_run_id("check"))
        self._on_result = on_result
        self._findings: list[Finding] = []
        self._pairs: dict[tuple[str, str], Reachability] = {}
        self._accepted: list[tuple[str, HostKey]] = []
        self._resolved: dict[str, set[str]] = {}
        self._told_reach: set[tuple[str, str, TaskId | None, Reach]] = set()
        self._logins = ssh_connector(
            ask,
            accept_new=accept_new,
            on_step=self._step,
            on_accepted=self._accept,
            on_note=self._note,
        )
        self._names_peers = reachability.names_peers(cluster)
        self._gates: dict[str, asyncio.Semaphore] = {}

    async def run(self) -> Report:
        began = time.monotonic()
        chief, others, why = evaluation.sharers(self._plan)
        self._report_unset()
        cell = (Check.COMMAND, self._plan.hosts[0].name)
        for finding in evaluation.restarts(self._cluster, *cell):
            self._add_finding(finding)
        for finding in evaluation.endings(self._plan, *cell):
            self._add_finding(finding)
        await _check_hooks(self._cluster, *cell, self._add_finding)
        for host in self._plan.hosts:
            about = (host.name, Check.COMMAND, host.name)
            for finding in evaluation.backgrounds(self._plan, *about):
                self._add_finding(finding)
            for finding in evaluation.shell_words(self._cluster, self._plan, *about):
                self._add_finding(finding)
            await _check_versions_of_programs(self._plan, *about, self._add_finding)
        try:
            async with AsyncExitStack() as sessions:
                checks = self._open_all(sessions)
                async with asyncio.TaskGroup() as group:
                    for name, check in checks.items():
                        keep = name == chief and bool(others)
                        group.create_task(check.run(keep_mark=keep))
                    for source in reachability.sources(self._plan):
                        for task in reachability.targets(self._plan, source):
                            group.create_task(self._reach(checks, source, task))
                await self._compare(checks, chief, others, why)
        finally:
            await self._logins.aclose()
        return self._report(time.monotonic() - began)

    def _open_all(self, sessions: AsyncExitStack) -> dict[str, HostCheck]:
        """The checks of each host; their sessions will be closed at the same time."""
        mark = f".{self._plan.run_id}"
        files = CopiedFiles(self._plan)
        shared = sessions.enter_context(_shared_mark(self._plan))
        checks = {}
        for host in self._plan.hosts:
            session = ProbeSession(host, self._plan.run_id, self._logins)
            check = HostCheck(
                self._cluster, self._plan, host, session, self._add_finding, mark, files, shared
            )
            checks[host.name] = check

        async def close_all() -> None:
            await asyncio.gather(*(check.session.aclose() for check in checks.values()))

        sessions.push_async_callback(close_all)
        return checks

    async def _reach(self, checks: dict[str, HostCheck], source: str, task: TaskPlan) -> None:
        """Tries one connection, as soon as both of its ends are ready."""
        name = self._cluster.address(task.host)
        ready = await checks[task.host].listening
        port = task.port if ready is None else ready.ports[task.id]
        address = join(name, port)
        here = await checks[source].listening
        answer = None
        if ready is not None and here is not None and task.id in ready.tokens and port:
            connect = partial(self._connect, checks[source], task, port, ready.tokens[task.id])
            answer = await connect()
            if answer is not None and Reach(answer.outcome) is Reach.REFUSED:
                # The name may lead to another host, which is found out when it listens, too.
                await asyncio.gather(*(check.listening for check in checks.values()))
                answer = await connect()
        pair = reachability.outcome(source, task, address, answer)
        self._pairs[source, str(task.id)] = pair
        self._on_result(pair)
        if answer is None:
            return
        self._resolved.setdefault(task.host, set()).add(pair.resolved)
        finding = reachability.finding(pair, answer)
        if finding is not None and not self._names_peers:
            finding = replace(finding, severity=Severity.WARN)
        if finding is not None:
            about = (finding.host, finding.other, finding.task, pair.reach)
            if about not in self._told_reach:
                self._told_reach.add(about)
                self._add_finding(finding)

    async def _connect(
        self, source: HostCheck, task: TaskPlan, port: int, token: str
    ) -> ConnectAnswer | None:
        name = self._cluster.address(task.host)
        gate = self._gates.setdefault(source.name, asyncio.Semaphore(PROBES_AT_ONCE))
        try:
            async with gate:
                return await source.connect(name, port, token, reachability.REACH_SECONDS)
        except AgentError as error:
            finding = evaluation.unanswered(Check.REACH, Severity.ERROR, error)
            self._add_finding(replace(finding, task=task.id, other=task.host))
            return None

    async def _compare(
        self, checks: dict[str, HostCheck], chief: str, others: tuple[str, ...], why: str
    ) -> None:
        found = {name: check.tensorflow for name, check in checks.items() if check.tensorflow}
        for finding in evaluation.versions(found):
            self._add_finding(finding)
        for name in reachability.sources(self._plan):
            self._report_reachability(name)
            address = self._cluster.address(name)
            public = evaluation.address(
                name, address, sorted(self._resolved.get(name, set()) - {""})
            )
            if public is not None:
                self._add_finding(public)
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
                self._add_finding(evaluation.unanswered(Check.LOGDIR, Severity.WARN, error))
                continue
            self._add_finding(evaluation.sharing(name, chief, check.folder.path, why, seen=seen))

    def _report_unset(self) -> None:
        """Warns of variables that the tasks of a host would not get from this shell."""
        for host in self._plan.hosts:
            unset = unset_names(self._plan.on_host(host.name), os.environ)
            for name, tasks in unset.items():
                sentence = f"{unset_note(name, tasks)} would start without it"
                todo = f"export {name} before the launch, or remove it from env_from"
                brief = f"{name} is not set"
                self._add_finding(
                    warning(Check.SHELL, "env-unset", host.name, brief, sentence, todo)
                )

    def _report_reachability(self, source: str) -> None:
        """Reports a host that reaches every task that it must reach."""
        pairs = [pair for pair in self._pairs.values() if pair.source == source]
        fine = [pair for pair in pairs if pair.reach in (Reach.OK, Reach.SLOW)]
        if pairs and len(fine) == len(pairs):
            brief = f"all {len(pairs)}" if len(pairs) > 1 else "reached"
            self._add_finding(
                passed(Check.REACH, source, brief, f"{source} reaches {len(pairs)} tasks")
            )

    def _add_finding(self, finding: Finding) -> None:
        self._findings.append(finding)
        self._on_result(finding)

    def _step(self, host: str, step: str, found: str) -> None:
        """Reports a step of a login; one repeated after a dropped connection is reported once."""
        check = Check(step)
        finding = passed(check, host, found, f"{_STEPS[check]} {found}")
        if not any(f.host == host and f.code == OK and f.check is check for f in self._findings):
            self._add_finding(finding)

    def _note(self, host: str, note: str) -> None:
        """Warns of a line in a known_hosts file, for the first host that came across it."""
        todo = "remove or correct the line"
        self._add_finding(
            Finding(Severity.WARN, Check.KEY, "known-hosts-odd", host, "odd line", note, todo)
        )

    def _accept(self, host: str, key: HostKey) -> None:
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
            reachability=tuple(
                self._pairs[source, str(task.id)]
                for source in reachability.sources(self._plan)
                for task in reachability.targets(self._plan, source)
            ),
            accepted=tuple(self._accepted),
            seconds=seconds,
        )
