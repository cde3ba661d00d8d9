"""Checks of an agent's frames: what a host may say, and when.

The checker is told what the launcher sends (`sent`, `expect`), and reads what comes by it: only the
host's own tasks and attempts that were started, answers to questions that were asked, log bytes
only of logs that were opened, in their order, within `log_limit` and the credit. Anything else is a
`ProtocolError`. Whatever the run records of a host comes out of one budget. Text is made printable.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..agent import wire
from ..errors import ProtocolError
from ..frozen import frozen
from ..ids import TaskId
from ..plan.environment import ASKED
from ..run.gpus import GpuView
from .frames import (
    MESSAGES,
    Credit,
    Frame,
    Gone,
    GpusAnswer,
    Kill,
    KillReceipt,
    LogSize,
    Message,
    Pong,
    Question,
    ReadLog,
    Refusal,
    ReplyHead,
    Request,
    StacksAnswer,
    Start,
    StatsAnswer,
    TaskFacts,
    Welcome,
    WelcomeHead,
)

_BEFORE_WELCOME = (Welcome, Refusal, Gone)
_UNRECORDED = (Welcome, Pong, LogSize, Refusal, Gone)
_BUDGET, _BUDGET_A_START, _BUDGET_A_KILL = 100, 10, 2
"""Messages of a host that a run records: an attempt has four (started, listening, ended, end of
output), some notes, and the receipts of its kills."""


@frozen
class LogBytes:
    """Bytes of a log that begin at `offset`."""

    number: int
    offset: int
    chunk: bytes


@frozen
class Reply:
    """The reply to a question: its answer, or the `error` in the place of one."""

    id: int
    answer: Frame | None = None
    error: str = ""


@dataclass
class _OpenLog:
    task: TaskId
    position: int
    attempt: int


class FrameChecker:
    """Rules for what one host may say to this launcher.

    `tasks` are the host's, each with its `log_limit`. `local`: its logs lie on this machine, so
    that it only reports their sizes. `adopts`: an earlier launcher may have started attempts, so
    that the first welcome is believed about them.
    """

    def __init__(
        self, host: str, tasks: Mapping[TaskId, int], *, local: bool, adopts: bool
    ) -> None:
        self._host = host
        self._limits = dict(tasks)
        self._local = local
        self._adopts = adopts
        self._met = False
        self._attempts: set[tuple[TaskId, int]] = set()
        """Attempts that were started."""
        self._budget = _BUDGET
        self.connected()

    # --- what the launcher does -----------------------------------------------------------

    def connected(self) -> None:
        """Begins a connection, on which nothing has been said yet."""
        self._welcomed = False
        self._granted = self._received = 0
        self._logs: dict[int, _OpenLog] = {}
        self._asked: dict[int, Question[Any]] = {}

    def sent(self, request: Request) -> None:
        """Notes what a frame to the agent allows it to say."""
        match request:
            case Start(task=task, attempt=attempt):
                self._attempts.add((task, attempt))
                self._budget += _BUDGET_A_START
            case ReadLog(task=task, number=number, offset=offset, attempt=attempt):
                self._logs[number] = _OpenLog(task, offset, attempt)
            case Credit(up_to=up_to):
                self._granted = max(self._granted, up_to)
            case Kill():
                self._budget += _BUDGET_A_KILL

    def expect(self, ident: int, question: Question[Any]) -> None:
        """Notes a question that is sent under the number `ident`."""
        self._asked[ident] = question

    # --- what the agent says --------------------------------------------------------------

    def check(self, frame: wire.RawFrame) -> Message | LogBytes | Reply:
        """The message in a frame.

        Raises:
            WireError: it is no frame of an agent at all.
            ProtocolError: the host may not say this.
        """
        name = wire.NAMES[frame.type]
        if frame.type == wire.DATA:
            message: Message | LogBytes | Reply = self._log_bytes(frame)
        elif frame.type == wire.REPLY:
            message = self._reply(frame)
        elif frame.type in MESSAGES:
            message = self._message(frame, name)
        else:
            raise self._broken(f"{name}, which only a launcher sends")
        if not self._welcomed and not isinstance(message, _BEFORE_WELCOME):
            raise self._broken(f"{name} before WELCOME")
        match message:
            case Welcome():
                self._welcome(message)
            case TaskFacts():
                self._facts(message, name)
            case LogSize():
                self._size(message)
            case KillReceipt(tasks=tasks):
                for task in tasks or ():
                    self._own(task, name)
            case Gone():
                known = (task if task in self._limits else None for task in message.left)
                return message.model_copy(update={"left": tuple(known)})
        if isinstance(message, Message) and not isinstance(message, _UNRECORDED):
            self._budget -= 1
            if self._budget < 0:
                raise self._broken(f"{name}: more messages than its tasks and kills explain")
        return message

    def _broken(self, rule: str) -> ProtocolError:
        return ProtocolError(self._host, rule)

    def _message(self, frame: wire.RawFrame, name: str) -> Message:
        try:
            if frame.type == wire.WELCOME:
                version = WelcomeHead.read(frame.body).version
                if version != wire.VERSION:
                    said = f"version {version}, and this tfmux speaks version {wire.VERSION}"
                    raise self._broken(f"{name} of {said}")
            return MESSAGES[frame.type].read(frame.body)
        except ValueError as error:
            raise self._broken(f"{name}: {error}") from None

    def _own(self, task: TaskId, name: str) -> None:
        if task not in self._limits:
            raise self._broken(f"{name} for {task}, which is not one of its tasks")

    def _welcome(self, message: Welcome) -> None:
        if self._welcomed:
            raise self._broken("WELCOME for a second time")
        if not message.environ.keys() <= {*ASKED}:
            raise self._broken("WELCOME: environ: variables that were not asked for")
        if self._adopts and not self._met:
            for facts in message.tasks:
                self._attempts.add((facts.task, facts.attempt))
        for facts in message.tasks:
            self._facts(facts, "WELCOME")
        self._welcomed = self._met = True

    def _facts(self, facts: TaskFacts, name: str) -> None:
        self._own(facts.task, name)
        if (facts.task, facts.attempt) not in self._attempts:
            what = f"attempt {facts.attempt} of {facts.task}"
            raise self._broken(f"{name} for {what}, which was not started")
        self._within_limit(facts.task, facts.size, name)

    def _within_limit(self, task: TaskId, size: int, name: str) -> None:
        if size > self._limits[task]:
            raise self._broken(f"{name} of {task} beyond its log_limit")

    def _size(self, message: LogSize) -> None:
        self._own(message.task, "LOG_SIZE")
        if message.attempt is not None:
            asked = {(log.task, log.attempt) for log in self._logs.values()}
            if (message.task, message.attempt) not in asked:
                what = f"attempt {message.attempt} of {message.task}"
                raise self._broken(f"LOG_SIZE for {what}, which was not asked about")
        elif not self._local:
            raise self._broken("LOG_SIZE, although its logs come as bytes")
        self._within_limit(message.task, message.size, "LOG_SIZE")

    def _reply(self, frame: wire.RawFrame) -> Reply:
        name = "REPLY"
        try:
            head = ReplyHead.read(frame.body)
            if head.id not in self._asked:
                raise self._broken("REPLY to a question that was not asked")
            question = self._asked.pop(head.id)  # one answer a question
            if head.error is not None:
                return Reply(head.id, error=head.error)
            name = f"REPLY ({type(question).__name__})"
            answer = question.ANSWER.read(frame.body)
        except ValueError as problem:
            raise self._broken(f"{name}: {problem}") from None
        if not question.accepts(answer):
            raise self._broken(f"{name}: the answer does not fit the question")
        if isinstance(answer, StatsAnswer):
            # Two host names may be one machine: another's task is left out, and is no lie.
            own = {task: share for task, share in answer.tasks.items() if task in self._limits}
            answer = answer.model_copy(update={"tasks": own})
        if isinstance(answer, StatsAnswer | GpusAnswer):
            gpus = tuple(map(self._own_gpu, answer.gpus))
            answer = answer.model_copy(update={"gpus": gpus})
        if isinstance(answer, StacksAnswer):
            ours = tuple(one for one in answer.processes if one.task in self._limits)
            answer = answer.model_copy(update={"processes": ours})
        return Reply(head.id, answer)

    def _own_gpu(self, gpu: GpuView) -> GpuView:
        """A GPU without the processes of tasks that are no tasks of this host."""
        known = tuple(one for one in gpu.processes if one.task is None or one.task in self._limits)
        return replace(gpu, processes=known)

    def _log_bytes(self, frame: wire.RawFrame) -> LogBytes:
        number, offset, chunk = frame.data()
        self._received += len(chunk)
        if self._received > self._granted:
            raise self._broken("DATA of more than its credit")
        log = self._logs.get(number)
        if log is None:
            raise self._broken(f"DATA of a log that is not open ({number})")
        if offset != log.position:
            raise self._broken(f"DATA of {log.task} at byte {offset} instead of {log.position}")
        log.position += len(chunk)
        self._within_limit(log.task, log.position, "DATA")
        return LogBytes(number, offset, chunk)
