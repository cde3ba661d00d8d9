"""Checks of an agent's frames: what a host may say, and when.

The checker is told what the launcher sends (`sent`, `expect`), and reads what comes by it: only the
host's own tasks and attempts that were started, each event of one once, only answers to questions
and receipts of kills that were asked for, log bytes only of logs that were opened, in their order,
within `log_limit` and the credit. Anything else is a `ProtocolError`. So what a host makes the
launcher keep is bounded. Text is made printable here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..agent import requests, wire
from ..agent.fields import FieldError
from ..agent.messages import (
    MESSAGES,
    Answer,
    Gone,
    KillReceipt,
    LogSize,
    Message,
    Note,
    Refusal,
    StatsAnswer,
    TaskFacts,
    Welcome,
)
from ..agent.requests import Question, Request
from ..errors import ProtocolError
from ..ids import TaskId
from ..plan.environment import EXTENDED, VISIBLE
from ..printable import printable

_BEFORE_WELCOME = (Welcome, Refusal, Gone)
_UNASKED, _UNASKED_AN_ATTEMPT = 100, 2
"""Notes of a host in a whole run, and receipts of what its agent did by itself: an agent says once
an attempt that its log is cut, and now and then something else."""


@dataclass(frozen=True)
class LogBytes:
    """Bytes of a log that begin at `offset`."""

    number: int
    offset: int
    chunk: bytes


@dataclass(frozen=True)
class Reply:
    """The reply to a question: its answer, or the `error` in the place of one."""

    id: int
    answer: Answer | None = None
    error: str = ""


@dataclass
class _OpenLog:
    task: TaskId
    position: int


class FrameChecker:
    """Rules for what one host may say to this launcher.

    `tasks` are the host's, each with its `log_limit`. `local`: its logs lie on this machine, so
    that it only reports their sizes. `adopts`: an earlier launcher may have started attempts and
    asked for kills, so that the first welcome is believed about them.
    """

    def __init__(
        self, host: str, tasks: Mapping[TaskId, int], *, local: bool, adopts: bool
    ) -> None:
        self._host = host
        self._limits = dict(tasks)
        self._local = local
        self._adopts = adopts
        self._met = False
        self._attempts: Counter[tuple[TaskId, int]] = Counter()
        """How often each attempt was started: after a cut that is said again."""
        self._heard: Counter[tuple[str, TaskId, int]] = Counter()
        """Events of attempts."""
        self._kills: set[frozenset[TaskId] | None] = set()
        """Kills that were asked for; None is one of everything."""
        self._unanswered = 0
        """Requests for kills that no receipt has named yet."""
        self._notes = self._unasked_receipts = 0
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
            case requests.Start(task=task, attempt=attempt):
                self._attempts[(task, attempt)] += 1
            case requests.ReadLog(task=task, number=number, offset=offset):
                self._logs[number] = _OpenLog(task, offset)
            case requests.Credit(up_to=up_to):
                self._granted = max(self._granted, up_to)
            case requests.Kill(tasks=tasks):
                self._kills.add(None if tasks is None else frozenset(tasks))
                self._unanswered += 1

    def expect(self, ident: int, question: Question[Any]) -> None:
        """Notes a question that is sent under the number `ident`."""
        self._asked[ident] = question

    # --- what the agent says --------------------------------------------------------------

    def check(self, frame: wire.Frame) -> Message | LogBytes | Reply | None:
        """The message in a frame; None for one that was meant for an earlier launcher, and for one
        of too many notes.

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
                self._once(message, name)
            case Note():
                return self._note(message)
            case LogSize():
                self._size(message)
            case Gone():
                known = (task if task in self._limits else None for task in message.left)
                return message.replace(left=tuple(known))
            case KillReceipt() if not self._asked_for(message):
                if not self._adopts:
                    raise self._broken("RECEIPT of a kill that was not requested")
                return None
        return message

    def _broken(self, rule: str) -> ProtocolError:
        return ProtocolError(self._host, rule)

    def _message(self, frame: wire.Frame, name: str) -> Message:
        body = frame.json()
        if frame.type == wire.WELCOME and body.get("version") != wire.VERSION:
            version = printable(str(body.get("version", "unknown")), 20)
            raise self._broken(
                f"{name} of version {version}, and this tfmux speaks version {wire.VERSION}"
            )
        try:
            return MESSAGES[frame.type].from_json(body, printable)
        except FieldError as error:
            raise self._broken(f"{name}: {error}") from None

    def _own(self, task: TaskId, name: str) -> None:
        if task not in self._limits:
            raise self._broken(f"{name} for {task}, which is not one of its tasks")

    def _welcome(self, message: Welcome) -> None:
        if self._welcomed:
            raise self._broken("WELCOME for a second time")
        if not message.environ.keys() <= {*EXTENDED, VISIBLE}:
            raise self._broken("WELCOME: environ: variables that were not asked for")
        if self._adopts and not self._met:
            for facts in message.tasks:
                self._attempts[(facts.task, facts.attempt)] = 1
        for facts in message.tasks:
            self._facts(facts, "WELCOME")
        self._welcomed = self._met = True

    def _facts(self, facts: TaskFacts, name: str) -> None:
        self._own(facts.task, name)
        if (facts.task, facts.attempt) not in self._attempts:
            what = f"attempt {facts.attempt} of {facts.task}"
            raise self._broken(f"{name} for {what}, which was not started")
        self._within_limit(facts.task, facts.size, name)

    def _once(self, facts: TaskFacts, name: str) -> None:
        attempt = (facts.task, facts.attempt)
        self._heard[(name, *attempt)] += 1
        if self._heard[(name, *attempt)] > self._attempts[attempt]:
            what = f"attempt {facts.attempt} of {facts.task}"
            raise self._broken(f"{name} for {what}, which has been reported before")

    @property
    def _most_unasked(self) -> int:
        return _UNASKED + _UNASKED_AN_ATTEMPT * len(self._attempts)

    def _note(self, note: Note) -> Note | None:
        self._notes += 1
        if self._notes > self._most_unasked + 1:
            return None
        if self._notes > self._most_unasked:
            return note.replace(text="too many notes; further ones are dropped")
        return note

    def _within_limit(self, task: TaskId, size: int, name: str) -> None:
        if size > self._limits[task]:
            raise self._broken(f"{name} of {task} beyond its log_limit")

    def _size(self, message: LogSize) -> None:
        self._own(message.task, "LOG_SIZE")
        if not self._local:
            raise self._broken("LOG_SIZE, although its logs come as bytes")
        self._within_limit(message.task, message.size, "LOG_SIZE")

    def _asked_for(self, receipt: KillReceipt) -> bool:
        """A kill of some tasks may have been joined to one of everything, which the agent began
        by itself; only of such a one it reports without having been asked. A receipt names each
        request that it answers, one of an earlier launcher, too."""
        for task in receipt.tasks or ():
            self._own(task, "RECEIPT")
        if not receipt.ids:
            self._unasked_receipts += 1
            return receipt.tasks is None and self._unasked_receipts <= self._most_unasked
        most = len(receipt.ids) if self._adopts and self._unanswered else self._unanswered
        if len(receipt.ids) > most:
            return False
        if receipt.tasks is not None and frozenset(receipt.tasks) not in self._kills:
            return False
        self._unanswered = max(0, self._unanswered - len(receipt.ids))
        return True

    def _reply(self, frame: wire.Frame) -> Reply:
        body = frame.json()
        ident, error = body.get("id"), body.get("error")
        if type(ident) is not int or ident not in self._asked:
            raise self._broken("REPLY to a question that was not asked")
        question = self._asked.pop(ident)  # one answer a question
        if error is not None:
            if not isinstance(error, str):
                raise self._broken("REPLY: error: not text")
            return Reply(ident, error=printable(error))
        name = f"REPLY ({type(question).__name__})"
        try:
            answer = question.ANSWER.from_json(body, printable)
        except FieldError as problem:
            raise self._broken(f"{name}: {problem}") from None
        if not question.accepts(answer):
            raise self._broken(f"{name}: the answer does not fit the question")
        if isinstance(answer, StatsAnswer):
            # Two host names may be one machine: another's task is left out, and is no lie.
            own = {task: share for task, share in answer.tasks.items() if task in self._limits}
            answer = answer.replace(tasks=own)
        return Reply(ident, answer)

    def _log_bytes(self, frame: wire.Frame) -> LogBytes:
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
