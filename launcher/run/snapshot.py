"""Views of a run, its hosts and its tasks: immutable, and the only form of the run's state.

A view is the run's record, too: it is written as a line of `events.jsonl` when it has changed
(`store.stream`), sent to clients, printed by `--json`, and read again (`views.Views.take`). The
text below a field is its description in `docs/events.md`. Log text is not in here: it is read from
the log store.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import field, replace
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from ..agent.by_products import BYTECODE
from ..agent.folders import ABOVE
from ..frozen import frozen
from ..ids import TaskId
from ..plan.facts import HostFacts, Resume
from ..quantities import counted, size
from .background import LeftProcesses
from .cause import Verdict
from .fields import Attempt, Count, ExitCode, Pid, Seconds, Status, Text, Time
from .gpus import GpuView
from .states import (
    Cause,
    Halt,
    Hang,
    HostState,
    Intent,
    Outcome,
    Purpose,
    RunPhase,
    StoppedBy,
    TaskState,
)

_TERM_CAUGHT = 143
"""Status of shells, and of programs that catch TERM: 128 and its number."""


@frozen
class AttemptStart:
    """One attempt of a task: its number, the byte of the log where it begins, and when."""

    number: Attempt
    """From 1 on."""
    log_start: Count
    """The byte of the log where it begins."""
    time: Time
    """When it was started."""


@frozen
class TaskView:
    """A task in its current state. Times are seconds since the epoch on the launching machine."""

    id: Annotated[TaskId, Field(alias="task")]
    """The task, such as `worker:0`."""
    host: str
    """The host of the cluster file."""
    address: str
    """Address in the cluster spec, `host:port`."""
    state: TaskState
    """State of the task."""
    in_cluster: bool = True
    """The task is in the cluster spec."""
    is_chief: bool = False
    """Its end decides if `success` is `chief`."""
    stage: Count = 0
    """Number of its stage in the start order."""
    gpus: tuple[str, ...] = ()
    """The GPUs that the plan gives it: numbers by `nvidia-smi`, or ids. Absent where it sees all
    of the host's, or none."""
    pid: Count | None = None
    """Id of its process on the host."""
    attempt: Attempt = 0
    """Number of the start, from 1 on; 0 before the first. `pending` again keeps it."""
    attempts: tuple[AttemptStart, ...] = ()
    """The starts that had a process, oldest first, 100 at most."""
    exit_code: Status | None = None
    """Exit status of the task."""
    exit_signal: Annotated[str | None, Field(alias="signal")] = None
    """Name of the signal that ended it."""
    stopped_by: StoppedBy = StoppedBy.NOBODY
    """What had asked it to end before it did; empty if nothing had."""
    out_of_memory: bool = False
    """The kernel has killed it for lack of memory."""
    full_disks: tuple[str, ...] = ()
    """Directories of its host whose disks were full when it had failed, and how."""
    reason: str = ""
    """Why it is in that state; may be empty."""
    left: LeftProcesses | None = None
    """Processes that lived when its first process ended with status 0; they end with the run."""
    started: Time | None = None
    """When the present start began."""
    ended: Time | None = None
    """When it ended."""
    step: Count | None = None
    """Global step, of its last metric line."""
    loss: float | None = None
    """Loss of the last metric line."""
    rate: float | None = None
    """Global steps per second, over its last few metric lines."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """The latest values in its metric lines."""
    last_output: Time | None = None
    """When it last wrote something."""
    stalled_since: Time | None = None
    """When its last metric line came, where the next one is long overdue."""
    halted: Halt = Halt.NONE
    """Why its processes get no further; empty while they do."""
    halted_since: Time | None = None
    """When that was seen first."""
    log_size: Count = 0
    """Bytes of its log that are here."""
    url: str = ""
    """Address of its forwarded port on this machine."""
    intent: Intent = Intent.NONE
    """Meaning of the next exit."""
    kill_grace: Seconds | None = None
    """Grace of a kill of this task alone whose receipt has not come: the next attempt waits for
    it, and a host that was cut off is asked again."""
    restart_due: bool = False
    """The next attempt waits only for that receipt."""
    state_before_loss: TaskState | None = None
    """State that it has again when its lost host is back."""
    time: Time = field(default=0.0, compare=False)
    """When this was recorded, in seconds since the epoch."""
    event: Literal["task"] = "task"

    def is_sound(self) -> bool:
        """Whether the record agrees with itself; one that a disk has damaged may not."""
        begun = self.state not in (TaskState.PENDING, TaskState.STAGING)
        numbers = [attempt.number for attempt in self.attempts]
        return (
            (bool(self.attempt) or not begun)
            and (not self.attempt or self.state is not TaskState.STAGING)
            and (self.state is TaskState.LOST) == (self.state_before_loss is not None)
            and (not self.restart_due or self.kill_grace is not None)
            and (self.intent is Intent.NONE or begun)
            and (not self.state.ended or self.ended is not None)
            and numbers == sorted(set(numbers))
            and all(number <= self.attempt for number in numbers)
        )

    @property
    def warming(self) -> bool:
        """Its program has not been started, on a host that may be lost."""
        return TaskState.WARMING in (self.state, self.state_before_loss)

    @property
    def exit_text(self) -> str:
        """State and exit in words: `running`, `exit 1`, `killed, SIGTERM`. A program that the run
        has signalled, and that catches it and exits with the status of shells (143), reads the same
        as one that the signal has ended."""
        signal = self.exit_signal
        if self.state in (TaskState.STOPPED, TaskState.KILLED):
            signal = signal or ("TERM" if self.exit_code == _TERM_CAUGHT else None)
        if signal:
            return f"{self.state}, SIG{signal}{', out of memory' if self.out_of_memory else ''}"
        if self.exit_code == 0 and self.state.ended and self.state is not TaskState.EXITED:
            return f"{self.state}, exit 0"
        if self.exit_code is not None:
            return f"exit {self.exit_code}{', out of memory' if self.out_of_memory else ''}"
        return str(self.state)


def _structured(gpus: object) -> object:
    """Earlier versions have recorded a line of text for each GPU."""
    if isinstance(gpus, list):
        return [gpu for gpu in gpus if not isinstance(gpu, str)]
    return gpus


@frozen
class HostView:
    """A host: its link, its files, and the last report of its agent."""

    name: Annotated[str, Field(alias="host")]
    """The host of the cluster file."""
    destination: str
    """Its destination, such as `me@tf1`."""
    state: HostState
    """State of the link."""
    reason: str = ""
    """Why it is in that state; may be empty."""
    code: str = ""
    """Kind of the reason for which it was refused, as `tfmux check FILE` has it; may be empty."""
    local: bool = False
    """Whether this is the launching machine, whose tasks end with it and with the launcher."""
    lease: float | None = None
    """Seconds for which it has confirmed to wait for a lost launcher; absent where it was asked for
    no other lease than the run's."""
    lease_until: Time | None = None
    """When a lost host acts without the launcher."""
    last_heard: Time | None = None
    """When its agent last sent something."""
    staged_bytes: int = 0
    """Bytes of files sent so far."""
    staged_total: int = 0
    """Bytes of files to send."""
    staged_files: int = 0
    """Files sent so far."""
    staged_total_files: int = 0
    """Files to send."""
    collected_bytes: int = 0
    """Bytes of results fetched so far."""
    collected_total: int = 0
    """Bytes of results to fetch."""
    cpu: float | None = None
    """Share of its processors in use, 1.0 for all."""
    memory_used: int | None = None
    """Bytes of its memory in use."""
    memory_total: int | None = None
    """Bytes of its memory."""
    gpus: Annotated[tuple[GpuView, ...], BeforeValidator(_structured)] = ()
    """Its GPUs."""
    gpu_problem: str = ""
    """Why GPUs are missing in the list, or their values out of date; may be empty."""
    usage: Mapping[TaskId, tuple[float, int]] = field(default_factory=dict)
    """CPU (1.0 = one core) and resident bytes of each task's process tree."""
    contacted: bool = False
    """The host may hold something of the run: its agent has greeted a launcher."""
    time: Time = field(default=0.0, compare=False)
    """When this was recorded, in seconds since the epoch."""
    event: Literal["host"] = "host"


@frozen
class AllocatedNode:
    """A node that Slurm has given."""

    name: str
    """Its name there."""
    via: tuple[str, ...]
    """The command that reaches it."""


@frozen
class FactsView:
    """What the plan of a host is made from; of use to the next launcher alone."""

    host: str
    """The host of the cluster file."""
    facts: HostFacts = field(default_factory=HostFacts)
    """What its agent has said at the launch."""
    node: AllocatedNode | None = None
    """The node that is the host, where Slurm has given it."""
    time: Time = field(default=0.0, compare=False)
    """When this was recorded, in seconds since the epoch."""
    event: Literal["facts"] = "facts"


@frozen
class Survivor:
    """A process that a kill did not end."""

    pid: Pid
    """Its id on the host."""
    command: Text
    """Its command line, printable."""
    state: Text
    """Its state, as `/proc` has it."""


@frozen
class HostReceipt:
    """One host's part of the receipt of a kill."""

    host: str
    """The host of the cluster file."""
    signalled: Count = 0
    """Number of processes that got a signal."""
    survivors: tuple[Survivor, ...] = ()
    """Processes that are still there, 100 at most."""
    confirmed: bool = False
    """The host's kernel has confirmed that no process is left; never with survivors."""
    unreachable_until: Time | None = None
    """When the lease of an unreachable host ends; null after it, and with
    `on_disconnect = "keep"`."""
    seconds: Seconds = 0.0
    """How long the kill took there."""
    engine: str = ""
    """What the engine that gave the node reports about it."""
    by_engine: bool = False
    """The engine alone has confirmed it."""
    unlisted: Count = 0
    """Survivors beyond those in `survivors`."""
    doubt: str = ""
    """Why the host's agent cannot confirm; empty where the host could not be reached."""
    taken_by: str = ""
    """The launcher elsewhere that has taken the host over to end the run: what is left there is in
    its receipt."""
    until_boot: bool = False
    """Unknown until the host reboots, since an agent and its watchdog have ended without proof."""

    @property
    def left(self) -> int:
        """Number of survivors, with those that are not listed."""
        return len(self.survivors) + self.unlisted

    @property
    def left_text(self) -> str:
        """`2 processes left, such as pid 77 (D) python train.py`; empty without survivors."""
        if not self.survivors:
            return ""
        first, left = self.survivors[0], counted(self.left, "process", "processes")
        return f"{left} left, such as pid {first.pid} ({first.state}) {first.command}"


@frozen
class Receipt:
    """The proof at the end of a run."""

    hosts: tuple[HostReceipt, ...]
    """The receipts of all hosts that may have had processes of the run."""
    begun: bool = False
    """A task had been started: then no host at all is no proof."""
    time: Time = field(default=0.0, compare=False)
    """When this was recorded, in seconds since the epoch."""
    event: Literal["receipt"] = "receipt"

    @property
    def clean(self) -> bool:
        """Every host has confirmed that no process is left."""
        # Earlier versions have written down hosts as confirmed beside survivors.
        proven = all(host.confirmed and not host.survivors for host in self.hosts)
        return proven and bool(self.hosts or not self.begun)

    @property
    def answered(self) -> bool:
        """Every host has confirmed that no process is left, or is another launcher's, which ends
        the run there."""
        return self.clean or all(host.confirmed or host.taken_by for host in self.hosts)


@frozen
class Failure:
    """The first task that failed: the headline of a failed run."""

    task: TaskId
    """The task, such as `worker:0`."""
    host: str
    """The host of the cluster file."""
    how: str
    """How it ended, in words."""
    time: Time
    """When it failed."""
    others: tuple[TaskId, ...] = ()
    """Tasks that failed after it, 100 at most."""
    tail: tuple[str, ...] = ()
    """The last lines of its log, printable."""
    unlisted: Count = 0
    """Later failures beyond those in `others`."""


@frozen
class KeptResults:
    """Files that tasks have made or changed in the workdir of a host, and that stay there. A host
    without any that was asked has an entry, too."""

    host: str
    """The host of the cluster file."""
    files: Count = 0
    """Number of these files, without those that `collect` has fetched."""
    bytes: Count = 0
    """Their size."""
    folder: str = ""
    """Where they are on the host."""
    cut: bool = False
    """There were too many files to compare all: there are at least `files`."""
    problem: str = ""
    """Why it is not known how many there are; empty where it is."""

    above: Count = 0
    """Number of those among them that were written above the workdir, such as `../results`."""
    by_products: Count = 0
    """Number of files that do not stay, since they are by-products by their names."""
    by_product_bytes: Count = 0
    """Their size."""
    by_product_names: tuple[Text, ...] = ()
    """What they are called or where they are, 10 at most."""

    @property
    def stays(self) -> bool:
        """Whether there are, or may be, files that stay."""
        return bool(self.files or self.problem or self.cut)

    @property
    def told(self) -> bool:
        """Whether a person is told of them: not where there is nothing but bytecode."""
        return self.stays or any(map(_is_worth_a_line, self.by_product_names))

    def text(self, run_id: str) -> str:
        """A sentence: which host has how much where, the command that fetches it, and what is not
        kept."""
        parts = [self._kept(run_id)] if self.stays else []
        if self.by_products:
            files = counted(self.by_products, "by-product")
            names = ", ".join(self.by_product_names)
            parts.append(f"not kept: {files}, {size(self.by_product_bytes)} ({names})")
        return f"{self.host}: {'; '.join(parts)}"

    def _kept(self, run_id: str) -> str:
        fetches = f"`tfmux collect {run_id}` fetches "
        if self.problem and not self.files:
            where = f" in {self.folder}" if self.folder else ""
            return (
                f"tasks may have left files there ({self.problem}); "
                f"they stay there{where}, and {fetches}them"
            )
        files = counted(self.files, "new file")
        if self.cut:
            files = f"at least {files} (not all were compared)"
        elif self.problem:
            files = f"at least {files} ({self.problem})"
        it = "it" if self.files == 1 and not self.cut else "them"
        above = f" ({self.above:,} from above the workdir, in {ABOVE})" if self.above else ""
        return f"{files}, {size(self.bytes)}, kept in {self.folder}{above}; {fetches}{it}"


def _is_worth_a_line(by_product: str) -> bool:
    return not by_product.startswith(("*.py", BYTECODE))


@frozen
class AllocationView:
    """The job of an engine whose nodes the run's hosts are; texts are the engine's."""

    engine: str
    """Name of the engine, such as `Slurm`."""
    job: str = ""
    """Id of the request there."""
    state: str = ""
    """State of the request in the engine's words."""
    reason: str = ""
    """Why it waits."""
    expected: Time | None = None
    """When the engine expects it to start."""
    advice: str = ""
    """Why it will never start, and what to change."""
    ended: str = ""
    """Why it was not granted, or has ended: a sentence."""
    releasing: bool = False
    """Every agent has answered, and the engine gets its nodes back: a kill is carried out."""
    released: str = ""
    """What happened to it at the end of the run: a sentence."""

    @property
    def title(self) -> str:
        """Engine and job as people write them: `Slurm 8123`."""
        return f"{self.engine} {self.job}".rstrip()


@frozen
class HangView:
    """What the tasks were doing when the run seemed to hang."""

    reason: Hang
    """`stalled`, `not-ready`, `at-end`, `in-exit` or `silent`."""
    text: str
    """What the tasks were doing, in a sentence."""
    file: str
    """The file in the run's folder that has all stacks, as `tfmux stacks --json` prints them."""
    time: Time
    """When the hosts were asked."""


@frozen
class RunView:
    """The run itself, without its hosts, tasks and notes."""

    run_id: Annotated[str, Field(alias="run")]
    """The run's id."""
    name: str
    """Name of its cluster."""
    state: RunPhase
    """State of the run."""
    started: Time
    """When it was launched."""
    ended: Time | None = None
    """When it ended."""
    waiting: str = ""
    """Tasks or hosts that are waited for, such as `ps:0 on tf1:2222`."""
    waiting_since: Time | None = None
    """When the present stage of the start began."""
    total_steps: Count | None = None
    """Global steps at the end of the training."""
    first_failure: Failure | None = None
    """The task that failed first; absent where none did."""
    attempt: Attempt = 1
    """Number of the start of all tasks: from 1 on, more with `restart-all`."""
    most_attempts: Count = 0
    """Starts of all tasks at most, with `restart-all`."""
    restart_cause: Failure | None = None
    """The failure for which all tasks were started again, or are about to be."""
    restart_due: bool = False
    """All tasks of the cluster are being ended, and the next attempt waits for that."""
    kill_deadline: Time | None = None
    """Time at which TERM becomes KILL, while the run is being killed."""
    kill_asked: bool = False
    """A person has asked for that: who asks again wants KILL now."""
    outcome: Outcome | None = None
    """How it ended."""
    exit_code: ExitCode | None = None
    """Exit code of `tfmux up FILE`; absent while there is none."""
    taken_by: str = ""
    """The launcher elsewhere, `MACHINE:PID`, that has taken a host over, or all; nothing is
    recorded any more then, since the record may be that launcher's."""
    taken_for: Purpose = Purpose.UNKNOWN
    """What it has said that for: `attach`, `kill`, or nothing."""
    launcher_error: str = ""
    """Why launchers of the run died one after the other, until the last one ended the run."""
    results_missing: tuple[str, ...] = ()
    """Hosts whose results (`collect`) were not fetched, and why: sentences."""
    results_kept: tuple[KeptResults, ...] = ()
    """What tasks have left in the workdir of each host that was asked at the end: new files stay
    there."""
    allocation: AllocationView | None = None
    """The allocation, where an engine such as Slurm gives the hosts."""
    background: bool = False
    """The run has been left and goes on without a screen: hosts are asked for the longer lease."""
    lease: float | None = None
    """Seconds for which a host waits for a lost launcher."""
    detached_lease: float | None = None
    """Seconds in the background, as far as hosts confirm it; absent with
    `on_disconnect = "keep"`, since they keep their tasks."""
    stage: int = -1
    """Number of the stage that is being started; -1 before the first one."""
    cause: Cause | None = None
    """Why the run is being ended."""
    forced: bool = False
    """KILL was ordered at once: nothing is waited for."""
    resume: Resume | None = None
    """The run that it resumes, and the run whose log directory it uses."""
    hang: HangView | None = None
    """What its tasks were doing when it last seemed to hang."""
    verdict: Verdict | None = None
    """The cause of its failure, or of a hang as long as that lasts: which task is guilty, and why;
    absent where nothing points to one."""
    time: Time = field(default=0.0, compare=False)
    """When this was recorded, in seconds since the epoch."""
    event: Literal["run"] = "run"

    def is_sound(self) -> bool:
        """Whether the record agrees with itself; one that a disk has damaged may not."""
        over = self.state is RunPhase.ENDED
        killing = self.state is RunPhase.KILLING
        ends = {over, self.outcome is not None, self.ended is not None, self.exit_code is not None}
        return (
            len(ends) == 1
            and not (killing and None in (self.cause, self.kill_deadline))
            and not (self.restart_due and self.restart_cause is None)
            and not (self.state is RunPhase.RESTARTING and not self.restart_due)
        )

    @property
    def attempt_text(self) -> str:
        """`attempt 2 of 4: worker:1 exit 1 on tf2`; empty in the first attempt."""
        cause, number = self.restart_cause, self.attempt + self.restart_due
        if cause is None or number < 2:
            return ""
        of = f" of {self.most_attempts}" if self.most_attempts else ""
        return f"attempt {number}{of}: {cause.task} {cause.how} on {cause.host}"


@frozen
class Note:
    """A message, such as a lost host, a takeover or a full disk."""

    text: Annotated[str, Field(alias="note")]
    """A sentence."""
    number: Count
    """Notes of a run are numbered from 1 on."""
    time: Time = field(default=0.0, compare=False)
    """When this was recorded, in seconds since the epoch."""
    event: Literal["note"] = "note"


@frozen
class Metric:
    """A task has written a metric line."""

    id: Annotated[TaskId, Field(alias="task")]
    """The task, such as `worker:0`."""
    host: str
    """The host of the cluster file."""
    values: Annotated[Mapping[str, float], Field(max_length=100)]
    """All values of the line; a value that is not a number is the text `NaN` or `Infinity`."""
    rate: float | None = None
    """Global steps per second."""
    step: float | None = None
    """Global step."""
    loss: float | None = None
    """Loss."""
    time: Time = field(default=0.0, compare=False)
    """When this was recorded, in seconds since the epoch."""
    event: Literal["metric"] = "metric"


@frozen
class Snapshot(RunView):
    """A run at one moment, whole."""

    tasks: tuple[TaskView, ...] = ()
    """In start order: ps first."""
    hosts: tuple[HostView, ...] = ()
    receipt: Receipt | None = None
    notes: tuple[str, ...] = ()
    """Things said once, newest last (a full disk, a takeover, a reconnect)."""

    @property
    def clean(self) -> bool:
        """The receipt says that nothing is left on any host; an empty one says so only of a run
        that has started no task."""
        receipt = self.receipt
        begun = any(task.attempt for task in self.tasks)
        return receipt is not None and receipt.clean and bool(receipt.hosts or not begun)

    @property
    def unasked_hosts(self) -> tuple[HostView, ...]:
        """Connected hosts that may still confirm the longer lease of a run in the background."""
        if self.detached_lease is None:
            return ()
        up = [one for one in self.hosts if one.state is HostState.UP]
        return tuple(one for one in up if (one.lease or self.lease) != self.detached_lease)

    @property
    def unconfirmed(self) -> bool:
        """There is a receipt, and it does not say that nothing is left: it can be killed again."""
        return self.receipt is not None and not self.clean

    @property
    def step(self) -> int | None:
        """The highest global step that any task has reported."""
        return max((t.step for t in self.tasks if t.step is not None), default=None)

    @property
    def loss(self) -> float | None:
        """The chief's loss, else any task's."""
        losses = [t for t in self.tasks if t.loss is not None]
        return next((t.loss for t in losses if t.is_chief), losses[0].loss if losses else None)

    @property
    def culprit(self) -> TaskId | None:
        """The task that is to blame for a failure, by the verdict; else the first that failed."""
        if self.verdict is not None and self.verdict.tasks:
            return self.verdict.tasks[0]
        return None if self.first_failure is None else self.first_failure.task

    @property
    def halted(self) -> tuple[TaskView, ...]:
        """The tasks with a process that is stopped or waits in the kernel, the first one first."""
        found = [(t.halted_since, t) for t in self.tasks if t.halted_since is not None]
        return tuple(task for _, task in sorted(found, key=lambda one: one[0]))

    @property
    def stalled(self) -> tuple[TaskView, ...]:
        """The tasks that have stalled, the first one first."""
        found = [(t.stalled_since, t) for t in self.tasks if t.stalled_since is not None]
        return tuple(task for _, task in sorted(found, key=lambda one: one[0]))

    @property
    def trouble(self) -> TaskId | None:
        """The task to look at first: the culprit, else one that is stopped, that stalled first, or
        whose host is lost."""
        lost = (task for task in self.tasks if task.state is TaskState.LOST)
        first = next(iter((*self.halted, *self.stalled, *lost)), None)
        return self.culprit or (None if first is None else first.id)

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
    """The notes that have come since; the oldest ones may have been dropped. Those of the run stand
    before those of the screen's own connection to it: new ones may come between."""
    for dropped in range(len(before)):
        rest = before[dropped:]
        if after[: len(rest)] == rest:
            return after[len(rest) :]
    known = Counter(before)
    known.subtract(after)
    return tuple(note for note in after if known[note] < 0)
