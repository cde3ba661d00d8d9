"""Looks at a run: the questions that `bulkhead` has answered by another process (`reader`), since
they are about text that other programs print, and each answer is a guess.

A question has what is known, as plain values; its `answer` is called in the reader alone, and
imports what reads text there: the launcher process imports none of it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Generic, TypeVar

from ..frozen import frozen
from ..ids import TaskId

if TYPE_CHECKING:
    from pydantic import TypeAdapter

    from ..run.cause import Verdict
    from ..run.gpus import GpuView
    from ..run.stack_groups import Stacks

A = TypeVar("A")


class Look(StrEnum):
    """Kind of a look."""

    VERDICT = "verdict"
    """The cause of a failure."""
    HANGS = "hangs"
    """Whether tasks hang, and of what."""
    ENDS = "ends"
    """Whether the last lines of a failed task say that another one is at fault."""
    METRICS = "metrics"
    """Figures in logs, and lines that say whom a task waits for."""
    GPUS = "gpus"
    """Sentences about GPUs."""


class LookQuestion(Generic[A]):
    """One question."""

    look: ClassVar[Look]
    seconds: ClassVar[float]
    """Processor time that the reader may take."""
    of_lines: ClassVar[bool] = False
    """Whether it is asked while tasks run, again and again: it waits for no look at a whole run."""

    def answer(self) -> A:
        """Returns the answer; called in the reader."""
        raise NotImplementedError

    @classmethod
    def form(cls) -> TypeAdapter[A]:
        """Returns what encodes an answer, and checks it."""
        kind: Any = cls
        form: TypeAdapter[A] = _form(kind)
        return form

    @classmethod
    def _answer_type(cls) -> Any:
        raise NotImplementedError


@cache
def _form(kind: Any) -> TypeAdapter[Any]:
    from pydantic import ConfigDict, TypeAdapter

    return TypeAdapter(kind._answer_type(), config=ConfigDict(ser_json_inf_nan="constants"))


_LONGEST = 4096
_MOST_FIGURES = 256


def _text() -> Any:
    from pydantic import StringConstraints

    return Annotated[str, StringConstraints(max_length=_LONGEST)]


# --- lines as they come ----------------------------------------------------------------------


@frozen
class Victims(LookQuestion[list[bool]]):
    """Whether the last lines of failed tasks say that another one is at fault."""

    look = Look.ENDS
    seconds = 0.6
    of_lines = True

    tails: tuple[tuple[str, ...], ...]

    def answer(self) -> list[bool]:
        from ..run.last_words import misses_a_peer

        return [bool(tail) and misses_a_peer(tail) for tail in self.tails]

    @classmethod
    def _answer_type(cls) -> Any:
        return list[bool]


@frozen
class NewLines:
    """What one task has printed at one moment."""

    task: TaskId
    data: bytes
    time: float
    heard: float
    """The time by a clock that nobody sets."""


LineNews = tuple[TaskId | None, dict[str, float] | None, float | None]
"""Whom a task says that it waits for, the newest figures, and steps a second."""


@frozen
class NewFigures(LookQuestion[list[LineNews]]):
    """Figures in what tasks have printed, in that order. The reader keeps what it needs of earlier
    lines."""

    look = Look.METRICS
    seconds = 1.0
    of_lines = True

    news: tuple[NewLines, ...]
    pattern: str | None

    def answer(self) -> list[LineNews]:
        from .line_reading import news_in

        return [news_in(one, self.pattern) for one in self.news]

    @classmethod
    def _answer_type(cls) -> Any:
        from pydantic import Field

        name: Any = _text()
        figures: Any = Annotated[dict[name, float], Field(max_length=_MOST_FIGURES)]
        return list[tuple[TaskId | None, figures | None, float | None]]


# --- a whole run -----------------------------------------------------------------------------


@frozen
class TaskReport:
    """What the launcher knows of one task, without a look at its text."""

    task: TaskId
    host: str
    rank: int | None
    names: tuple[str, ...]
    status: int | None
    signal: str | None
    by_us: bool
    lives: bool
    started: float
    ended: float | None
    lost_at: float | None
    out_of_memory: bool
    serves: bool
    argv: tuple[str, ...]
    gpus: tuple[GpuView, ...]
    busy: float | None
    """Processors that it takes, where its host has told."""
    log: bytes = b""
    """The end of its log, as far as this attempt has written it."""
    not_started: str = ""
    """The program that it could not start, and why, as its host has found it."""
    hangs_for: float = 0.0
    moves: bool = False
    wrote: bool = False
    full_disks: tuple[str, ...] = ()


@frozen
class _Judgement(LookQuestion["Verdict | None"]):
    reports: tuple[TaskReport, ...]
    looks: tuple[Stacks, ...]
    cut: bool
    """Stacks may be shorter than they were."""

    @classmethod
    def _answer_type(cls) -> Any:
        from ..run.cause import Verdict

        return Verdict | None


@frozen
class CauseOfFailure(_Judgement):
    """The cause of a run's failure, by these looks at its stacks."""

    look = Look.VERDICT
    seconds = 4.0

    def answer(self) -> Verdict | None:
        from .evidence import cause_of_failure

        return cause_of_failure(self.reports, self.looks, cut=self.cut)


@frozen
class CauseOfHang(_Judgement):
    """The cause of a hang, by these looks at its stacks, the newest last."""

    look = Look.HANGS
    seconds = 2.0

    def answer(self) -> Verdict | None:
        from .evidence import cause_of_hang

        return cause_of_hang(self.reports, self.looks, cut=self.cut)


@frozen
class CauseOfWaiting(_Judgement):
    """The task for which all others wait, in a run of which nothing says that it hangs; by one look
    it is only a suspicion."""

    look = Look.HANGS
    seconds = 2.0

    def answer(self) -> Verdict | None:
        from .evidence import cause_of_waiting

        return cause_of_waiting(self.reports, self.looks, cut=self.cut)


@frozen
class Headline(LookQuestion[str]):
    """Where all tasks are, in a sentence."""

    look = Look.HANGS
    seconds = 2.0

    found: Stacks
    silent: Mapping[TaskId, float]
    about: Collection[TaskId]

    def answer(self) -> str:
        return self.found.headline(self.silent, self.about)[:_LONGEST]

    @classmethod
    def _answer_type(cls) -> Any:
        return _text()


@frozen
class Exceptions(LookQuestion["dict[TaskId, str]"]):
    """The exceptions that tasks have raised last and printed nothing after that has figures, by
    the ends of their logs."""

    look = Look.HANGS
    seconds = 2.0

    logs: Mapping[TaskId, bytes]

    def answer(self) -> dict[TaskId, str]:
        from .evidence import exceptions_in

        return exceptions_in(self.logs)

    @classmethod
    def _answer_type(cls) -> Any:
        text: Any = _text()
        return dict[TaskId, text]


@frozen
class EndingTasks(LookQuestion[list[TaskId]]):
    """Tasks among some whose interpreters are ending."""

    look = Look.HANGS
    seconds = 2.0

    found: Stacks

    def answer(self) -> list[TaskId]:
        from ..run.verdict import is_ending

        return [one.task for one in self.found.tasks if is_ending(one.stack)]

    @classmethod
    def _answer_type(cls) -> Any:
        return list[TaskId]


@frozen
class GpuSentences(LookQuestion[list[str]]):
    """What is to be said of a host's GPUs: those that fail, and who holds those that are `given`
    to its tasks; where tasks have begun (`at_work`), what nobody lists may be theirs."""

    look = Look.GPUS
    seconds = 1.0

    host: str
    gpus: Sequence[GpuView]
    given: frozenset[str]
    at_work: bool

    def answer(self) -> list[str]:
        from .evidence import gpu_sentences

        return gpu_sentences(self.host, self.gpus, self.given, at_work=self.at_work)

    @classmethod
    def _answer_type(cls) -> Any:
        text: Any = _text()
        return list[text]
