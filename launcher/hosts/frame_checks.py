"""The one place where frames of an agent come in: what a host may say, and when.

It is told what the launcher sends (`sent`, `expect`), and checks what comes by it: only the
host's own tasks and attempts that were started, only answers to what was asked, log bytes only
of logs that were opened, in their order, within `log_limit` and the credit. Everything else is
a `ProtocolError`, whatever it claims.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import ValidationError

from ..agent import wire
from ..errors import ProtocolError
from ..ids import TaskId
from ..printable import printable
from .messages import (
    FOREIGN,
    MESSAGES,
    Answer,
    Gone,
    KillReceipt,
    LogBytes,
    LogSize,
    Message,
    Refusal,
    Reply,
    TaskFacts,
    Welcome,
)

_BEFORE_GREETING = (Welcome, Refusal, Gone)
_M = TypeVar("_M", bound=Message)


@dataclass
class _OpenLog:
    task: TaskId
    position: int


class FrameChecker:
    """What one host may say to this launcher.

    `tasks` are the host's, each with its `log_limit`. `local`: its logs lie on this machine, so
    that it only tells their sizes. `adopts`: an earlier launcher may have started attempts and
    asked for kills, so that the first greeting is believed about them.
    """

    def __init__(
        self, host: str, tasks: Mapping[TaskId, int], *, local: bool, adopts: bool
    ) -> None:
        self._host = host
        self._limits = dict(tasks)
        self._context = {"tasks": {str(task): task for task in tasks}}
        self._local = local
        self._adopts = adopts
        self._met = False
        self._attempts: set[tuple[TaskId, int]] = set()
        self._kills: set[frozenset[TaskId] | None] = set()
        """Kills that were asked for; None is one of everything."""
        self.connected()

    # --- what the launcher does -----------------------------------------------------------

    def connected(self) -> None:
        """A connection begins, on which nothing has been said yet."""
        self._greeted = False
        self._granted = self._received = 0
        self._logs: dict[int, _OpenLog] = {}
        self._archives: set[int] = set()
        self._asked: dict[int, tuple[type[Answer], Mapping[str, Any]]] = {}

    def sent(self, kind: int, body: Mapping[str, Any]) -> None:
        """Notes what a frame to the agent allows it to say."""
        own = self._context["tasks"]
        if kind == wire.START:
            self._attempts.add((own[body["task"]], body["attempt"]))
        elif kind == wire.OPEN:
            self._logs[body["number"]] = _OpenLog(own[body["task"]], body["from"])
        elif kind == wire.CREDIT:
            self._granted = max(self._granted, body["upto"])
        elif kind == wire.KILL:
            tasks = body["tasks"]
            self._kills.add(None if tasks is None else frozenset(own[task] for task in tasks))
        elif kind == wire.COLLECT and "open" in body:
            self._archives.add(body["open"])
        elif kind in (wire.COLLECT, wire.STAGED) and body.get("id") == 0:
            self._asked[0] = (Answer, {})  # nobody waits for it

    def expect(self, ident: int, answer: type[Answer], question: Mapping[str, Any]) -> None:
        """A question that is sent under the number `ident`, and what an answer to it is."""
        self._asked[ident] = (answer, question)

    # --- what the agent says --------------------------------------------------------------

    def check(self, frame: wire.Frame) -> Message | LogBytes | Reply | None:
        """The message in a frame; None for one that was meant for an earlier launcher.

        Raises:
            WireError: it is no frame of an agent at all.
            ProtocolError: the host may not say this.
        """
        name = wire.NAMES[frame.type]
        if frame.type == wire.DATA:
            message: Message | LogBytes | Reply = self._log_bytes(frame)
        elif frame.type == wire.REPLY:
            message = self._reply(frame.json())
        elif frame.type in MESSAGES:
            body = frame.json()
            if frame.type == wire.WELCOME and body.get("version") != wire.VERSION:
                said = printable(str(body.get("version", "unknown")), 20)
                raise self._broken(
                    f"{name} of version {said}, and this tfmux speaks version {wire.VERSION}"
                )
            message = self._parsed(MESSAGES[frame.type], body, name)
        else:
            raise self._broken(f"{name}, which only a launcher says")
        if not self._greeted and not isinstance(message, _BEFORE_GREETING):
            raise self._broken(f"{name} before a greeting")
        if isinstance(message, Welcome):
            self._welcome(message)
        elif isinstance(message, TaskFacts):
            self._facts(message, name)
        elif isinstance(message, LogSize):
            self._size(message)
        elif isinstance(message, KillReceipt) and not self._asked_for(message):
            if not self._adopts:
                raise self._broken("RECEIPT of a kill that nobody has asked for")
            return None
        return message

    def _broken(self, rule: str) -> ProtocolError:
        return ProtocolError(self._host, rule)

    def _parsed(self, kind: type[_M], body: Mapping[str, Any], name: str) -> _M:
        try:
            return kind.model_validate(body, context=self._context)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            if first["type"] == FOREIGN:
                raise self._broken(f"{name} for {first['msg']}") from None
            place = printable(".".join(map(str, first["loc"])), 60)
            raise self._broken(f"{name}: {place}: {first['msg']}") from None

    def _welcome(self, message: Welcome) -> None:
        if self._greeted:
            raise self._broken("WELCOME for a second time")
        if self._adopts and not self._met:
            self._attempts |= {(facts.task, facts.attempt) for facts in message.tasks}
        for facts in message.tasks:
            self._facts(facts, "WELCOME")
        self._greeted = self._met = True

    def _facts(self, facts: TaskFacts, name: str) -> None:
        if (facts.task, facts.attempt) not in self._attempts:
            what = f"attempt {facts.attempt} of {facts.task}"
            raise self._broken(f"{name} for {what}, which was not started")
        self._within_limit(facts.task, facts.size, name)

    def _within_limit(self, task: TaskId, size: int, name: str) -> None:
        if size > self._limits[task]:
            raise self._broken(f"{name} of {task} beyond its log_limit")

    def _size(self, message: LogSize) -> None:
        if not self._local:
            raise self._broken("SIZE, although its logs come as bytes")
        self._within_limit(message.task, message.size, "SIZE")

    def _asked_for(self, receipt: KillReceipt) -> bool:
        """A kill of some tasks may have been joined to one of everything, which the agent began
        by itself; of such a one alone it tells without having been asked."""
        if receipt.tasks is None:
            return bool(self._kills) or not receipt.ids
        return frozenset(receipt.tasks) in self._kills

    def _reply(self, body: Mapping[str, Any]) -> Reply:
        ident, error = body.get("id"), body.get("error")
        if error is not None and not isinstance(error, str):
            raise self._broken("REPLY: an error that is no text")
        if ident == "stage" and error is not None:
            return Reply(None, error=printable(error))
        if not isinstance(ident, int) or isinstance(ident, bool) or ident not in self._asked:
            raise self._broken("REPLY to what nobody has asked")
        # One answer a question, but for those that all have the number 0.
        kind, question = self._asked.pop(ident) if ident else self._asked[0]
        if error is not None:
            return Reply(ident, error=printable(error))
        name = f"REPLY ({kind.__name__.removesuffix('Answer').lower() or 'any'})"
        answer = self._parsed(kind, body, name)
        if not answer.fits(question):
            raise self._broken(f"{name} that does not fit its question")
        return Reply(ident, answer)

    def _log_bytes(self, frame: wire.Frame) -> LogBytes:
        number, offset, chunk = frame.data()
        self._received += len(chunk)
        if self._received > self._granted:
            raise self._broken("DATA of more than its credit")
        log = self._logs.get(number)
        if log is not None:
            if offset != log.position:
                raise self._broken(f"DATA of {log.task} at byte {offset} instead of {log.position}")
            log.position += len(chunk)
            self._within_limit(log.task, log.position, "DATA")
        elif number not in self._archives:
            raise self._broken(f"DATA of a log that is not open ({number})")
        return LogBytes(number, offset, chunk)
