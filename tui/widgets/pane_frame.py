"""Border of a pane: the title in its upper line, and in a large pane the other three sides.

The focused pane has heavy lines and a mark, which are seen without colours too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from tui.format import StatusColor, bar
from tui.log.sanitise import make_drawable

from .fit import Part, fitting, row_width

_PROGRESS_CELLS = 12
_FEWEST_CELLS = 4
_SHORTEST_LINE = 1


class Title(NamedTuple):
    """Parts of a title, the sparkline of the loss, and the share of the steps that are done. The
    last two stand in the lower border; without one the sparkline stands in the title."""

    parts: tuple[Part, ...] = ()
    spark: str = ""
    progress: float | None = None

    @property
    def bad(self) -> bool:
        """The task is in trouble: its border has the colour of that."""
        return any(part.style == StatusColor.BAD for part in self.parts)


class _Lines(NamedTuple):
    across: str
    down: str
    corners: str
    """Upper left and right, lower left and right."""


_LIGHT = _Lines("─", "│", "╭╮╰╯")
_HEAVY = _Lines("━", "┃", "┏┓┗┛")


@dataclass(frozen=True)
class PaneBorders:
    """Borders of a pane beside its upper one: all of them, or that to the pane at its left."""

    whole: bool = False
    left: bool = False

    @property
    def rows(self) -> int:
        """Rows that the borders take."""
        return 2 if self.whole else 1

    @property
    def columns(self) -> int:
        """Columns that the borders take."""
        return 2 if self.whole else int(self.left)

    def holds(self, x: int, y: int, width: int, height: int) -> bool:
        """The cell belongs to a border."""
        if y == 0 or (x == 0 and (self.left or self.whole)):
            return True
        return self.whole and (x == width - 1 or y == height - 1)


class FramePen:
    """Draws the border of one pane; `style` gives the style of a component class."""

    def __init__(self, frame: PaneBorders, focused: bool, bad: bool, style: Callable[[str], Style]):
        self._frame = frame
        self._lines = _HEAVY if focused else _LIGHT
        self._focused = focused
        self._edge = style("bad" if bad else "edge")
        self._style = style
        down = [Segment(self._lines.down, self._edge)]
        self.left = down if frame.whole or frame.left else []
        self.right = down if frame.whole else []

    def title(self, title: Title, note: str, width: int) -> Strip:
        """The upper border with the title, and a note at its end."""
        lines, whole = self._lines, self._frame.whole
        start = lines.corners[0] if self.left else lines.across
        segments = [
            Segment(start + lines.across if whole else start, self._edge),
            Segment("▸" if self._focused else " ", self._style("name")),
        ]
        ends = [Segment(f" {make_drawable(note)} ", self._style("note"))] if note else []
        if whole:
            ends.append(Segment(lines.across + lines.corners[1], self._edge))
        elif title.spark:
            ends.insert(0, Segment(f" {title.spark} ", self._style("spark")))
        room = width - sum(segment.cell_length for segment in (*segments, *ends))
        if not whole and title.spark and room < row_width(title.parts, "") + _SHORTEST_LINE:
            ends.pop(0)
            room += len(title.spark) + 2
        for part in fitting(title.parts, max(1, room - _SHORTEST_LINE)):
            segments.append(Segment(make_drawable(part.text), self._style(part.style)))
            room -= segments[-1].cell_length
        if room > 0:
            segments.append(Segment(" " + lines.across * (room - 1), self._edge))
        before = width - sum(segment.cell_length for segment in ends)
        strip = Strip(segments).adjust_cell_length(before, self._edge)
        return Strip([*strip, *ends]).adjust_cell_length(width, self._edge)

    def bottom(self, title: Title, hidden: str, width: int) -> Strip:
        """The lower border, with a bar of the steps that are done, how many lines are hidden, and
        the sparkline, as far as they fit."""
        lines = self._lines
        start, end = lines.corners[2] + lines.across, lines.across + lines.corners[3]
        room = width - len(start) - len(end)
        done = spark = ""
        if title.progress is not None:
            share = f"{title.progress * 100:.0f} %"
            cells = min(_PROGRESS_CELLS, room - len(share) - 3)
            done = f" {bar(title.progress, cells)} {share} " if cells >= _FEWEST_CELLS else ""
        if title.spark and len(title.spark) + 2 <= room - len(done):
            spark = f" {title.spark} "
        hidden = f" {hidden} " if hidden and len(hidden) + 2 <= room - len(done + spark) else ""
        line = lines.across * (room - len(done + spark + hidden))
        return Strip(
            [
                Segment(start, self._edge),
                Segment(done, self._style("title")),
                Segment(hidden, self._style("note")),
                Segment(line, self._edge),
                Segment(spark, self._style("spark")),
                Segment(end, self._edge),
            ]
        )
