"""Discovery of active runs, their hosts and tasks: hosts are asked, nothing is guessed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..errors import HostError, TfmuxError
from ..hosts.frames import Gone
from ..ids import TaskId
from ..run.snapshot import AllocationView
from ..run.states import HostState, RunPhase
from ..store.runs import RunFolder, UnreadableRun
from .attach import StoredRun
from .history import SummaryReader

if TYPE_CHECKING:
    from ..hosts.ssh import SshConnector


def _object(**fields: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": fields,
        "required": list(fields),
        "additionalProperties": False,
    }


def _of(kind: str, about: str) -> dict[str, Any]:
    return {"type": kind, "description": about}


_HOST = _object(
    host=_of("string", "its name in the cluster file"),
    agent=_of("boolean", "an agent of the run is there"),
    left=_of("boolean", "no agent is there, but processes are: tfmux kill ends them"),
    tasks=_of("array", "tasks with a process there") | {"items": {"type": "string"}},
    unreachable=_of("string", "why it does not answer; empty if it does"),
)
_QUEUE = _object(**{name: {"type": "string"} for name in ("engine", "job", "state", "reason")})
ACTIVE_RUNS_SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "tfmux ps --json",
    "type": "array",
    "items": _object(
        run=_of("string", "its id"),
        name=_of("string", "name of its cluster"),
        state={
            "enum": [str(phase) for phase in RunPhase],
            "description": "its phase; without a launcher process the last one on record",
        },
        launcher={
            "type": ["integer", "null"],
            "description": "process id of its launcher process on this machine; null: unsupervised",
        },
        started=_of("number", "seconds since the epoch"),
        tasks=_of("integer", "number of its tasks, with a process or without"),
        attempt=_of("integer", "number of the start of all tasks"),
        attempt_text=_of("string", "`attempt 2 of 4: worker:1 exit 1 on tf2`; empty in the first"),
        queue={
            "anyOf": [_QUEUE, {"type": "null"}],
            "description": "the request for nodes that it waits for",
        },
        hosts=_of("array", "empty while it waits for nodes") | {"items": _HOST},
    ),
}
"""The schema of `tfmux ps --json`."""


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

    def record(self) -> dict[str, object]:
        """The host as `ACTIVE_RUNS_SCHEMA` describes it."""
        return {
            "host": self.name,
            "agent": self.agent,
            "left": self.left,
            "tasks": [str(task) for task in self.tasks],
            "unreachable": self.unreachable,
        }


@dataclass(frozen=True)
class ActiveRun:
    """A run that may still live."""

    run_id: str
    name: str
    state: RunPhase
    launcher: int | None
    """The pid of the launcher that supervises it; None = unsupervised."""
    started: float
    tasks: int
    hosts: tuple[ActiveHost, ...]
    problem: str = ""
    """Parts of its record that could not be read."""
    queued: AllocationView | None = None
    """The request for its nodes, while it waits for them."""
    queued_since: float = 0.0
    attempt: int = 1
    attempt_text: str = ""

    @property
    def alive(self) -> bool:
        """Something of it was seen, or a host could not be asked."""
        return self.launcher is not None or any(
            host.agent or host.left or host.unreachable for host in self.hosts
        )

    @property
    def live_tasks(self) -> int:
        """Number of tasks that have a process, on all hosts."""
        return sum(len(host.tasks) for host in self.hosts)

    def record(self) -> dict[str, object]:
        """The run as `ACTIVE_RUNS_SCHEMA` describes it."""
        queue = None
        if self.queued is not None:
            queue = {name: getattr(self.queued, name) for name in _QUEUE["properties"]}
        return {
            "run": self.run_id,
            "name": self.name,
            "state": str(self.state),
            "launcher": self.launcher,
            "started": self.started,
            "tasks": self.tasks,
            "attempt": self.attempt,
            "attempt_text": self.attempt_text,
            "queue": queue,
            "hosts": [host.record() for host in self.hosts],
        }


@dataclass(frozen=True)
class ActiveRuns:
    """Active runs of this machine."""

    runs: tuple[ActiveRun, ...]
    unreadable: tuple[UnreadableRun, ...]
    """Runs that could not be looked at: they may live."""


def active_runs() -> ActiveRuns:
    """All runs of this machine that have not ended with a clean receipt and are not gone.

    The hosts of a run that a launcher supervises are not asked: its stream says how it stands.
    Those of the others are, all at once. Blocking, and with an event loop of its own.
    """
    folders, unreadable = RunFolder.scan()
    found: list[ActiveRun] = []
    unsupervised: list[tuple[StoredRun, ActiveRun]] = []
    for folder in folders:
        try:
            looked = _read_run(folder)
        except Exception as error:  # whatever is wrong with one run must not hide the others
            unreadable.append(UnreadableRun(folder.run_id, _reason(error)))
            continue
        if looked is None:
            continue
        if looked[1].launcher is None:
            unsupervised.append(looked)
        found.append(looked[1])
    answers = _asked([run for run, _ in unsupervised]) if unsupervised else []
    for (_, run), answer in zip(unsupervised, answers, strict=True):
        at = found.index(run)
        if isinstance(answer, BaseException):
            unreadable.append(UnreadableRun(run.run_id, _reason(answer)))
            answer = ()
        found[at] = replace(run, hosts=answer)
    return ActiveRuns(tuple(run for run in found if run.alive), tuple(unreadable))


def _reason(error: BaseException) -> str:
    if isinstance(error, TfmuxError | OSError):
        return str(error).partition("\n")[0]
    return f"{type(error).__name__}: {error}"


def _read_run(folder: RunFolder) -> tuple[StoredRun, ActiveRun] | None:
    """The run as its stream tells it; None if it has ended."""
    reader = SummaryReader(folder)
    if reader.read().over:
        return None  # without reading all that a long run has written
    run = reader.run or StoredRun(folder)
    if run.over:
        return None
    snapshot = run.snapshot()
    launcher = folder.launcher_pid()
    queued = snapshot.allocation if snapshot.state is RunPhase.QUEUED else None
    hosts: tuple[ActiveHost, ...] = ()
    if launcher is not None and queued is None:
        live = [view for view in snapshot.tasks if view.state.live]
        hosts = tuple(
            ActiveHost(
                host.name,
                tuple(v.id for v in live if v.host == host.name),
                agent=host.state is HostState.UP,
                unreachable=host.reason or "lost" if host.state is HostState.LOST else "",
            )
            for host in snapshot.hosts
        )
    return run, ActiveRun(
        folder.run_id,
        snapshot.name,
        snapshot.state,
        launcher,
        snapshot.started,
        len(snapshot.tasks),
        hosts,
        run.damage.describe(folder.run_id),
        queued,
        snapshot.waiting_since or snapshot.started,
        snapshot.attempt,
        snapshot.attempt_text,
    )


def _asked(runs: Sequence[StoredRun]) -> list[tuple[ActiveHost, ...] | BaseException]:
    """Answers of the hosts of these runs, or the reasons for which they could not be asked."""
    # Slow to import, and needed only here.
    import asyncio

    from ..hosts.ssh import SshConnector
    from ..hosts.transport import allow_connections

    async def ask() -> list[tuple[ActiveHost, ...] | BaseException]:
        logins = SshConnector()
        allow_connections(sum(len(run.plan.hosts) for run in runs))

        async def hosts_of(run: StoredRun) -> tuple[ActiveHost, ...]:
            names = [host.name for host in run.plan.hosts]
            return tuple(await asyncio.gather(*(_ask(run, name, logins) for name in names)))

        try:
            return await asyncio.gather(*map(hosts_of, runs), return_exceptions=True)
        finally:
            await logins.aclose()

    return asyncio.run(ask())


async def _ask(run: StoredRun, name: str, logins: SshConnector) -> ActiveHost:
    from ..hosts.bootstrap import LinkSettings, query_agent
    from ..hosts.ways import transport_factory

    host = run.plan.host(name)
    allocation = run.run.allocation
    if allocation is not None and name not in run.run.nodes and not host.local:
        return ActiveHost(name, unreachable=f"not given yet, {allocation.title} is in the queue")
    settings = LinkSettings.of(run.plan, host, run.folder.path)
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
