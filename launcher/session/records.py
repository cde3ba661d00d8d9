"""Runs as their folders on this machine tell of them, and their hosts: to be looked at, listed, or
taken up; their events and log lines as they come."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import ConfigDict, Field, PlainSerializer, TypeAdapter

from ..errors import ClusterFileError, HostError, LauncherError, RunNotFoundError, TfmuxError
from ..frozen import frozen
from ..ids import TaskId, is_run_id
from ..paths import Stamp, runs_home
from ..plan.facts import Resume
from ..printable import escaped, without_escapes
from ..run.snapshot import AllocationView, Snapshot
from ..run.states import HostState, Outcome, RunPhase
from ..store.logs import LogStore
from ..store.metrics import MetricsFile, Series, latest_metrics
from ..store.runs import RunFolder, UnreadableRun
from ..store.stream import (
    LineReader,
    LogEvent,
    PublicEvent,
    Summary,
    printable_values,
    read_end,
    read_stream,
)
from .removed import removed_runs

if TYPE_CHECKING:
    from ..cluster.file_model import ClusterModel
    from ..hosts.ssh import SshConnector
    from ..plan.planner import Plan
    from ..run.machine import RunStateMachine
    from ..run.stack_groups import Stacks
    from ..run.state import RunData
    from .client import RunClient


class StoredRun:
    """A run as its stream tells it."""

    def __init__(self, folder: RunFolder) -> None:
        """Reads the stream; the cluster file, too, where the stream has no end.

        Raises:
            ClusterFileError: the stored cluster file cannot be read.
        """
        self.folder = folder
        stream = read_stream(folder.events, folder.run_id)
        self.damage = stream.damage
        """Parts of the stream that could not be read."""
        self.last = stream.last
        """Time of the last record."""
        self.complete = stream.complete
        """The stream could be read up to its end."""
        self.metrics = MetricsFile(folder.metrics)
        self.end = stream.end
        self._views = stream.views
        if self.end is None:
            self._views = self.data.views  # with the hosts and tasks of which nothing is known

    @cached_property
    def cluster(self) -> ClusterModel:
        """The cluster as it was launched."""
        from ..cluster.read import load

        return load(self.folder.cluster_file, base=self.folder.origin)

    @cached_property
    def data(self) -> RunData:
        """The run with its plan."""
        from ..run.state import RunData

        return RunData(self.cluster, self.folder.run_id, past=self._views)

    @cached_property
    def run(self) -> RunStateMachine:
        """The run, to be taken up."""
        from ..run.machine import RunStateMachine

        return RunStateMachine(self.cluster, self.folder.run_id, past=self.data)

    @property
    def plan(self) -> Plan:
        """The plan with the ports that were picked at launch."""
        return self.data.plan

    @property
    def resume(self) -> Resume | None:
        """The run that this one goes on from."""
        return self._views.run.resume

    @property
    def over(self) -> bool:
        """Nothing of it can live any more: it ended, and every host confirmed that nothing is left.
        Without the end of the stream every host of the plan is one that may hold something."""
        if self.end is not None:
            return bool(self.end.clean)  # its launcher knew which hosts it had contacted
        seen = self.snapshot()
        ended = seen.state is RunPhase.ENDED and seen.outcome is not Outcome.DETACHED
        if not ended or seen.receipt is None or not seen.clean:
            return False
        named = {host.host for host in seen.receipt.hosts}
        return named >= {host.name for host in self.plan.hosts}

    def snapshot(self) -> Snapshot:
        """The run as it was when the last record was written, with the newest metrics."""
        if self.end is None:
            for task, latest in latest_metrics(self.folder.metrics).items():
                if (view := self._views.tasks.get(task)) is not None:
                    self._views.update_task(task, **latest.figures(view.last_output))
            self.data.refresh_waiting()
        return self._views.snapshot()

    def logs(self) -> LogStore:
        return LogStore(self.folder.path, read_only=True)


def stored(run_id: str, file: Path | None = None) -> StoredRun:
    """Finds a run; with the cluster file also one that another machine launched.

    Raises:
        RunNotFoundError: it is not known here, and there is no file.
        ClusterFileError: the file cannot be used.
    """
    return StoredRun(stored_folder(run_id, file))


def stored_folder(run_id: str, file: Path | None = None) -> RunFolder:
    """The folder of a run; with the cluster file one is made for what another machine launched,
    and a stored cluster file that cannot be read is replaced.

    Raises:
        RunNotFoundError: it is not known here, and there is no file.
        ClusterFileError: the file cannot be used.
    """
    if file is None:
        return RunFolder.find(run_id)
    from ..cluster.read import load, loads, read_text

    folder = RunFolder(runs_home() / run_id)
    if is_there := folder.path.is_dir():
        try:
            load(folder.cluster_file, base=folder.origin)
            return RunFolder.find(run_id)
        except ClusterFileError:
            pass  # it is damaged, and this one is for that
    text = read_text(file)
    cluster = loads(text, escaped(str(file)), file.absolute().parent)
    if "/" in run_id or not run_id.startswith(f"{cluster.name}-"):
        raise RunNotFoundError(f"{file} is the file of {cluster.name!r}, not of run {run_id!r}")
    if is_there:
        folder.write_cluster(text, cluster)
        return folder
    return RunFolder.create(run_id, text, cluster)


def find_resumed(run_id: str, name: str) -> Resume:
    """Finds the run that a new run of the cluster `name` goes on from, and its log directory.

    `run_id` is an id, or a beginning that only one run has. A whole id of this cluster need not be
    known here: another machine launched that run, or its folder was removed.

    Raises:
        RunNotFoundError: no run, or several.
    """
    try:
        folder = RunFolder.find(run_id)
    except RunNotFoundError:
        if is_run_id(run_id, name):
            return Resume(run_id, run_id)
        raise
    earlier = read_stream(folder.events, folder.run_id).views.run.resume
    return Resume(folder.run_id, earlier.logdir_run_id if earlier else folder.run_id)


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
    """Its name in the cluster file."""
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


@frozen
class ListedRun:
    """A run in lists: its summary, and what this machine and its hosts say of it."""

    __pydantic_config__ = _TYPES

    summary: Summary
    """The run as its stream tells it; without a name where nothing could be read."""
    folder: Annotated[RunFolder, Field(exclude=True)]
    problem: Annotated[str, Field(exclude=True)] = ""
    """Parts of its record that could not be read."""
    launcher: int | None = None
    """Process id of its launcher process on this machine; null: unsupervised."""
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
        started = seen.started or _launched(folder)
        return cls(replace(seen, run_id=folder.run_id, started=started), folder, problem)

    @property
    def key(self) -> str:
        """Key of its row in a table."""
        return f"run {self.folder.run_id}"

    @property
    def over(self) -> bool:
        """It ended and nothing is left; not where something that was read leaves a doubt."""
        return self.summary.ended is not None and bool(self.summary.clean) and not self.problem

    @property
    def active(self) -> bool:
        """It has a launcher, its hosts hold something of it, may hold something or do not answer,
        or they have not been asked."""
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
        if (end := read_end(self._folder.events)) is not None:
            return ListedRun.of(self._folder, end)
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


def _launched(folder: RunFolder) -> float:
    with suppress(OSError):
        return folder.cluster_file.stat().st_mtime
    return 0.0


class FinishedRun:
    """A run as it was; implements `control.RunControl`. There is nothing left to act on, and
    nothing will change."""

    living = False

    def __init__(self, run: StoredRun) -> None:
        self.logs = run.logs()
        self._metrics = run.metrics
        self._metrics.read()
        self._snapshot = _at_rest(run)

    def snapshot(self) -> Snapshot:
        return self._snapshot

    def subscribe(self, listener: Callable[[Snapshot], None]) -> None: ...

    def series(self, task: TaskId) -> Series:
        return self._metrics.series(task)

    def kill_all(self, *, by_person: bool = True, force: bool = False) -> None: ...
    def press_kill(self) -> None: ...
    def restart(self, task: TaskId, *, hard: bool = False) -> None: ...
    def signal(self, task: TaskId, name: str) -> None: ...

    def request_stacks(self, tasks: Sequence[TaskId] | None = None) -> Future[Stacks]:
        future: Future[Stacks] = Future()
        future.set_exception(LauncherError("the run has ended: nothing of it stands anywhere"))
        return future

    def detach(self) -> None: ...
    def close(self) -> None: ...


def _at_rest(run: StoredRun) -> Snapshot:
    """State in its record; where that breaks off, it says so instead of showing tasks alive."""
    snapshot = run.snapshot()
    if snapshot.state is RunPhase.ENDED:
        return snapshot
    outputs = [view.last_output or 0.0 for view in snapshot.tasks]
    note = "its launcher died before it could write down how the run ended"
    return replace(
        snapshot.with_lost_tasks("the record ends here"),
        state=RunPhase.ENDED,
        ended=max([run.last, *outputs]),
        waiting="",
        notes=(*snapshot.notes, note),
    )


_OF_SUMMARY = ("run", "name", "state", "started", "tasks", "attempt", "attempt_text")
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
    removed: tuple[str, ...] = ()
    """Ids of runs that live, and whose folder somebody has removed."""


def active_runs() -> ActiveRuns:
    """All runs of this machine that have not ended with a clean receipt and are not gone.

    The hosts of a run that a launcher supervises are not asked: its stream says how it stands.
    Those of the others are, all at once. Blocking, and with an event loop of its own.
    """
    folders, unreadable = RunFolder.scan()
    found: list[ListedRun] = []
    unsupervised: list[tuple[StoredRun, ListedRun]] = []
    for folder in folders:
        try:
            looked = _read_run(folder)
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
    for (_, run), answer in zip(unsupervised, answers, strict=True):
        at = found.index(run)
        if isinstance(answer, BaseException):
            unreadable.append(UnreadableRun(run.folder.run_id, _reason(answer)))
            answer = ((), "")
        hosts, ended = answer
        found[at] = replace(run, hosts=hosts, asked=True, job_ended=ended)
    active = tuple(run for run in found if run.active)
    return ActiveRuns(active, tuple(unreadable), tuple(removed_runs()))


def _reason(error: BaseException) -> str:
    if isinstance(error, TfmuxError | OSError):
        return str(error).partition("\n")[0]
    return f"{type(error).__name__}: {error}"


def _read_run(folder: RunFolder) -> tuple[StoredRun | None, ListedRun] | None:
    """The run as its stream tells it, and where it must be asked for itself; None if it has
    ended."""
    launcher = folder.launcher_pid()
    if launcher is not None:  # whose stream has all hosts and tasks: no plan has to be made
        if (end := read_end(folder.events)) is not None and end.clean:
            return None
        stream = read_stream(folder.events, folder.run_id)
        if stream.views.tasks:
            seen = stream.views.snapshot()
            problem = stream.damage.describe(folder.run_id)
            told = ListedRun.of(folder, Summary.of(seen, stream.last), problem)
            return None, _with_hosts(replace(told, launcher=launcher), seen)
    reader = RunReader(folder)
    if (told := reader.read()).over or (launcher is None and folder.forgotten):
        return None  # without reading all that a long run has written
    run = reader.run or StoredRun(folder)
    if run.over:
        return None
    told = replace(told, launcher=launcher, problem=run.damage.describe(folder.run_id))
    return run, _with_hosts(told, run.snapshot())


def _with_hosts(run: ListedRun, snapshot: Snapshot) -> ListedRun:
    """The run with what its launcher says of its hosts, and the nodes that it waits for."""
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
        )
        for host in snapshot.hosts
    )
    return replace(run, hosts=hosts)


_Answer = tuple[tuple[ActiveHost, ...], str]
"""What the hosts of a run hold, and how the job has ended that gave them."""


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


_LATE_SECONDS = 2.0
"""What the launcher has said and is not in the files by then, the disk does not take."""
_Key = tuple[str, Any]


class EventFiles:
    """The events of one run, each once; `read` waits for the disk."""

    def __init__(self, folder: RunFolder, *, from_end: bool) -> None:
        """`from_end`: only what comes from now on."""
        make = LineReader.from_end if from_end else LineReader
        self._readers = [make(folder.events), make(folder.metrics)]
        self._since = time.time() if from_end else 0.0
        self._seen: dict[_Key, float] = {}
        """Times of the last events about each task, host and so on."""
        self._told: set[tuple[_Key, float]] = set()
        """Events that were not in the files in time, and came from the launcher."""

    def read(self, client: RunClient, *, last: bool = False) -> list[PublicEvent]:
        """The events that have come since the last call, and with `last` all that will not come
        any more: a disk that is full or does not answer keeps none from whoever follows."""
        found = [
            event
            for reader in self._readers
            for line in reader.read()
            if (event := _event(line)) is not None and self._is_new(event)
        ]
        found.sort(key=lambda event: float(event["time"]))
        until = float("inf") if last else time.time() - _LATE_SECONDS
        for event in client.records(self._since, until):
            key = _key(event)
            if event["time"] > self._seen.get(key, 0.0):
                self._seen[key] = event["time"]
                self._told.add((key, event["time"]))
                found.append(event)
        return found

    def _is_new(self, event: PublicEvent) -> bool:
        key = _key(event)
        self._seen[key] = event["time"]
        return (key, event["time"]) not in self._told


def _event(line: bytes) -> PublicEvent | None:
    """What a line says to programs; None of one that says nothing to them, or is damaged."""
    try:
        event = printable_values(json.loads(line))
    except (ValueError, RecursionError):
        return None
    if not isinstance(event, dict) or event.get("event") == "facts":
        return None
    return event if isinstance(event.get("time"), int | float) and "event" in event else None


def _key(event: PublicEvent) -> _Key:
    name = {"task": "task", "host": "host", "note": "number", "metric": "task"}
    kind = str(event["event"])
    return kind, event.get(name.get(kind, "event"))


_CHUNK = 1 << 18
_LONGEST = 1 << 20


class LogLines:
    """Whole lines of one log file, as they come."""

    def __init__(self, path: Path, offset: int = 0) -> None:
        self._path = os.fspath(path)
        self._offset = offset
        self._rest = b""
        self.behind = False
        """There was more to read than was read."""

    @classmethod
    def from_end(cls, path: Path) -> Self:
        """Follows a file from its present end."""
        return cls(path, path.stat().st_size if path.exists() else 0)

    def read(self) -> bytes:
        """The next bytes, at most 256 KiB; none while the file is not there or cannot be opened."""
        self.behind = False
        try:
            size = os.stat(self._path).st_size
            if size <= self._offset:
                return b""
            with open(self._path, "rb", buffering=0) as file:
                data = os.pread(file.fileno(), _CHUNK, self._offset)
        except OSError:
            return b""
        self._offset += len(data)
        self.behind = bool(data) and self._offset < size
        return data

    @property
    def left(self) -> int:
        """Bytes that have not been read yet."""
        with suppress(OSError):
            return max(0, os.stat(self._path).st_size - self._offset)
        return 0

    def lines(self, *, last: bool = False) -> list[bytes]:
        """The lines that have become whole; with `last` also one without a newline."""
        data = self.read()
        if not data and not (last and self._rest):
            return []
        parts = (self._rest + data).split(b"\n")
        self._rest = parts.pop()
        if len(self._rest) > _LONGEST or (last and self._rest and not data):
            parts.append(self._rest)
            self._rest = b""
        self.behind = self.behind or (last and bool(self._rest))
        return parts


class RunLogs:
    """Lines of all tasks of a run. Its methods wait for the disk."""

    def __init__(self, folder: Path, tasks: Mapping[TaskId, str], *, from_end: bool) -> None:
        """`tasks` maps each task to its host; `from_end` skips what is there already."""
        make = LogLines.from_end if from_end else LogLines
        self._logs = {task: make(folder / f"{task.stem}.log") for task in tasks}
        self._tasks = tasks

    def read(
        self, only: TaskId | None = None, *, last: bool = False
    ) -> Iterator[tuple[TaskId, bytes]]:
        """Yields the next lines, of at most 256 KiB of each log; with `last` also what ends without
        a newline."""
        for task in self._logs if only is None else (only,):
            for line in self._logs[task].lines(last=last):
                yield task, line

    def event(self, task: TaskId, line: bytes) -> LogEvent:
        """A line as an event."""
        return {
            "time": time.time(),
            "event": "log",
            "task": str(task),
            "text": without_escapes(line_text(line)),
            "host": self._tasks[task],
        }

    @property
    def behind(self) -> bool:
        """There was more to read than was read."""
        return any(log.behind for log in self._logs.values())

    @property
    def left(self) -> int:
        """Bytes that have not been read yet."""
        return sum(log.left for log in self._logs.values())


def line_text(line: bytes) -> str:
    """Text of a line as its last carriage return leaves it."""
    return line.decode(errors="replace").rstrip("\r").rsplit("\r", 1)[-1]
