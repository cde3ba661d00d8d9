"""Runs of this machine in lists: what their folders and their hosts say, and `tfmux ps --json`."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import ConfigDict, Field, PlainSerializer, TypeAdapter

from ..errors import HostError, TfmuxError
from ..frozen import frozen
from ..ids import TaskId
from ..paths import Stamp, default_runs_home, runs_home
from ..run.gpus import GpuView
from ..run.leaving import waits
from ..run.snapshot import AllocationView, HostView, RunView, Snapshot
from ..run.states import HostState, RunPhase
from ..store.launcher_socket import told_state
from ..store.living_runs import LivingRun, entries, without_folder
from ..store.runs import RunFolder, UnreadableRun, one_of_copies, removed_text
from ..store.stream import Summary, read_end, read_stream

if TYPE_CHECKING:
    from ..hosts.ssh import SshConnector
    from .stored import StoredRun


_TYPES = ConfigDict(
    extra="forbid",
    use_attribute_docstrings=True,
    json_schema_serialization_defaults_required=True,
    arbitrary_types_allowed=True,
)


@frozen
class Queue:
    """A request for nodes, as `tfmux ps --json` has it."""

    __pydantic_config__ = _TYPES

    engine: str
    job: str
    state: str
    reason: str

    @classmethod
    def of(cls, allocation: AllocationView | None) -> Queue | None:
        """A request in short."""
        if allocation is None:
            return None
        return cls(allocation.engine, allocation.job, allocation.state, allocation.reason)


@frozen
class ActiveHost:
    """One host of a run: the tasks whose processes its agent holds, or why it cannot say."""

    __pydantic_config__ = _TYPES

    name: Annotated[str, Field(serialization_alias="host")]
    """The host's name in the cluster file."""
    tasks: tuple[TaskId, ...] = ()
    """Tasks with a process there."""
    agent: bool = False
    """An agent of the run is there."""
    left: bool = False
    """No agent is there, but processes of the run are: `tfmux kill` ends them."""
    doubt: bool = False
    """An agent has ended there without proof: until the host boots there may be processes that
    nobody knows."""
    unreachable: str = ""
    """Why it does not answer; empty if it does."""
    local: bool = False
    """Whether this is the launching machine."""
    lease: float | None = None
    """Seconds for which it waits without a launcher, as it has confirmed; null where that ends
    nothing (`on_disconnect = "keep"`), and where it is not known."""
    gpus: tuple[GpuView, ...] = ()
    """Its GPUs, as the run's launcher has recorded them last: their processes are new, their load
    may be old."""


@frozen
class ListedRun:
    """A run in lists: its summary, and what this machine and its hosts say of it."""

    __pydantic_config__ = _TYPES

    summary: Summary
    """The run as its stream tells it, or its launcher process; nameless where neither does."""
    folder: Annotated[RunFolder, Field(exclude=True)]
    problem: Annotated[str, Field(exclude=True)] = ""
    """Parts of its record that could not be read."""
    launcher: int | None = None
    """Process id of its launcher process on this machine; null: unsupervised."""
    background: bool = False
    """The run has been left, and goes on without a screen."""
    detached_lease: float | None = None
    """Seconds for which its hosts are asked to wait without this machine in the background."""
    waits: Annotated[tuple[str, ...], Field(exclude=True)] = ()
    """What its hosts do without this machine: sentences."""
    hosts: tuple[ActiveHost, ...] = ()
    """Empty while it waits for nodes."""
    asked: Annotated[bool, Field(exclude=True)] = False
    """`hosts` are those that hold something of it now, or could not be asked."""
    queued: Annotated[
        AllocationView | None,
        PlainSerializer(Queue.of, return_type=Queue | None),
        Field(serialization_alias="queue"),
    ] = None
    """The request for nodes that it waits for."""
    queued_since: Annotated[float, Field(exclude=True)] = 0.0
    job_ended: str = ""
    """How the job that gave its nodes has ended; empty where that goes on, or there is none."""

    @classmethod
    def of(cls, folder: RunFolder, seen: Summary, problem: str = "") -> ListedRun:
        """The run in this folder, whatever its stream calls it."""
        started = seen.started or folder.launched
        return cls(replace(seen, run_id=folder.run_id, started=started), folder, problem)

    @property
    def key(self) -> str:
        """Key of its row in a table."""
        return f"run {self.folder.path.name}"

    @property
    def over(self) -> bool:
        """The run ended, no process is left, and its record was read whole."""
        return self.summary.ended is not None and bool(self.summary.clean) and not self.problem

    @property
    def active(self) -> bool:
        """The run has a launcher process, or its hosts hold something of it, may hold something, do
        not answer or have not been asked."""
        if self.launcher is not None:
            return True
        if self.over or self.folder.forgotten:
            return False
        return not self.asked or any(
            host.agent or host.left or host.doubt or host.unreachable for host in self.hosts
        )

    @property
    def live_tasks(self) -> int:
        """Number of tasks that have a process, on all hosts."""
        return sum(len(host.tasks) for host in self.hosts)


class RunReader:
    """Reads one run for a list, again and again: the end of its stream, or all of it where that
    breaks off, when the stream has changed."""

    def __init__(self, folder: RunFolder) -> None:
        self.run: StoredRun | None = None
        """The run, where all of its stream was read."""
        self._folder = folder
        self._stamp: Stamp | None = None
        self._known: ListedRun | None = None

    def read(self, *, metrics: bool = False) -> ListedRun:
        """The run as its stream tells it now, with `metrics` with the newest ones."""
        stamp = Stamp.of(self._folder.events)
        if self._known is None or stamp != self._stamp:
            self._stamp, self.run = stamp, None
            self._known = self._read()
        elif metrics and self.run is not None:
            self._known = self._of_run(self.run)
        return self._known

    def _read(self) -> ListedRun:
        if (end := read_end(self._folder.events, self._folder.run_id)) is not None:
            return ListedRun.of(self._folder, end)
        from .stored import StoredRun  # which most lists need not read whole

        try:
            self.run = StoredRun(self._folder)
        except TfmuxError as error:
            return _unreadable(self._folder, str(error).partition("\n")[0])
        return self._of_run(self.run)

    def _of_run(self, run: StoredRun) -> ListedRun:
        seen = Summary.of(run.snapshot(), run.last)
        if seen.clean and not run.over:  # a host is not in the receipt
            seen = replace(seen, clean=None)
        return ListedRun.of(self._folder, seen, run.damage.describe(self._folder.run_id))


def read_run(folder: RunFolder) -> ListedRun:
    """A run that is read once."""
    return RunReader(folder).read()


def unreadable_run(run: UnreadableRun) -> ListedRun:
    """A run that cannot be looked at."""
    return _unreadable(RunFolder(runs_home() / run.run_id), run.reason)


def _unreadable(folder: RunFolder, reason: str) -> ListedRun:
    seen = Summary(folder.run_id, "", RunPhase.CONNECTING, 0.0)
    return ListedRun.of(folder, seen, f"could not be read: {reason}")


_KEPT_SECONDS = 30 * 86400.0
"""Time for which hosts keep what runs have left there."""
_OF_SUMMARY = (
    "run",
    "name",
    "state",
    "started",
    "tasks",
    "attempt",
    "attempt_text",
    "cause_text",
    "stalled",
    "stalled_since",
)
"""Keys of a summary that `tfmux ps --json` prints."""


@cache
def _listed_runs() -> TypeAdapter[tuple[ListedRun, ...]]:
    return TypeAdapter(tuple[ListedRun, ...])  # not for those who do not ask for JSON


def active_runs_json(runs: tuple[ListedRun, ...]) -> Any:
    """Runs as `tfmux ps --json` prints them."""
    rows = _listed_runs().dump_python(runs, mode="json", by_alias=True)
    summaries = [row.pop("summary") for row in rows]
    return [
        {key: summary[key] for key in _OF_SUMMARY} | row
        for summary, row in zip(summaries, rows, strict=True)
    ]


def active_runs_schema() -> dict[str, Any]:
    """The JSON Schema of `tfmux ps --json`."""
    schema = _listed_runs().json_schema(mode="serialization", by_alias=True)
    types = schema["$defs"]
    summary, run = types.pop("Summary")["properties"], types["ListedRun"]
    del run["properties"]["summary"], types["Outcome"]
    run["properties"] = {key: summary[key] for key in _OF_SUMMARY} | run["properties"]
    run["required"] = list(run["properties"])
    return schema


@frozen
class ActiveRuns:
    """Active runs of this machine."""

    runs: tuple[ListedRun, ...]
    unreadable: tuple[UnreadableRun, ...]
    """Runs that could not be looked at: they may live."""
    elsewhere: tuple[Path, ...] = ()
    """Folders of active runs in another data home."""


def active_runs(among: Sequence[RunFolder] | None = None) -> ActiveRuns:
    """All runs of this machine, or those `among` some, that have not ended with a clean receipt and
    are not gone.

    The hosts of a run that a launcher supervises are not asked: its stream says how it stands.
    Those of the others are, all at once. Blocking, and with an event loop of its own.
    """
    folders, unreadable = RunFolder.scan() if among is None else (list(among), [])
    found: list[ListedRun] = []
    unsupervised: list[tuple[StoredRun, ListedRun]] = []
    for folder in folders:
        try:
            looked = _read_run(folder, whole=among is not None)
        except Exception as error:  # whatever is wrong with one run must not hide the others
            unreadable.append(UnreadableRun(folder.run_id, _reason(error)))
            continue
        if looked is None:
            continue
        stored, run = looked
        if run.launcher is None and stored is not None:
            unsupervised.append((stored, run))
        found.append(run)
    answers = _asked([run for run, _ in unsupervised]) if unsupervised else []
    for (stored, run), answer in zip(unsupervised, answers, strict=True):
        at = found.index(run)
        if isinstance(answer, BaseException):
            unreadable.append(UnreadableRun(run.folder.run_id, _reason(answer)))
            answer = ((), "")
        hosts, ended = answer
        views, told = stored.views.hosts, stored.views.run
        hosts = tuple(
            replace(one, local=views[one.name].local, lease=_lease(views[one.name], told))
            if one.name in views
            else one
            for one in hosts
        )
        found[at] = replace(run, hosts=hosts, asked=True, job_ended=ended)
    active = without_copies([run for run in found if run.active])
    if among is not None:
        return ActiveRuns(tuple(active), tuple(unreadable))
    ids = {folder.run_id for folder in folders}
    try:
        lost, elsewhere = list(without_folder(ids, runs_home())), tuple(_elsewhere(ids))
    except OSError as error:
        unreadable.append(UnreadableRun("runs without a folder", _reason(error)))
        lost, elsewhere = [], ()
    active += [removed_run(entry) for entry in lost if entry.living]
    for entry in lost:
        if not entry.living:
            reason = removed_text(entry.run_id, entry.hosts, living=False)
            unreadable.append(UnreadableRun(entry.run_id, reason))
    return ActiveRuns(tuple(active), tuple(unreadable), elsewhere)


def without_copies(runs: Sequence[ListedRun]) -> list[ListedRun]:
    """These runs, each once: a copy of the folder of an active run is active, too."""
    copies: dict[str, list[ListedRun]] = {}
    for run in runs:
        copies.setdefault(run.folder.run_id, []).append(run)
    chosen = {id(one_of_copies([run.folder for run in some])) for some in copies.values()}
    return [run for run in runs if id(run.folder) in chosen]


def removed_runs(ids: Container[str]) -> list[ListedRun]:
    """The runs that have a launcher process and no folder; `ids` are those that have one."""
    with suppress(OSError):  # the index does not answer
        return [removed_run(entry) for entry in without_folder(ids, runs_home()) if entry.living]
    return []


def removed_run(entry: LivingRun) -> ListedRun:
    """A run whose folder somebody has removed, as its launcher process tells it."""
    folder = RunFolder(entry.folder, entry.run_id)
    problem = removed_text(entry.run_id, entry.hosts, living=True)
    views = told_state(folder)
    if views is None:
        blank = Summary(entry.run_id, "", RunPhase.CONNECTING, 0.0, hosts=entry.hosts)
        return replace(ListedRun.of(folder, blank, problem), launcher=entry.holder.pid)
    seen = views.snapshot()
    run = ListedRun.of(folder, Summary.of(seen, time.time()), problem)
    return _with_hosts(replace(run, launcher=entry.holder.pid), seen)


def _elsewhere(ids: Container[str]) -> Iterator[Path]:
    """Folders of active runs in another data home, where one of the two is the default one of this
    home directory: two that somebody has named are two worlds, and so are two home directories."""
    home, default = os.path.realpath(runs_home()), os.path.realpath(default_runs_home())
    for entry in entries():
        if not entry.living or entry.run_id in ids or entry.home != os.path.expanduser("~"):
            continue
        there = os.path.realpath(entry.folder.parent)
        if there != home and default in (there, home):
            yield entry.folder


@frozen
class HeldOnHost:
    """What past runs have left on a host, as their records say."""

    host: str
    runs: int
    bytes: int


def held_on_hosts(folders: Sequence[RunFolder], now: float) -> list[HeldOnHost]:
    """What past runs have left on hosts, those with the most first: not of runs whose hosts have
    removed it by now, or had it deleted. No host is asked, and no record read but its last line."""
    runs: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for folder in folders:
        end = read_end(folder.events, folder.run_id)
        if end is None or now - end.time > _KEPT_SECONDS:
            continue
        for host in end.kept.keys() - folder.freed:
            runs[host] += 1
            total[host] += end.kept[host]
    return [HeldOnHost(host, runs[host], bytes_) for host, bytes_ in total.most_common()]


def _reason(error: BaseException) -> str:
    if isinstance(error, TfmuxError | OSError):
        return str(error).partition("\n")[0]
    return f"{type(error).__name__}: {error}"


def _read_run(folder: RunFolder, *, whole: bool) -> tuple[StoredRun | None, ListedRun] | None:
    """The run as its stream tells it, and where it must be asked for itself; None if it has
    ended: by the last record, or with `whole` by all, checked by the cluster file. A list of all
    runs cannot parse as many files."""
    launcher = folder.launcher_pid()
    if launcher is not None:  # whose stream has all hosts and tasks: no plan has to be made
        if (end := read_end(folder.events, folder.run_id)) is not None and end.clean:
            return None
        stream = read_stream(folder.events, folder.run_id)
        if stream.views.tasks:
            seen = stream.views.snapshot()
            problem = stream.damage.describe(folder.run_id)
            told = ListedRun.of(folder, Summary.of(seen, stream.last), problem)
            return None, _with_hosts(replace(told, launcher=launcher), seen)
    reader = RunReader(folder)
    told = reader.read()
    if (told.over and not whole) or (launcher is None and folder.forgotten):
        return None  # without reading all that a long run has written
    from .stored import StoredRun

    run = reader.run or StoredRun(folder)
    if run.over:
        return None
    told = replace(told, launcher=launcher, problem=run.damage.describe(folder.run_id))
    return run, _with_hosts(told, run.snapshot())


def _with_hosts(run: ListedRun, snapshot: Snapshot) -> ListedRun:
    """The run with what its launcher says of its hosts, and the nodes that it waits for."""
    run = replace(
        run,
        background=snapshot.background,
        detached_lease=snapshot.detached_lease,
        waits=tuple(waits(snapshot)),
    )
    if snapshot.state is RunPhase.QUEUED and snapshot.allocation is not None:
        since = snapshot.waiting_since or snapshot.started
        return replace(run, queued=snapshot.allocation, queued_since=since)
    if run.launcher is None:
        return run
    live = [view for view in snapshot.tasks if view.state.live]
    hosts = tuple(
        ActiveHost(
            host.name,
            tuple(v.id for v in live if v.host == host.name),
            agent=host.state is HostState.UP,
            unreachable=host.reason or "lost" if host.state is HostState.LOST else "",
            local=host.local,
            lease=_lease(host, snapshot),
            gpus=host.gpus,
        )
        for host in snapshot.hosts
    )
    return replace(run, hosts=hosts)


def _lease(host: HostView, run: RunView) -> float | None:
    """Seconds for which a host waits without this machine, as it has confirmed."""
    if host.local or run.detached_lease is None:
        return None
    return run.lease if host.lease is None else host.lease


_Answer = tuple[tuple[ActiveHost, ...], str]
"""The hosts of a run with what each holds, and how the job has ended that gave them."""


def _asked(runs: Sequence[StoredRun]) -> list[_Answer | BaseException]:
    """Answers of the hosts of these runs, or the reasons for which they could not be asked."""
    # Slow to import, and needed only here.
    import asyncio

    from ..hosts.transport import allow_connections
    from ..hosts.ways import ssh_connector

    async def ask() -> list[_Answer | BaseException]:
        logins = ssh_connector()
        allow_connections(sum(len(run.plan.hosts) for run in runs))

        async def answer_of(run: StoredRun) -> _Answer:
            names = [host.name for host in run.plan.hosts]
            hosts = asyncio.gather(*(_ask(run, name, logins) for name in names))
            found, ended = await asyncio.gather(hosts, _job_end(run, logins))
            return tuple(found), ended

        try:
            return await asyncio.gather(*map(answer_of, runs), return_exceptions=True)
        finally:
            await logins.aclose()

    return asyncio.run(ask())


async def _job_end(run: StoredRun, logins: SshConnector) -> str:
    """How the job has ended that gave the run's hosts; empty where Slurm does not say."""
    from ..slurm.job import slurm_job

    table, allocation = run.data.cluster.slurm, run.data.allocation
    if table is None or allocation is None or not allocation.job:
        return ""
    job = slurm_job(table, run.plan, logins)
    try:
        await job.connect()
        return await job.end(allocation.job)
    except TfmuxError:
        return ""


async def _ask(run: StoredRun, name: str, logins: SshConnector) -> ActiveHost:
    from ..hosts.bootstrap import LinkSettings, query_agent
    from ..hosts.frames import Gone
    from ..hosts.ways import transport_factory

    host = run.plan.host(name)
    allocation = run.data.allocation
    if allocation is not None and name not in run.data.nodes and not host.local:
        return ActiveHost(name, unreachable=f"not given yet, {allocation.title} is in the queue")
    settings = LinkSettings.of(run.plan, host, run.folder.path)
    try:
        welcome = await query_agent(settings, transport_factory(host, logins))
    except (HostError, OSError) as error:
        return ActiveHost(name, unreachable=getattr(error, "reason", str(error)))
    if welcome is None:
        return ActiveHost(name)
    if isinstance(welcome, Gone):
        tasks = [task for task in welcome.left if task]
        return ActiveHost(name, tuple(tasks), left=bool(welcome.left), doubt=welcome.doubt)
    tasks = [facts.task for facts in welcome.tasks if not facts.ended]
    return ActiveHost(name, tuple(dict.fromkeys(tasks)), agent=True)
