"""Merged log: the lines of all logs by time of receipt.

Nothing is copied and nothing is sorted line by line: a log's marks cut it into sections of at most
a quarter of a second, and the sections of all logs are put in the order of their times. Within a
section lines keep the order of their log.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Protocol

from launcher.ids import TaskId

from .document import Document, Line
from .view import Lines


class Source(Lines, Protocol):
    """Lines that know when they came."""

    def stamps(self, first: int) -> list[tuple[int, float]]:
        """Times of receipt from the mark numbered `first`: lines before it, and when."""


@dataclass(order=True)
class _Section:
    time: float
    source: int
    first: int
    last: int = field(compare=False)
    """The number of the line after the section's last."""


class Merged:
    """`Lines` over several logs; each line knows its task."""

    def __init__(self, sources: dict[TaskId, Source]) -> None:
        self._tasks = list(sources)
        self._sources = list(sources.values())
        self._sections: list[_Section] = []
        self._of_source: list[list[_Section]] = [[] for _ in sources]
        """The sections of each log; its last one still grows."""
        self._marks = [0] * len(sources)
        self.order = 0
        """How often lines have come: some into the middle, perhaps."""
        self._ends: list[int] = []
        """Number of merged lines before the end of each section."""

    @property
    def count(self) -> int:
        """Lines of all logs."""
        return self._ends[-1] if self._ends else 0

    def refresh(self) -> bool:
        """Adds what the logs have grown by."""
        touched = len(self._sections)
        changed = False
        for number, source in enumerate(self._sources):
            if not source.refresh():
                continue
            changed = True
            touched = min(touched, self._grow(number, source))
        if changed:
            self.order += 1
            before = self._ends[touched - 1] if touched else 0
            lengths = (section.last - section.first for section in self._sections[touched:])
            self._ends[touched:] = list(accumulate(lengths, initial=before))[1:]
        return changed

    def line(self, number: int) -> Line:
        """Line `number` of the merged log."""
        at = bisect_right(self._ends, number)
        if number < 0 or at >= len(self._sections):
            raise IndexError(f"no line {number}")
        section = self._sections[at]
        inside = number - (self._ends[at - 1] if at else 0)
        line = self._sources[section.source].line(section.first + inside)
        return replace(line, task=self._tasks[section.source])

    def documents(self) -> dict[TaskId, Document]:
        """The documents of all logs."""
        return {
            task: document
            for source in self._sources
            for task, document in source.documents().items()
        }

    def origin(self, number: int) -> tuple[TaskId, int]:
        """The task of a merged line, and its number in that task's log."""
        at = min(bisect_right(self._ends, number), len(self._sections) - 1)
        section = self._sections[at]
        inside = number - (self._ends[at - 1] if at else 0)
        return self._sources[section.source].origin(section.first + inside)

    def locate(self, task: TaskId, line: int) -> int | None:
        """Number of a task's line in the merged log; None when it is not there."""
        number = self._tasks.index(task)
        own = self._sources[number].locate(task, line)
        sections = self._of_source[number]
        at = (
            bisect_right(sections, own, key=lambda section: section.first) - 1
            if own is not None
            else -1
        )
        while at >= 0 and own is not None and sections[at].last <= own:
            at -= 1
        if at < 0 or own is None or sections[at].first > own:
            return None
        place = bisect_left(self._sections, sections[at])
        return (self._ends[place - 1] if place else 0) + own - sections[at].first

    def last_at(self, task: TaskId, number: int) -> int:
        """The task's last line at or before a place in the merged log."""
        if number < 0 or not self._sections:
            return -1
        source = self._tasks.index(task)
        at = min(bisect_right(self._ends, number), len(self._sections) - 1)
        here = self._sections[at]
        sections = self._of_source[source]
        if here.source == source:
            own = here.first + number - (self._ends[at - 1] if at else 0)
        else:
            before = bisect_left(sections, here) - 1
            own = sections[before].last - 1 if before >= 0 else -1
        return self._sources[source].last_at(task, own) if own >= 0 else -1

    def _grow(self, number: int, source: Source) -> int:
        """Adds the sections of new marks; returns the place of the first section that changed."""
        own = self._of_source[number]
        section = own[-1] if own else None
        touched = len(self._sections) if section is None else bisect_left(self._sections, section)
        stamps = source.stamps(self._marks[number])
        self._marks[number] += len(stamps)
        for line, time in stamps:
            if section is not None:
                section.last = max(section.first, line)
            first = section.last if section is not None else 0
            section = _Section(time, number, first, first)
            insort(self._sections, section)
            own.append(section)
            touched = min(touched, bisect_left(self._sections, section))
        if section is not None:
            section.last = max(section.first, source.count)
        return touched
