"""Merged log: the lines of all logs by time of receipt.

Nothing is copied and nothing is sorted line by line: a log's marks cut it into sections of at most
a quarter of a second, and the sections of all logs are put in the order of their times. Within a
section lines keep the order of their log.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import replace
from heapq import merge
from typing import Protocol

from launcher.ids import TaskId

from .document import Document, Line, Lines


class StampedLines(Lines, Protocol):
    """Lines that know when they came."""

    def stamps(self, first: int) -> list[tuple[int, float]]:
        """Times of receipt from the mark numbered `first`: lines before it, and when."""


_Section = tuple[float, int, int]
"""Time, number of the log, and number of the section within it: the order of the merged log."""


class _Sections:
    """The sections of one log, in columns: a night's logs have hundreds of thousands."""

    def __init__(self, number: int) -> None:
        self._number = number
        self.times = array("d")
        self.firsts = array("Q")
        self._end = 0

    def __len__(self) -> int:
        return len(self.times)

    def last(self, at: int) -> int:
        """The number of the line after a section's last; the log's last section still grows."""
        return self.firsts[at + 1] if at + 1 < len(self.firsts) else self._end

    def key(self, at: int) -> _Section:
        """Place of a section in the order of all."""
        return self.times[at], self._number, at

    def keys(self, first: int) -> Iterator[_Section]:
        """Sections from the one numbered `first`."""
        return map(self.key, range(first, len(self.times)))

    def grow(self, stamps: list[tuple[int, float]], count: int) -> bool:
        """Adds the sections of new marks, where the log has `count` lines; True when the section
        that was the last one has grown. Lines keep their order when the clock is set back."""
        before = len(self)
        last = self._end
        for line, time in stamps:
            self.firsts.append(max(self.firsts[-1], line) if self.firsts else 0)
            self.times.append(max(self.times[-1], time) if self.times else time)
        if self.firsts:
            self._end = max(self.firsts[-1], count)
        return before > 0 and self.last(before - 1) != last


class Merged:
    """`Lines` over several logs; each line knows its task."""

    def __init__(self, sources: dict[TaskId, StampedLines]) -> None:
        self._tasks = list(sources)
        self._numbers = {task: number for number, task in enumerate(sources)}
        self._sources = list(sources.values())
        self._of_source = [_Sections(number) for number in range(len(sources))]
        self.order = 0
        """How often lines have come: some into the middle, perhaps."""
        self._times = array("d")
        self._owners = array("I")
        """Number of the log of each section, in the order of all."""
        self._places = array("I")
        """Number of each section within its log."""
        self._ends = array("Q")
        """Number of merged lines before the end of each section."""

    @property
    def count(self) -> int:
        """Number of merged lines, as of the last `refresh`."""
        return self._ends[-1] if self._ends else 0

    def refresh(self) -> bool:
        """Adds what the logs have grown by."""
        touched = len(self._times)
        changed = False
        new: list[Iterator[_Section]] = []
        first: _Section | None = None
        for source, sections in zip(self._sources, self._of_source, strict=True):
            if not source.refresh():
                continue
            changed = True
            before = len(sections)
            if sections.grow(source.stamps(before), source.count):
                touched = min(touched, self._place(sections.key(before - 1)))
            if before < len(sections):
                new.append(sections.keys(before))
                first = min(first or sections.key(before), sections.key(before))
        if first is not None:
            place = self._place(first)
            touched = min(touched, place)
            self._put(place, merge(list(map(self._section, range(place, len(self._times)))), *new))
        if changed:
            self.order += 1
            self._sum(touched)
        return changed

    def _section(self, at: int) -> _Section:
        return self._times[at], self._owners[at], self._places[at]

    def _place(self, section: _Section) -> int:
        """The place of a section, or where it belongs."""
        at = bisect_left(self._times, section[0])
        while at < len(self._times) and self._section(at) < section:
            at += 1
        return at

    def _put(self, place: int, sections: Iterator[_Section]) -> None:
        """Replaces all sections from a place on."""
        del self._times[place:], self._owners[place:], self._places[place:]
        for time, owner, number in sections:
            self._times.append(time)
            self._owners.append(owner)
            self._places.append(number)

    def _sum(self, touched: int) -> None:
        """Counts the lines before the ends of all sections from a place on."""
        del self._ends[touched:]
        total = self.count
        for at in range(touched, len(self._times)):
            sections, number = self._of_source[self._owners[at]], self._places[at]
            total += sections.last(number) - sections.firsts[number]
            self._ends.append(total)

    def _at(self, number: int) -> tuple[int, int]:
        """The log that has a merged line, and the line's number there."""
        at = min(bisect_right(self._ends, number), len(self._ends) - 1)
        owner = self._owners[at]
        inside = number - (self._ends[at - 1] if at else 0)
        return owner, self._of_source[owner].firsts[self._places[at]] + inside

    def line(self, number: int) -> Line:
        """Line `number` of the merged log."""
        if not 0 <= number < self.count:
            raise IndexError(f"no line {number}")
        owner, own = self._at(number)
        return replace(self._sources[owner].line(own), task=self._tasks[owner])

    def documents(self) -> dict[TaskId, Document]:
        """The documents of all logs."""
        return {
            task: document
            for source in self._sources
            for task, document in source.documents().items()
        }

    def origin(self, number: int) -> tuple[TaskId, int]:
        """The task of a merged line, and its number in that task's log."""
        owner, own = self._at(number)
        return self._sources[owner].origin(own)

    def locate(self, task: TaskId, line: int) -> int | None:
        """Number of a task's line in the merged log; None when it is not there."""
        number = self._numbers[task]
        own = self._sources[number].locate(task, line)
        sections = self._of_source[number]
        at = bisect_right(sections.firsts, own) - 1 if own is not None else -1
        if own is None or at < 0 or own >= sections.last(at):
            return None
        place = self._place(sections.key(at))
        return (self._ends[place - 1] if place else 0) + own - sections.firsts[at]

    def last_at(self, task: TaskId, number: int) -> int:
        """The task's last line at or before a place in the merged log."""
        if number < 0 or not self._ends:
            return -1
        source = self._numbers[task]
        owner, own = self._at(number)
        if owner != source:
            time = self._times[min(bisect_right(self._ends, number), len(self._ends) - 1)]
            sections = self._of_source[source]
            find = bisect_right if source < owner else bisect_left
            before = find(sections.times, time) - 1
            own = sections.last(before) - 1 if before >= 0 else -1
        return self._sources[source].last_at(task, own) if own >= 0 else -1
