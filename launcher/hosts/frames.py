"""Frames of the host protocol: what an agent says, and what it is asked.

A host is not trusted: whatever comes from it is read by the models here, once, and by the records
of a run (`run`) of which they are made. The agent is sent by this very version and acts for the
account that speaks to it: there frames are plain dictionaries.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Annotated, Any, ClassVar, Generic, Literal, Self, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from ..agent import wire
from ..agent.executables import KINDS, ProgramProblem
from ..agent.wire import MOST_FRAMES, MOST_PROCESSES, MOST_THREADS
from ..cluster.choices import OnDisconnect, Stop, StopSignal
from ..frozen import frozen
from ..ids import TaskId
from ..plan.run_plan import Plan
from ..printable import printable
from ..run.background import LeftProcesses
from ..run.fields import Code, Count, ExitCode, Figure, Line, Pid, Seconds, SignalName, Text
from ..run.gpus import GpuView
from ..run.snapshot import Survivor
from ..run.states import Purpose, StoppedBy
from ..start_problems import problem_text

AnyNumber = Annotated[int, Field(ge=-(1 << 62), le=1 << 62)]
Port = Annotated[int, Field(ge=1, le=65535)]
AbsolutePath = Annotated[str, Field(max_length=1 << 16, pattern=r"^/[^\x00-\x1f\x7f-\x9f]*$")]
VariableName = Annotated[str, Field(max_length=1000)]
VariableValue = Annotated[str, Field(max_length=1 << 17)]
"""Linux gives none that is longer to a program."""


class Frame(BaseModel):
    """Base of what a host says, and of its parts."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore", defer_build=True)

    @classmethod
    def read(cls, body: bytes) -> Self:
        """The frame with this body.

        Raises:
            ValueError: it is none; the message names the field.
        """
        try:
            return cls.model_validate_json(body)
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            where = ".".join(str(part)[:40] for part in first["loc"])
            problem = first["msg"].removeprefix("Value error, ")
            raise ValueError(f"{where}: {problem}" if where else problem) from None


# --- what an agent says -------------------------------------------------------------------

MESSAGES: dict[int, type[Message]] = {}


class Message(Frame):
    """Base of what an agent says without having been asked."""

    TYPE: ClassVar[int]

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "TYPE" in vars(cls):
            MESSAGES[cls.TYPE] = cls


def compile_messages() -> None:
    """Compiles the models of all messages, which each does else when it first comes."""
    for message in MESSAGES.values():
        message.model_rebuild()


def _known_kind(kind: str) -> str:
    if kind not in KINDS:
        raise ValueError("no kind of problem")
    return kind


class StartProblem(Frame):
    """Reason for which a program cannot be started (`executables.ProgramProblem`)."""

    kind: Annotated[str, AfterValidator(_known_kind)]
    file: Text
    about: Text = ""
    script: Text = ""

    @property
    def text(self) -> str:
        """The reason in a sentence."""
        return problem_text(ProgramProblem(self.kind, self.file, self.about, self.script))


class PortOwner(Frame):
    """A process that listens on a port: pid 0 where we may not see which it is, then perhaps with
    its account, and whether that is ours. `task` is the tag of a run's process."""

    port: Port
    pid: Pid
    command: Text
    task: Text = ""
    account: Text = ""
    own: bool = False

    @property
    def run(self) -> str:
        """The run to whose task the port belongs; empty when it is no run's."""
        return self.task.partition("/")[0]

    def __str__(self) -> str:
        """`pid 12 of worker:0 of the run R (python -m trainer …)`."""
        if not self.pid and self.own:
            return "a process of this account that is not seen here, or one that is ending"
        if not self.pid:
            return (
                f"a process of {printable(self.account) or 'another user'}, or one that is ending"
            )
        run, _, rest = self.task.partition("/")
        by = f" of {rest.rpartition('/')[0]} of the run {run}" if run else ""
        return printable(f"pid {self.pid}{by} ({self.command})")

    @property
    def problem(self) -> str:
        """The sentence where a task needs the port."""
        return f"port {self.port} is in use by {self}"


class TaskFacts(Message):
    """Facts that an agent knows of one attempt of a task. `refused`: it was asked for behind a kill
    that ends the run, and nothing was started. `problem`: the program that could not be started, by
    the kernel or by a shell, and why."""

    task: TaskId
    attempt: Annotated[int, Field(ge=1, lt=1 << 31)]
    pid: Pid
    error: Text
    problem: StartProblem | None = None
    ended: bool
    status: ExitCode | None = None
    signal: SignalName | None = None
    ended_ago: Seconds | None = None
    out_of_memory: bool = False
    full: Annotated[tuple[Text, ...], Field(max_length=wire.MOST_FULL)] = ()
    stopped_by: StoppedBy = StoppedBy.NOBODY
    stopped_why: Text = ""
    listening: bool
    loopback: Annotated[str, Field(pattern=r"\A[0-9a-f.:]{0,45}\z")] = ""
    size: Count
    began_at: Count
    eof: bool
    lost: Count
    cut: Count
    port_owner: PortOwner | None = None
    gated: bool = False
    left: LeftProcesses | None = None
    refused: bool = False

    @model_validator(mode="after")
    def _has_a_reason(self) -> Self:
        if self.refused and not self.error:
            raise ValueError("a start that was refused without a reason")
        return self

    @property
    def start_problem(self) -> str:
        """The program that could not be started, and why, in a sentence; empty where none is
        known."""
        return "" if self.problem is None else self.problem.text

    @property
    def port_holder(self) -> str:
        """The process that holds the task's port, in words; empty when there is none."""
        return "" if self.port_owner is None else str(self.port_owner)


class Started(TaskFacts):
    """A task's process runs, or could not be started (`error`)."""

    TYPE = wire.STARTED


class Listening(TaskFacts):
    """A task listens on its port."""

    TYPE = wire.LISTENING


class Exited(TaskFacts):
    """A task's process has ended, and what it had written by then is in its log."""

    TYPE = wire.EXITED

    @model_validator(mode="after")
    def _has_an_end(self) -> Self:
        if not self.ended:
            raise ValueError("an exit without an end")
        return self


class OutputEnded(TaskFacts):
    """Nobody will write to the log of this attempt any more."""

    TYPE = wire.EOF


class Welcome(Message):
    """The answer to a hello: what the agent holds, and how an earlier agent of the run ended."""

    TYPE = wire.WELCOME
    version: Count
    pid: Pid
    home: AbsolutePath
    stage: AbsolutePath
    environ: dict[VariableName, VariableValue]
    tasks: tuple[TaskFacts, ...]
    previous_end: Text = ""


class WelcomeHead(Frame):
    """The part of a welcome that every version has."""

    version: Count


class LogSize(Message):
    """Size in bytes of a log that lies on the launching machine; with an `attempt` of any log, to
    which nobody writes any more: the agent has not started that attempt, and the one that did has
    died."""

    TYPE = wire.LOG_SIZE
    task: TaskId
    size: Count
    attempt: Annotated[int, Field(ge=1, lt=1 << 31)] | None = None


class Pong(Message):
    """The answer to a beat."""

    TYPE = wire.PONG


class KillReceipt(Message):
    """Result of a kill of some tasks, or of everything (`tasks` is None). Without `ids` nobody
    asked: the agent has acted by itself. `confirmed` is the kernel's word, which there is of
    everything only, and never beside survivors: some tasks without survivors and `doubt` are seen
    gone. `unlisted` is the number of survivors beyond those listed. `doubt` says why nothing was
    found and yet something may be left, `until_boot` that nobody can know before the host boots."""

    TYPE = wire.RECEIPT
    ids: tuple[Count, ...]
    tasks: tuple[TaskId, ...] | None
    signalled: Count
    survivors: Annotated[tuple[Survivor, ...], Field(max_length=wire.MOST_SURVIVORS)]
    seconds: Seconds
    confirmed: bool
    doubt: Text = ""
    until_boot: bool = False
    unlisted: Count = 0

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if self.confirmed and (self.tasks is not None or self.doubt or self.survivors):
            raise ValueError("confirmed, and yet of some tasks only, with a doubt, or survivors")
        if self.unlisted and not self.survivors:
            raise ValueError("unlisted survivors and none listed")
        return self


class AgentNote(Message):
    """A sentence for the person at the terminal."""

    TYPE = wire.NOTE
    text: Text


class Refusal(Message):
    """The agent, or its bridge, cannot go on; `code` is that of the launcher's `HostError`."""

    TYPE = wire.ERROR
    text: Text
    code: Code = ""


class Gone(Message):
    """The agent lets go of a launcher: because that asked (`by` is empty), or another one came,
    which has said what for.

    A bridge that found no agent names in `left` the tasks of processes that live all the same,
    None for one that cannot be named. `doubt`: there may be others that nobody knows. `why`: how
    the last agent has ended, if that is known.
    """

    TYPE = wire.GONE
    by: Text
    purpose: Purpose = Purpose.UNKNOWN
    left: tuple[TaskId | None, ...] = ()
    doubt: bool = False
    why: Text = ""


class ReplyHead(Frame):
    """What every answer to a question begins with; `error` stands in the place of the rest."""

    id: Count
    error: Text | None = None


# --- what it is asked, and its answers ----------------------------------------------------

A = TypeVar("A", bound="Answer")

REQUESTS: dict[int, type[Request]] = {}


def _plain(value: object) -> object:
    if isinstance(value, TaskId):
        return str(value)
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    if isinstance(value, Settings):
        return value.to_json()
    return value


@frozen
class Settings:
    """Base of what is sent to an agent: dataclasses that become JSON objects."""

    def to_json(self) -> dict[str, Any]:
        """The JSON object; fields that are None are left out."""
        made = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None:
                made[field.name] = value if isinstance(value, int | float | str) else _plain(value)
        return made


@frozen
class Request(Settings):
    """Base of what an agent is asked."""

    TYPE: ClassVar[int]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "TYPE" in vars(cls):
            REQUESTS[cls.TYPE] = cls

    def encode(self, ident: int | None = None) -> bytes:
        """The frame, ready to be sent; a question has the number `ident`.

        Raises:
            WireError: it is longer than an agent accepts.
        """
        body = self.to_json()
        return wire.encode(self.TYPE, body if ident is None else {**body, "id": ident})


@frozen
class Question(Request, Generic[A]):
    """A request that gets an answer."""

    ANSWER: ClassVar[type[Any]]

    def accepts(self, answer: A) -> bool:
        """The answer is one to this question."""
        return True


@frozen
class Rules(Settings):
    """Behaviour of an agent without a launcher: after `lease` seconds it stops the tasks (with
    `grace` seconds between TERM and KILL) or keeps them, as `on_disconnect` says."""

    lease: float
    grace: float
    on_disconnect: str

    @classmethod
    def of(cls, plan: Plan, *, background: bool = False) -> Rules:
        """The rules of a run, while a screen shows it or in the `background`."""
        settings = plan.settings
        lease = settings.background_lease if background else settings.lease
        return cls(lease, settings.grace, str(settings.on_disconnect))


@frozen
class Hello(Request):
    """The first frame of a channel. Without `rules` it is a query: the launcher that is there is
    not replaced, and no lease is renewed. `launcher` names the launcher, and `purpose` what it
    takes the run over for, to the one that is replaced; `variables` are those of the host whose
    values the welcome shall hold."""

    TYPE = wire.HELLO
    token: str
    launcher: str
    variables: tuple[str, ...]
    rules: Rules | None = None
    purpose: Purpose = Purpose.ATTACH
    version: int = wire.VERSION


@frozen
class Start(Request):
    """Starts an attempt of a task. A `gated` one has as its input a pipe, from which it reads a
    byte when it is released; then its program begins (`on_host/warm.py`). `stop` and `stop_signal`
    say how the task is asked to end, whoever wants it: the agent alone may, too. A `logdir` is
    made before it."""

    TYPE = wire.START
    task: TaskId
    attempt: int
    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    log_limit: int
    port: int | None = None
    pty: bool = False
    gated: bool = False
    stop: Stop = Stop.ALL
    stop_signal: StopSignal = StopSignal.TERM
    logdir: str = ""
    shell_words: int = 0
    """The number of words that are our shells in front of the task's own."""


@frozen
class Release(Request):
    """Lets a gated attempt begin."""

    TYPE = wire.RELEASE
    task: TaskId
    attempt: int


@frozen
class Beat(Request):
    """The launcher lives; the agent answers with a pong."""

    TYPE = wire.BEAT


@frozen
class Kill(Request):
    """Ends some tasks, or everything (without `tasks`). The receipt names the `id`. A `final` one
    ends the run: the agent refuses every start behind it."""

    TYPE = wire.KILL
    id: int
    tasks: tuple[TaskId, ...] | None
    grace: float
    final: bool = False


@frozen
class Leave(Request):
    """The launcher leaves: the run is over, and its folder is removed or not. What tasks have left
    in the workdir stays, but for the paths that were `brought` to the launcher."""

    TYPE = wire.LEAVE
    remove: bool = False
    brought: tuple[str, ...] = ()


@frozen
class ReadLog(Request):
    """Sends a task's log from a byte on, under a number; `log_limit` as in `START`. `attempt` is
    the last one that is known to have had a process: where it is another agent's, the answer is a
    `LOG_SIZE`. A log of the launching machine is not sent."""

    TYPE = wire.READ_LOG
    task: TaskId
    number: int
    offset: int
    log_limit: int = 1 << 62
    attempt: int = 0


@frozen
class Credit(Request):
    """Bytes of logs, in all, that may be sent on this channel."""

    TYPE = wire.CREDIT
    up_to: int


class Answer(Frame):
    """Base of the answers to questions; `WHAT` names the question to a short program
    (`programs`)."""

    WHAT: ClassVar[str] = ""


class DirectoryAnswer(Answer):
    """Why a task cannot start in a directory; None if it can."""

    WHAT = "directory"
    problem: StartProblem | None = None

    @property
    def why(self) -> str:
        """The reason in a sentence; empty if it can."""
        return "" if self.problem is None else self.problem.text


class PortsAnswer(Answer):
    """Ports of the question that are taken: by whom, and the `busy` candidates."""

    WHAT = "ports"
    owners: tuple[PortOwner, ...]
    busy: tuple[Port, ...] = ()


@frozen
class Ports(Question[PortsAnswer]):
    """Request for the owners of the ports to `check`, and for those of the `candidates` on which
    no server could listen now."""

    TYPE = wire.PORTS
    ANSWER = PortsAnswer
    check: tuple[int, ...]
    candidates: tuple[int, ...] = ()

    def accepts(self, answer: PortsAnswer) -> bool:
        owned = {owner.port for owner in answer.owners}
        return owned <= set(self.check) and set(answer.busy) <= set(self.candidates)


class HeldRules(Frame):
    """Rules that an agent holds."""

    lease: Seconds
    grace: Seconds
    on_disconnect: OnDisconnect


class RulesAnswer(Answer):
    """The agent holds these rules from now on."""

    rules: HeldRules


@frozen
class RulesQuestion(Question[RulesAnswer]):
    """Request to hold other rules than those of the greeting."""

    TYPE = wire.RULES
    ANSWER = RulesAnswer
    rules: Rules

    def accepts(self, answer: RulesAnswer) -> bool:
        held = answer.rules
        return self.rules == Rules(held.lease, held.grace, str(held.on_disconnect))


Gpus = Annotated[tuple[GpuView, ...], Field(max_length=2 * wire.MOST_GPUS)]


class StatsAnswer(Answer):
    """CPU (0–1), memory and GPUs of the host, and of each task its cores and bytes. `gpu_problem`
    says why these GPUs are not all, or not new. `halted` are tasks of which a process is stopped
    (T), or waits in the kernel (D) or for input from its terminal (I) and has got no further since
    the last look. `beyond` counts the
    bytes that tasks have written for which their logs have no room now (`agent/log_end.py`)."""

    cpu: Figure | None = None
    memory_total: AnyNumber
    memory_used: AnyNumber
    gpus: Gpus
    gpu_problem: Line = ""
    tasks: dict[TaskId, tuple[Figure, AnyNumber]]
    halted: dict[TaskId, Literal["T", "D", "I"]] = Field(default_factory=dict)
    beyond: dict[TaskId, Count] = Field(default_factory=dict)


@frozen
class Stats(Question[StatsAnswer]):
    """CPU, memory and GPUs, of the host and of each task."""

    TYPE = wire.STATS
    ANSWER = StatsAnswer


class GpusAnswer(Answer):
    """GPUs as nvidia-smi lists them, the versions of the driver and of the CUDA that it has, what
    nvidia-smi says besides, and which GPUs the environment there makes `visible`, if it does."""

    WHAT = "gpus"
    gpus: Gpus = ()
    driver: Code = ""
    cuda: Code = ""
    visible: Line | None = None
    why: Text = ""


@frozen
class GpusQuestion(Question[GpusAnswer]):
    """Request for the GPUs of the host."""

    TYPE = wire.GPUS
    ANSWER = GpusAnswer


Way = Literal["python", "py-spy", "proc"]


class ProcessLook(Frame):
    """Where a process of a task stands: of each thread its name and the number of its stack, that
    of the first thread first. `way` is how it was found (`launcher/agent/stack_taker.py`), `note`
    why no better one led there; `state` is what the first thread does by the word of the kernel."""

    task: TaskId
    pid: Pid
    command: Line
    way: Way
    state: Line
    note: Line = ""
    threads: Annotated[tuple[tuple[Line, Count], ...], Field(min_length=1, max_length=MOST_THREADS)]
    unlisted: Count = 0
    files: Annotated[tuple[Line, ...], Field(max_length=64)] = ()
    rank: Annotated[int, Field(ge=0, le=999_999)] | None = None
    parent: Count = 0


StackLine = tuple[Line, Line, Annotated[int, Field(ge=0, le=1 << 31)]]
"""Function, file and line of a frame."""


class StacksAnswer(Answer):
    """Processes of tasks and where they stand. Equal stacks are said once: `processes` have their
    numbers. `unlisted` processes are left out."""

    stacks: Annotated[
        tuple[Annotated[tuple[StackLine, ...], Field(max_length=MOST_FRAMES)], ...],
        Field(max_length=MOST_PROCESSES * MOST_THREADS),
    ]
    processes: Annotated[tuple[ProcessLook, ...], Field(max_length=MOST_PROCESSES)]
    unlisted: Count = 0

    @model_validator(mode="after")
    def _names_its_stacks(self) -> Self:
        numbers = (number for process in self.processes for _, number in process.threads)
        if max(numbers, default=-1) >= len(self.stacks):
            raise ValueError("a stack that is not there")
        return self


@frozen
class StacksQuestion(Question[StacksAnswer]):
    """Where the processes of these tasks stand, or of all (without `tasks`)."""

    TYPE = wire.STACKS
    ANSWER = StacksAnswer
    tasks: tuple[TaskId, ...] | None = None
