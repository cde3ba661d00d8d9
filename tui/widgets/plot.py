"""Plot of curves over time, in braille dots.

Every curve keeps a part of each cell that several of them cross; a library that draws one curve
after the other lets the last one wipe the others out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.text import Text
from textual.widget import Widget

from tui.curves import Curve, resampled, scale, tick_texts, time_ticks
from tui.format import clock
from tui.log.rows import TASK_COLOURS

_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""Bit of a braille character for each row and column of its dots."""
_DOWN, _ACROSS = len(_DOTS), len(_DOTS[0])
_MARKERS = "*x+o#%@=&$~^"
"""Markers of curves where there are no colours."""
_HALF = 0.5001
"""Rounds a share in the middle of two dots up, although it may be a bit less."""
_LABEL = 4
_CELLS_A_TICK = 14
_DASH = 4
"""Cells for which one of several curves in the same cells has its colour before the next has."""
_NAMES_FROM = 70
"""Cells of width from which on the names of the curves stand at their ends."""
_CONSTANT = 1e-6
"""Share of a value by which others may differ that count as equal: sums of floats do."""


class Drawn(NamedTuple):
    """A curve with the number of its task, which gives it a colour, or a marker."""

    number: int
    curve: Curve
    name: str = ""


def marker(number: int) -> str:
    """The marker of a task's curve where there are no colours."""
    return _MARKERS[number % len(_MARKERS)]


def style(number: int) -> str:
    """The Rich style of a task's curve: its colour in merged logs."""
    return f"color({TASK_COLOURS[number % len(TASK_COLOURS)]})"


class Plot(Widget):
    """Curves between a scale of values and one of time."""

    def __init__(self, id: str) -> None:  # noqa: A002 Textual's name
        super().__init__(id=id, classes="framed")
        self._curves: Sequence[Drawn] = ()
        self._empty = ""
        self._span = (0.0, 0.0)
        self._moment: float | None = None

    def show(
        self,
        curves: Sequence[Drawn],
        span: tuple[float, float],
        moment: float | None,
        empty: str,
    ) -> None:
        """Shows other curves over a span of time, and a line at a moment where one is given; a
        text where no curve has a point."""
        self._curves, self._span, self._moment, self._empty = curves, span, moment, empty
        self.refresh()

    def render(self) -> Text:
        """Scales and curves as rows of text."""
        size, colourless = self.size, self.app.no_color
        if not any(one.curve[1] for one in self._curves):
            return Text(self._empty, "dim")
        return plot(self._curves, size.width, size.height, self._span, self._moment, colourless)


def plot(
    curves: Sequence[Drawn],
    width: int,
    height: int,
    span: tuple[float, float],
    moment: float | None,
    colourless: bool,
) -> Text:
    """Curves in `width` × `height` cells; with two rows for the scale of time."""
    ys = [y for one in curves for y in one.curve[1]]
    rows = height - 2
    if not ys or rows < 1:
        return Text()
    values = scale(*_apart(min(ys), max(ys)), rows)
    low, high = values[0], values[-1]
    texts = tick_texts(values)
    gutter = max([_LABEL, *map(len, texts)]) + 1
    if gutter > width // 2:
        gutter, values, texts = 1, [], []
    names = max(len(one.name) for one in curves) + 1 if width >= _NAMES_FROM else 0
    canvas = _Canvas(max(1, width - gutter - names), rows, _apart(*span), (low, high))
    for one in curves:
        canvas.draw(one)
    marks = {canvas.row(value): text for value, text in zip(values, texts, strict=True)}
    ends = _ends(canvas, curves) if names else {}
    line = None if moment is None else canvas.column(moment)
    result = Text(no_wrap=True, end="")
    for row in range(rows):
        label = marks.get(row, "")
        result.append(f"{label:>{gutter - 1}}{'┤' if label else '│'}", "dim")
        result.append_text(canvas.cells(row, line, colourless))
        if row in ends:
            result.append(f" {ends[row].name}", "" if colourless else style(ends[row].number))
        result.append("\n")
    return result.append_text(_time_scale(canvas, gutter))


def _time_scale(canvas: _Canvas, gutter: int) -> Text:
    rule, labels = ["─"] * canvas.width, [" "] * (gutter + canvas.width)
    for moment in time_ticks(*canvas.xs, max(2, canvas.width // _CELLS_A_TICK)):
        column, text = canvas.column(moment), clock(moment)
        start = min(gutter + column - len(text) // 2, len(labels) - len(text))
        if start >= 0:
            rule[column] = "┬"
            labels[start : start + len(text)] = text
    return Text(f"{' ' * (gutter - 1)}└{''.join(rule)}\n{''.join(labels)}", "dim")


def _apart(low: float, high: float) -> tuple[float, float]:
    """A range that is not empty."""
    if high - low <= _CONSTANT * abs(high):
        return low - (abs(low) or 1.0) / 2, high + (abs(high) or 1.0) / 2
    return low, high


def _ends(canvas: _Canvas, curves: Sequence[Drawn]) -> dict[int, Drawn]:
    """The row for the name of each curve: where the curve ends, or the nearest free one."""
    taken: dict[int, Drawn] = {}
    for one in curves:
        if one.curve[1] and one.name:
            at = canvas.row(one.curve[1][-1])
            free = [row for row in range(canvas.height) if row not in taken]
            if free:
                taken[min(free, key=lambda row: abs(row - at))] = one
    return taken


class _Canvas:
    """Dots of curves, `_DOWN` × `_ACROSS` to a cell."""

    def __init__(
        self, width: int, height: int, xs: tuple[float, float], ys: tuple[float, float]
    ) -> None:
        self.width, self.height, self.xs, self.ys = width, height, xs, ys
        self._cells: dict[tuple[int, int], dict[int, int]] = {}
        """The bits of each curve in a cell, by row and column."""

    def column(self, x: float) -> int:
        """The column of cells at a moment."""
        return self._dot(x, self.xs, self.width * _ACROSS) // _ACROSS

    def row(self, y: float) -> int:
        """The row of cells at a value."""
        return self.height - 1 - self._dot(y, self.ys, self.height * _DOWN) // _DOWN

    def draw(self, one: Drawn) -> None:
        """Draws a curve, point by point and the lines between them."""
        before: tuple[int, int] | None = None
        bits: dict[tuple[int, int], int] = {}
        for x, y in zip(*resampled(one.curve, self.width), strict=True):
            across = self._dot(x, self.xs, self.width * _ACROSS)
            down = self.height * _DOWN - 1 - self._dot(y, self.ys, self.height * _DOWN)
            for at in _line(before or (across, down), (across, down)):
                cell = (at[1] // _DOWN, at[0] // _ACROSS)
                bits[cell] = bits.get(cell, 0) | _DOTS[at[1] % _DOWN][at[0] % _ACROSS]
            before = (across, down)
        for cell, found in bits.items():
            self._cells.setdefault(cell, {})[one.number] = found

    def cells(self, row: int, line: int | None, colourless: bool) -> Text:
        """One row of cells, with a line at the moment's column."""
        text = Text(no_wrap=True, end="")
        for column in range(self.width):
            here = self._cells.get((row, column))
            if not here:
                text.append("│" if column == line else " ", "dim" if column == line else "")
                continue
            owner = list(here)[column // _DASH % len(here)]  # curves that coincide take turns
            bits = 0
            for each in here.values():
                bits |= each
            shown = marker(owner) if colourless else chr(0x2800 + bits)
            text.append(shown, "" if colourless else style(owner))
        return text

    @staticmethod
    def _dot(value: float, span: tuple[float, float], dots: int) -> int:
        low, high = span
        share = (value - low) / (high - low)
        return min(dots - 1, max(0, int(share * (dots - 1) + _HALF)))


def _line(start: tuple[int, int], end: tuple[int, int]) -> list[tuple[int, int]]:
    """The dots from one to another."""
    wide, tall = end[0] - start[0], end[1] - start[1]
    steps = max(abs(wide), abs(tall), 1)
    return [
        (round(start[0] + wide * i / steps), round(start[1] + tall * i / steps))
        for i in range(steps + 1)
    ]
