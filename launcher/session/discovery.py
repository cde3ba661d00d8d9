"""Discovery of active runs, their hosts and tasks: hosts are asked, nothing is guessed."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from ..agent.messages import Gone
from ..errors import HostError, TfmuxError
from ..hosts.handshake import link_settings, query_agent
from ..hosts.ssh import SshConnector
from ..hosts.transport_factory import transport_factory
from ..ids import TaskId
from ..run.snapshot import Allocation
from ..run.states import RunPhase
from ..store.runs import RunFolder, UnreadableRun
from .attach import StoredRun
from .history import summary


@dataclass(frozen=True)
class ActiveHost:
    """One host of a run: the tasks whose processes its agent holds, or why it cannot say."""

    name: str
    tasks: tuple[TaskId, ...] = ()
    agent: bool = False
    """An agent of the run is there."""
    left: bool = False
    """No agent is there, but processes of the run are: `tfmux kill` ends them."""
    unreachable: str = ""


@dataclass(frozen=True)
class ActiveRun:
    """A run that may still live."""

    run_id: str
    name: str
    state: str
    launcher: int | None
    """The pid of the launcher that supervises it; None = unsupervised."""
    hosts: tuple[ActiveHost, ...]
    problem: str = ""
    """Parts of its record that could not be read."""
    queued: Allocation | None = None
    """The request for its nodes, while it waits for them."""
    queued_since: float = 0.0

    @property
    def alive(self) -> bool:
        """Something of it was seen, or a host could not be asked."""
        return self.launcher is not None or any(
            host.agent or host.left or host.unreachable for host in self.hosts
        )


@dataclass(frozen=True)
class ActiveRuns:
    """Active runs of this machine."""

    runs: tuple[ActiveRun, ...]
    unreadable: tuple[UnreadableRun, ...]
    """Runs that could not be looked at: they may live."""


async def active_runs() -> ActiveRuns:
    """All runs of this machine that have not ended with a clean receipt and are not gone.

    The hosts of a run that a launcher supervises are not asked: its journal says how it stands.
    """
    folders, unreadable = await asyncio.to_thread(RunFolder.scan)
    found = await asyncio.gather(*map(_look_safely, folders))
    return ActiveRuns(
        tuple(run for run in found if isinstance(run, ActiveRun) and run.alive),
        (*unreadable, *(run for run in found if isinstance(run, UnreadableRun))),
    )


async def _look_safely(folder: RunFolder) -> ActiveRun | UnreadableRun | None:
    try:
        return await _look(folder)
    except (TfmuxError, OSError) as error:
        return UnreadableRun(folder.run_id, str(error).partition("\n")[0])
    except Exception as error:  # whatever is wrong with one run must not hide the others
        return UnreadableRun(folder.run_id, f"{type(error).__name__}: {error}")


async def _look(folder: RunFolder) -> ActiveRun | None:
    if (await asyncio.to_thread(summary, folder)).over:
        return None  # without reading all that a long run has written
    run = await asyncio.to_thread(StoredRun, folder)
    if run.over:
        return None
    snapshot = run.snapshot()
    launcher = folder.launcher_pid()
    queued = snapshot.allocation if snapshot.state is RunPhase.QUEUED else None
    if launcher is not None and queued is not None:
        hosts: tuple[ActiveHost, ...] = ()
    elif launcher is not None:
        live = [view for view in snapshot.tasks if view.state.live]
        hosts = tuple(
            ActiveHost(host.name, tuple(v.id for v in live if v.host == host.name), agent=True)
            for host in snapshot.hosts
        )
    else:
        logins = SshConnector()
        hosts = tuple(await asyncio.gather(*(_ask(run, h.name, logins) for h in run.plan.hosts)))
        await logins.aclose()
    return ActiveRun(
        folder.run_id,
        snapshot.name,
        str(snapshot.state),
        launcher,
        hosts,
        run.damage.told(folder.run_id),
        queued,
        snapshot.waiting_since or snapshot.started,
    )


async def _ask(run: StoredRun, name: str, logins: SshConnector) -> ActiveHost:
    host = run.plan.host(name)
    allocation = run.run.allocation
    if allocation is not None and name not in run.run.nodes and not host.local:
        return ActiveHost(name, unreachable=f"not given yet, {allocation.title} is in the queue")
    settings = link_settings(run.plan, host, run.folder.path)
    try:
        welcome = await query_agent(settings, transport_factory(host, logins))
    except (HostError, OSError) as error:
        return ActiveHost(name, unreachable=getattr(error, "reason", str(error)))
    if welcome is None:
        return ActiveHost(name)
    if isinstance(welcome, Gone):
        return ActiveHost(name, tuple(task for task in welcome.left if task), left=True)
    tasks = [facts.task for facts in welcome.tasks if not facts.ended]
    return ActiveHost(name, tuple(dict.fromkeys(tasks)), agent=True)
