"""Walk from error to error through the logs of all tasks, by time of receipt."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from launcher.ids import TaskId
from launcher.store.logs import LogStore

from .document import Document
from .merged import Merged
from .multi_search import MultiSearch
from .remarks import remark_source
from .scan import Chunk
from .search import Query


class _Errors(Query):
    def lines(self, chunk: Chunk) -> tuple[list[int], int]:
        """The lines that hit and are no remark; each counts once."""
        hits, _ = super().lines(chunk)
        if hits:
            lines = chunk.data.split(b"\n")
            hits = [hit for hit in hits if remark_source(lines[hit - chunk.first]) is None]
        return hits, len(hits)


ERRORS = _Errors(
    r"^(?:Traceback \(most recent call last\)|[\w.]*(?:Error|Exception)\b)"
    r"|\b(?:ERROR|FATAL|CRITICAL)\b|: [EF] (?:tensorflow|external)/|^[EF]\d{4} "
    r"|[Ss]egmentation fault|[Oo]ut of memory|core dumped"
)


@dataclass(frozen=True)
class ErrorLine:
    """A line that looks like an error: its task, its number in that task's log, its place among
    all such lines, and how many there are."""

    task: TaskId
    line: int
    place: int
    total: int


class ErrorWalk:
    """Steps wait until all logs have been searched: `follow` is called every frame and returns the
    line that they have led to, once."""

    def __init__(self, logs: LogStore, tasks: list[TaskId]) -> None:
        self._merged = Merged({task: Document(task, logs.open(task)) for task in tasks})
        self._merged.refresh()
        self._search = MultiSearch(self._merged, ERRORS, 0)
        self._steps = deque[int]()
        self._at: int | None = None

    def step(self, by: int) -> None:
        """Requests the next error, or the previous one; the first step back goes to the last."""
        self._steps.append(by)

    def forget(self) -> None:
        """Forgets the steps that wait."""
        self._steps.clear()

    def close(self) -> None:
        """Ends the threads that search."""
        self._search.cancel()

    @property
    def in_vain(self) -> bool:
        """A step was requested, and there is no error to go to."""
        return bool(self._steps) and self._search.done and not self._search.count

    def follow(self) -> ErrorLine | None:
        """The error requested last; None while it is searched for, and when none was requested."""
        if not self._steps:
            return None
        self._merged.refresh()
        found = None
        while self._steps and (hit := self._next(self._steps[0])) is not None:
            self._steps.popleft()
            self._at = found = hit
        if found is None:
            return None
        return ErrorLine(*self._merged.origin(found), *self._search.place(found))

    def _next(self, by: int) -> int | None:
        """The line that a step leads to; None while not all has been searched."""
        at = self._at
        if at is None:
            at = self._merged.count if by < 0 else -1
        return self._search.step(at, forward=by > 0) if self._search.done else None
