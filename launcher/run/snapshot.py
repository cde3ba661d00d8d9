"""Immutable snapshot of a run, for front ends: complete, cheap to compare.

Figures that change all the time (metrics, sizes, progress, CPU) are added by the launcher's shell;
the state machine leaves them empty. Log text is not in here: it is read from the log store.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ..ids import TaskId
from . import fields
from .states import HostState, Outcome, RunPhase, TaskState


@dataclass(frozen=True)
class Attempt:
    """One attempt of a task: its number, the byte of the log where it begins, and when."""

    number: fields.Attempt
    log_start: fields.Count
    time: fields.Time


@dataclass(frozen=True)
class TaskView:
    """One task as it stands. Times are seconds since the epoch on the launching machine."""

    id: TaskId
    host: str
    address: str
    state: TaskState
    in_cluster: bool = True
    is_chief: bool = False
    stage: fields.Count = 0
    """Number of its stage in the start order."""
    pid: fields.Count | None = None
    attempt: fields.Attempt = 0
    attempts: tuple[Attempt, ...] = ()
    """The last hundred at most."""
    """Those whose process has started, oldest first."""
    exit_code: fields.Status | None = None
    exit_signal: str | None = None
    reason: str = ""
    started: fields.Time | None = None
    ended: fields.Time | None = None
    step: fields.Count | None = None
    loss: float | None = None
    rate: float | None = None
    """Global steps a second, over the last few metric lines of this task."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    last_output: fields.Time | None = None
    log_size: fields.Count = 0
    url: str = ""

    @property
    def exit_text(self) -> str:
        """State and exit in words: `exited 0`, `killed TERM`, `failed 1`."""
        if self.exit_signal:
            return f"{self.state} {self.exit_signal}"
        if self.exit_code is not None:
            return f"{self.state} {self.exit_code}"
        return str(self.state)


@dataclass(frozen=True)
class HostView:
    """One host's link and what its agent last said of it."""

    name: str
    destination: str
    state: HostState
    reason: str = ""
    lease_until: fields.Time | None = None
    last_heard: fields.Time | None = None
    staged_bytes: int = 0
    staged_total: int = 0
    staged_files: int = 0
    staged_total_files: int = 0
    collected_bytes: int = 0
    collected_total: int = 0
    """Of the results that `collect` brings back at the end."""
    cpu: float | None = None
    memory_used: int | None = None
    memory_total: int | None = None
    gpus: tuple[str, ...] = ()
    usage: Mapping[TaskId, tuple[float, int]] = field(default_factory=dict)
    """CPU (1.0 = one core) and resident bytes of each task's process tree."""


@dataclass(frozen=True)
class Survivor:
    """A process that a kill did not end."""

    pid: fields.Count
    command: str
    state: str


@dataclass(frozen=True)
class HostReceipt:
    """Receipt of one host after a kill; `confirmed` means that its agent looked and found none."""

    host: str
    signalled: fields.Count = 0
    survivors: tuple[Survivor, ...] = ()
    confirmed: bool = False
    unreachable_until: fields.Time | None = None
    seconds: fields.Seconds = 0.0
    engine: str = ""
    """What the engine that gave the node says of it."""
    by_engine: bool = False
    """The engine alone has confirmed it."""
    unlisted: fields.Count = 0
    """Survivors beyond those in `survivors`."""
    doubt: str = ""
    """Why the host's agent has looked and cannot confirm; empty where it has not answered."""

    @property
    def left(self) -> int:
        """Number of survivors, with those that are not listed."""
        return len(self.survivors) + self.unlisted


@dataclass(frozen=True)
class Receipt:
    """The proof at the end of a run, one entry a host."""

    hosts: tuple[HostReceipt, ...]

    @property
    def clean(self) -> bool:
        """Every host confirmed that nothing is left."""
        return all(host.confirmed and not host.survivors for host in self.hosts)


@dataclass(frozen=True)
class Failure:
    """The first task to fail in time: the headline of a failed run."""

    task: TaskId
    host: str
    how: str
    time: fields.Time
    others: tuple[TaskId, ...] = ()
    tail: tuple[str, ...] = ()
    """The last lines of its log, sanitised of control characters."""
    unlisted: fields.Count = 0
    """Number of the tasks that failed later and are not in `others`."""


@dataclass(frozen=True)
class AllocationView:
    """The job of an engine whose nodes the run's hosts are; texts are the engine's."""

    engine: str
    job: str = ""
    state: str = ""
    reason: str = ""
    """Why it waits."""
    expected: fields.Time | None = None
    """When the engine expects it to start."""
    advice: str = ""
    """Why it will never start, and what to change."""
    ended: str = ""
    """Why it could not be had, or has ended: a sentence."""
    releasing: bool = False
    """Every agent has answered, and the engine gets its nodes back: a kill is carried out."""
    released: str = ""
    """What became of it at the end of the run: a sentence."""

    @property
    def title(self) -> str:
        """Engine and job as people write them: `Slurm 8123`."""
        return f"{self.engine} {self.job}".rstrip()


@dataclass(frozen=True)
class Snapshot:
    """A run at one moment."""

    run_id: str
    name: str
    state: RunPhase
    tasks: tuple[TaskView, ...]
    """In start order: ps first."""
    hosts: tuple[HostView, ...]
    started: fields.Time
    ended: fields.Time | None = None
    waiting: str = ""
    """Tasks or hosts that are waited for, such as `ps:0 on tf1:2222`."""
    waiting_since: fields.Time | None = None
    total_steps: fields.Count | None = None
    first_failure: Failure | None = None
    kill_deadline: fields.Time | None = None
    """Time at which TERM becomes KILL, while the run is being killed."""
    kill_asked: bool = False
    """A person has asked for that: who asks again wants KILL now."""
    receipt: Receipt | None = None
    outcome: Outcome | None = None
    exit_code: fields.ExitCode | None = None
    launcher_error: str = ""
    """Failure of the launcher itself, which had to end the run."""
    notes: tuple[str, ...] = ()
    """Things said once, newest last (a full disk, a takeover, a reconnect)."""
    results_missing: tuple[str, ...] = ()
    """Hosts whose results (`collect`) were not brought back, and why: sentences."""
    allocation: AllocationView | None = None

    @property
    def clean(self) -> bool:
        """The receipt says that nothing is left on any host; an empty one says so only of a run
        that has started no task."""
        if self.receipt is None or not self.receipt.clean:
            return False
        return bool(self.receipt.hosts) or not any(task.attempt for task in self.tasks)

    @property
    def step(self) -> int | None:
        """The highest global step that any task has named."""
        return max((t.step for t in self.tasks if t.step is not None), default=None)

    @property
    def loss(self) -> float | None:
        """The chief's loss, else any task's."""
        losses = [t for t in self.tasks if t.loss is not None]
        return next((t.loss for t in losses if t.is_chief), losses[0].loss if losses else None)

    @property
    def rate(self) -> float | None:
        """Global steps a second: the chief's view, else the fastest task's."""
        rates = [t for t in self.tasks if t.rate is not None and t.state.live]
        chief = next((t.rate for t in rates if t.is_chief), None)
        return chief if chief is not None else max((t.rate or 0.0 for t in rates), default=None)

    def with_lost_tasks(self, reason: str) -> Snapshot:
        """The run with every task that has not ended shown as lost."""
        tasks = tuple(
            view if view.state.ended else replace(view, state=TaskState.LOST, reason=reason)
            for view in self.tasks
        )
        return replace(self, tasks=tasks)

    def task(self, task: TaskId) -> TaskView:
        """The view of one task.

        Raises:
            KeyError: the run has no such task.
        """
        for view in self.tasks:
            if view.id == task:
                return view
        raise KeyError(str(task))


def new_notes(before: tuple[str, ...], after: tuple[str, ...]) -> tuple[str, ...]:
    """The notes that have come since; the oldest ones may have been dropped."""
    for dropped in range(len(before) + 1):
        rest = before[dropped:]
        if after[: len(rest)] == rest:
            return after[len(rest) :]
    return after
