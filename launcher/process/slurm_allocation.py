"""Allocation of a run's nodes by Slurm: queue, nodes and their names, an end from outside, release.

What Slurm says becomes events of the run; nothing here decides what follows.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from ..cluster.file_model import Slurm, node_name
from ..errors import HostError, TfmuxError
from ..ids import TaskId
from ..plan.run_plan import HostPlan, Plan
from ..preflight.findings import Reach
from ..preflight.probes import ConnectAnswer
from ..preflight.reachability import REACH_SECONDS, sources
from ..run import events as ev
from ..run.snapshot import AllocatedNode
from ..run.states import HostState
from ..slurm.job import JobState, SlurmJob, slurm_job
from ..slurm.login import MissingProgramError, NoAnswerError, SlurmError
from .core import Core
from .preparation import Ask

if TYPE_CHECKING:
    from ..hosts.ssh import SshConnector

FIRST_PACE, LAST_PACE = 2.0, 15.0
"""Seconds between two looks at the queue: sites complain of more than that."""
_LOST_PACE = 5.0
_COMPLETING = "COMPLETING"
_WORD_PACE = 0.5
_WORD_SECONDS = 8.0
_DOUBT_SECONDS = 20.0
"""How long Slurm's word is waited for: where all agents have confirmed, and elsewhere."""
_FIND_SECONDS = 4.0
"""How long a job is looked for by its name whose request got no answer."""
_ANSWER_SECONDS = 90.0
_GIVE_UP_SECONDS = 5.0
"""How long the end of a look at the queue is waited for that is given up."""


class Allocation:
    """The job in Slurm, from the request to its release."""

    def __init__(self, core: Core, job: SlurmJob, *, attached: bool, launcher: str = "") -> None:
        """
        Args:
            attached: another launcher may have asked for the nodes already.
            launcher: the name by which nodes must know this machine, if any.
        """
        self._core, self._data = core, core.data
        self._slurm = job
        self._attached = attached
        self._launcher = launcher
        known = self._data.allocation
        self._job = known.job if known is not None else ""
        self._request: asyncio.Task[str] | None = None
        self._find_seconds = _FIND_SECONDS if self._attached and not self._job else None
        """How long a job is looked for whose id is not known; None: there can be none."""
        self._end: JobState | None = None
        self._look_now = asyncio.Event()
        self._forced = asyncio.Event()
        self._waiting: asyncio.Task[None] | None = None

    @classmethod
    def of(cls, core: Core, table: Slurm, logins: SshConnector | None, *, attached: bool) -> Self:
        """The allocation that `[slurm]` describes; `srun` runs here, and Slurm must know this
        machine, where no `login` is named."""
        launcher = socket.gethostname() if table.login is None else ""
        job = slurm_job(table, core.data.plan, logins)
        return cls(core, job, attached=attached, launcher=launcher)

    async def check_names(
        self, plan: Plan, ask: Ask, ports: Mapping[TaskId, int]
    ) -> Iterable[ev.Event]:
        """Whether nodes with tasks of the cluster find each other, by the names and ports of the
        cluster spec, and whether the first one knows this machine where it must. Nothing listens
        there yet, so a connection that is refused is as good as one."""
        launcher, names = self._launcher, sources(plan)
        nodes = [plan.host(name) for name in names if plan.host(name).has_agent]
        neighbours = {
            node.name: [nodes[(at + step) % len(nodes)] for step in range(1, _steps(nodes))]
            for at, node in enumerate(nodes)
        }
        asked = [
            [(other.address, _port(plan, ports, other)) for other in neighbours[node.name]]
            for node in nodes
        ]
        if nodes and launcher:
            asked[0].append((launcher, _ANY_PORT))
        asking = (_connect(ask, node, places) for node, places in zip(nodes, asked, strict=True))
        found = await asyncio.gather(*asking)
        events: list[ev.Event] = []
        for node, answers in zip(nodes, found, strict=True):
            for other, answer in zip(neighbours[node.name], answers, strict=False):
                if text := _problem(node, other, answer):
                    doomed = answer.outcome in _DOOMED
                    kind = ev.HostRefused(time.time(), node.name, text) if doomed else None
                    events.append(kind or ev.NoteAdded(time.time(), f"{node.name}: {text}"))
        if nodes and launcher and found[0] and Reach(found[0][-1].outcome) is Reach.UNRESOLVED:
            text = f"{nodes[0].address} cannot resolve {launcher}, the name of this machine: where "
            text += "slurmctld cannot either, each job takes ten seconds to end; add the name to "
            text += "the name servers or /etc/hosts there, or use login"
            events.append(ev.NoteAdded(time.time(), text))
        return events

    async def supervise(self) -> None:
        """Waits for the nodes, and then for an end of the job that the run does not know of."""
        self._waiting = asyncio.current_task()
        with suppress(asyncio.CancelledError):  # `release` does not need it any more
            if self._data.nodes or await self._queue():
                await self._watch()

    def poll_soon(self) -> None:
        """Something happened to a host or a task: the job may have ended."""
        self._look_now.set()

    def force(self) -> None:
        """Slurm's word is not waited for any more."""
        self._forced.set()

    # --- the queue ------------------------------------------------------------------------

    async def _queue(self) -> bool:
        """True when there are nodes."""
        try:
            if not self._job and self._attached:
                self._job = await self._slurm.find()
                if not self._job:  # whoever comes back to a run does not ask for new nodes
                    raise SlurmError("there is no job of this run")
            if not self._job:
                await self._slurm.connect()
                self._request = asyncio.create_task(self._slurm.request())
                self._job = await asyncio.shield(self._request)
        except TfmuxError as error:
            self._core.feed(ev.AllocationEnded(time.time(), f"Slurm: {error}", "REFUSED"))
            return False
        self._core.feed(ev.Queued(time.time(), self._job))
        pace, told, warned = FIRST_PACE, None, self._request is None
        while True:
            state = await self._poll()
            if state is not None:
                if state.over:
                    self._report_end(state)
                    return False
                if state.nodes:
                    taken = self._accept_nodes(state)
                    if not warned:
                        await self._warn()
                    return taken
                if state != told:
                    self._core.feed(
                        ev.Queued(
                            time.time(),
                            self._job,
                            state.state,
                            state.reason,
                            state.expected,
                            state.advice,
                        )
                    )
                told = state
            if not warned:  # behind the first look: nodes that are there do not wait for it
                warned = True
                await self._warn()
            await asyncio.sleep(pace)
            pace = min(LAST_PACE, pace * 1.25)

    async def _warn(self) -> None:
        """Notes what `tfmux check` would have warned of."""
        with suppress(TfmuxError):
            for finding in await self._slurm.cautions():
                todo = f"; {finding.todo}" if finding.todo else ""
                text = f"Slurm: {finding.text}{todo}"
                self._core.note(text)

    def _accept_nodes(self, state: JobState) -> bool:
        """False when they are not enough: a node may fail before the job has started."""
        hosts = self._hosts(state)
        missing = [host.name for host in self._data.plan.hosts if host.name not in hosts]
        if missing:
            text = f"{self._title} has {len(state.nodes)} nodes only: there is none for "
            text += ", ".join(missing)
            self._core.feed(ev.AllocationEnded(time.time(), text, "TOO FEW NODES"))
            return False
        self._core.feed(ev.Allocated(time.time(), hosts))
        return True

    def _hosts(self, state: JobState) -> Mapping[str, AllocatedNode]:
        return {
            node_name(number): AllocatedNode(node, self._slurm.reach(self._job, node))
            for number, node in enumerate(state.nodes)
        }

    async def _poll(self) -> JobState | None:
        """Asks for the state of the job; None if Slurm does not answer."""
        try:
            return await self._slurm.poll(self._job)
        except TfmuxError:
            return None

    def _report_end(self, state: JobState) -> None:
        self._end = state
        self._core.feed(ev.AllocationEnded(time.time(), self._sentence(state), state.state))

    @property
    def _title(self) -> str:
        return f"Slurm {self._job}".rstrip()

    @property
    def _share(self) -> str:
        """The run's part of what Slurm has given."""
        return self._title if self._slurm.owns_job else f"this run's part of {self._title}"

    def _sentence(self, state: JobState) -> str:
        why = f" ({state.reason})" if state.reason else ""
        todo = f"; {state.advice}" if state.over and state.advice else ""
        how = "has ended" if state.over else "was put back into the queue"
        return f"{self._share} {how}: {state.state}{why}{todo}"

    # --- ends from outside ----------------------------------------------------------------

    async def _watch(self) -> None:
        """Asks when a host is lost or a task has ended, and while hosts are lost; beats tell the
        rest."""
        if not self._attached:
            await self._look_now.wait()
        while True:
            self._look_now.clear()
            state = await self._poll()
            states = {view.state for view in self._data.hosts.values()}
            heard = state is not None and state.unknown and HostState.UP in states
            if state is not None and (state.over or not state.nodes) and not heard:
                self._report_end(state)
                return
            lost = HostState.LOST in states
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOST_PACE if lost else None):
                    await self._look_now.wait()
            await asyncio.sleep(0.2)  # several tasks end together, and squeue is asked once

    # --- release --------------------------------------------------------------------------

    async def release(self) -> None:
        """Cancels the job whatever became of it, and tells what Slurm says of the nodes."""
        if self._waiting is not None:
            self._waiting.cancel()
            await asyncio.wait([self._waiting], timeout=_GIVE_UP_SECONDS)
        await self._await_answer()
        end: JobState | None = None
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                text, words = await self._released()
                if self._end is not None and self._end.state == _COMPLETING:
                    end = await self._poll()  # only then does Slurm say how it has ended
        except (TfmuxError, TimeoutError) as error:
            said = str(error) or "no answer"
            text = f"{self._share} could not be released: {said}; when Slurm "
            text += f"answers again: {self._slurm.cancel_command(self._job)}"
            words = self._all("Slurm did not answer") if self._data.nodes else {}
        state, reason = (end.state, self._sentence(end)) if end is not None else ("", "")
        self._core.feed(ev.AllocationReleased(time.time(), text, words, state, reason))

    async def _released(self) -> tuple[str, dict[str, ev.EngineWord]]:
        if not self._job and self._find_seconds is not None:
            self._job = await self._find(self._find_seconds)
        if not self._job and self._find_seconds and self._request is not None:
            text = f"{self._title} gave no answer to the request and has no job of this run; "
            return text + f"if it starts after all: {self._slurm.cancel_command('')}", {}
        if not self._job:
            return "", {}
        views = self._data.hosts.values()
        if self._end is None and any(view.state is HostState.REFUSED for view in views):
            state = await self._poll()  # the agents may have ended at once, and the job with them
            if state is not None and state.over:
                self._report_end(state)
        await self._slurm.release(self._job)
        stays = "" if self._slurm.owns_job else f"; {self._title} is yours and stays"
        released = f"{self._share} is released{stays}"
        if not self._data.nodes and self._end is None and self._slurm.owns_job:
            return f"{self._title} was cancelled in the queue: nothing had started", {}
        return released, await self._words() if self._data.nodes else {}

    async def _await_answer(self) -> None:
        """Waits for the answer to a request that is under way: given up, it may still be carried
        out, and nobody would know the job. A person who presses twice does not wait."""
        request = self._request
        if request is None:
            return
        forced = asyncio.create_task(self._forced.wait())
        await asyncio.wait([request, forced], return_when=asyncio.FIRST_COMPLETED)
        forced.cancel()
        request.cancel()
        await asyncio.wait([request])
        error = None if request.cancelled() else request.exception()
        if request.cancelled() or isinstance(error, NoAnswerError):
            self._find_seconds = _FIND_SECONDS
        elif error is None:
            self._job = request.result()
        elif not isinstance(error, MissingProgramError):
            self._find_seconds = 0.0  # sbatch fails, too, when only its answer has not come

    async def _find(self, seconds: float) -> str:
        """The job of a request that got no answer; it may come a moment later. Where Slurm has
        refused it, its silence now is nothing to report."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                job = await self._slurm.find()
            except TfmuxError:
                if seconds:
                    raise
                return ""
            if job or time.monotonic() > deadline:
                return job
            await asyncio.sleep(_WORD_PACE)

    async def _words(self) -> dict[str, ev.EngineWord]:
        """Statements of Slurm about the hosts, once all have come or it takes too long."""
        hosts = {
            host: self._data.nodes[host].name
            for host in self._data.contacted_hosts
            if host in self._data.nodes
        }
        if not hosts:
            return {}
        patience = _DOUBT_SECONDS if self._data.unconfirmed else _WORD_SECONDS
        if self._end is not None and _inside(self._job):
            patience = 0.0
        deadline = time.monotonic() + patience
        while True:
            try:
                said = await self._slurm.words(self._job, list(hosts.values()))
            except TfmuxError as error:
                return self._all(f"Slurm did not answer: {error}")
            words = {host: said[node] for host, node in hosts.items()}
            left = deadline - time.monotonic()
            if all(word.final for word in words.values()) or left <= 0 or self._forced.is_set():
                return words
            with suppress(TimeoutError):
                async with asyncio.timeout(_WORD_PACE):
                    await self._forced.wait()

    def _all(self, text: str) -> dict[str, ev.EngineWord]:
        return {host: ev.EngineWord(False, text) for host in self._data.contacted_hosts}


def _inside(job: str) -> bool:
    """This process is on a node of the job, such as by `exec tfmux up` in its batch script. When
    the job ends, Slurm waits for this very process, and soon kills it."""
    return os.environ.get("SLURM_JOB_ID") == job and "SLURMD_NODENAME" in os.environ


_NEIGHBOURS = 8
"""Other nodes that each node looks at: all of them in a small cluster."""
_ANY_PORT = 1
_SLOWEST = REACH_SECONDS + 10.0
_DOOMED = (Reach.UNRESOLVED, Reach.NO_ROUTE)


def _steps(nodes: list[HostPlan]) -> int:
    return min(_NEIGHBOURS + 1, len(nodes))


def _port(plan: Plan, ports: Mapping[TaskId, int], node: HostPlan) -> int:
    task = plan.on_host(node.name)[0]
    return task.port or ports[task.id]


async def _connect(ask: Ask, node: HostPlan, places: list[tuple[str, int]]) -> list[ConnectAnswer]:
    """Nothing when the host does not say it: that is no reason to stop."""
    if not places:
        return []
    asked = [
        {"host": name, "port": port, "token": "", "seconds": REACH_SECONDS} for name, port in places
    ]
    try:
        return await ask(node.name, ConnectAnswer, _SLOWEST, asked)
    except HostError:
        return []


def _problem(node: HostPlan, other: HostPlan, answer: ConnectAnswer) -> str:
    said = f" ({answer.text})" if answer.text else ""
    match answer.outcome:
        case Reach.UNRESOLVED:
            return (
                f"{node.address} cannot resolve {other.address}, the name of {other.name}{said}; "
                "add it to the name servers or /etc/hosts of the nodes"
            )
        case Reach.NO_ROUTE:
            return (
                f"{node.address} has no route to {other.address} ({other.name}){said}; ask the "
                "administrator of the cluster, or use other nodes (--exclude in options)"
            )
        case Reach.FILTERED:
            return (
                f"{node.address} gets no answer from {other.address} ({other.name}): a firewall "
                "may drop the packets"
            )
        case _:
            return ""
