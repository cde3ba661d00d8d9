"""Walk from error to error through the logs of all tasks, by time of receipt."""

from __future__ import annotations

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
    """A step waits until all logs have been searched: `follow` is called every frame and returns
    its line once."""

    def __init__(self, logs: LogStore, tasks: list[TaskId]) -> None:
        self._merged = Merged({task: Document(task, logs.open(task)) for task in tasks})
        self._merged.refresh()
        self._search = MultiSearch(self._merged, ERRORS, 0)
        self._wanted = 0
        self._at: int | None = None

    def step(self, by: int) -> None:
        """Requests the next error, or the previous one; the first step back goes to the last."""
        self._wanted = by

    def close(self) -> None:
        """Ends the threads that search."""
        self._search.cancel()

    @property
    def in_vain(self) -> bool:
        """A step was requested, and there is no error to go to."""
        return self._wanted != 0 and self._search.done and not self._search.count

    def follow(self) -> ErrorLine | None:
        """The requested error; None while it is searched for, and when none was requested."""
        if not self._wanted:
            return None
        self._merged.refresh()
        at = self._at
        if at is None:
            at = self._merged.count if self._wanted < 0 else -1
        forward = self._wanted > 0
        hit = self._search.step(at, forward=forward) if self._search.done else None
        if hit is None:
            return None
        self._at, self._wanted = hit, 0
        return ErrorLine(*self._merged.origin(hit), *self._search.place(hit))
