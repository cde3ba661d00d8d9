"""Plot of curves over time or steps, in braille dots, and of the band that many of them make.

Every curve keeps a part of each cell that several of them cross; a library that draws one curve
after the other lets the last one wipe the others out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rich.text import Text
from textual.widget import Widget

from launcher.quantities import clock, thousands
from tui.curves import Band, Curve, resampled, scale, step_ticks, tick_texts, time_ticks
from tui.format import StatusColor
from tui.log.rows import TASK_COLOURS

from .colours import status_colours

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


MEDIAN = -1
"""Number of the curve in the middle of a band, in place of a task's."""
_MEDIAN_MARKER, _BAND = "-", "░"
_FAILED = "✗"


class Drawn(NamedTuple):
    """A curve with the number of its task, which gives it a colour, or a marker."""

    number: int
    curve: Curve
    name: str = ""


def marker(number: int) -> str:
    """The marker of a task's curve where there are no colours."""
    return _MEDIAN_MARKER if number == MEDIAN else _MARKERS[number % len(_MARKERS)]


def style(number: int) -> str:
    """The Rich style of a task's curve: its colour in merged logs."""
    return "bold" if number == MEDIAN else f"color({TASK_COLOURS[number % len(TASK_COLOURS)]})"


class Scene(NamedTuple):
    """What a plot shows: curves over a span, a line at the place where values are read and at that
    of a failure, where there are such, and the band of many curves; `steps`: the span is one of
    global steps, not of seconds."""

    curves: Sequence[Drawn] = ()
    span: tuple[float, float] = (0.0, 0.0)
    moment: float | None = None
    failed: float | None = None
    band: Band | None = None
    steps: bool = False


class Plot(Widget):
    """Curves between a scale of values and one of time or steps."""

    def __init__(self, id: str) -> None:  # noqa: A002 Textual's name
        super().__init__(id=id, classes="framed")
        self._scene = Scene()
        self._texts = ("", "")

    def show(self, scene: Scene, title: str, empty: str) -> None:
        """Shows other curves, or a text where none has a point; draws nothing where all is as it
        was."""
        if (scene, (title, empty)) != (self._scene, self._texts):
            self._scene, self._texts = scene, (title, empty)
            self.border_title = title
            self.refresh()

    def render(self) -> Text:
        """Scales and curves as rows of text."""
        size, colourless = self.size, self.app.no_color
        if not any(one.curve[1] for one in self._scene.curves):
            return Text(self._texts[1], "dim")
        bad = f"bold {status_colours(self.app)[StatusColor.BAD]}"
        return plot(self._scene, size.width, size.height, colourless, bad)


def plot(scene: Scene, width: int, height: int, colourless: bool, bad: str = "bold") -> Text:
    """A scene in `width` × `height` cells; with two rows for the scale of time or steps. `bad` is
    the style of failures."""
    band = scene.band
    ys = [y for one in scene.curves for y in one.curve[1]]
    ys += [*band.lows, *band.highs] if band is not None else []
    rows = height - 2
    if not ys or rows < 1:
        return Text()
    values = scale(*_apart(min(ys), max(ys)), rows)
    low, high = values[0], values[-1]
    texts = tick_texts(values)
    gutter = max([_LABEL, *map(len, texts)]) + 1
    if gutter > width // 2:
        gutter, values, texts = 1, [], []
    names = max(len(one.name) for one in scene.curves) + 1 if width >= _NAMES_FROM else 0
    canvas = _Canvas(max(1, width - gutter - names), rows, _apart(*scene.span), (low, high))
    for one in scene.curves:
        canvas.draw(one)
    if band is not None:
        canvas.fill(band)
    marks = {canvas.row(value): text for value, text in zip(values, texts, strict=True)}
    ends = _ends(canvas, scene.curves) if names else {}
    places = ((scene.moment, "dim"), (scene.failed, bad))
    lines = {canvas.column(x): of for x, of in places if x is not None}
    result = Text(no_wrap=True, end="")
    for row in range(rows):
        label = marks.get(row, "")
        result.append(f"{label:>{gutter - 1}}{'┤' if label else '│'}", "dim")
        result.append_text(canvas.cells(row, lines, colourless))
        if row in ends:
            result.append(f" {ends[row].name}", "" if colourless else style(ends[row].number))
        result.append("\n")
    return result.append_text(_scale_below(canvas, gutter, scene, bad))


def _scale_below(canvas: _Canvas, gutter: int, scene: Scene, bad: str) -> Text:
    """The scale of time or steps, with a mark where a task has failed."""
    rule, labels = ["─"] * canvas.width, [" "] * (gutter + canvas.width)
    ticks = step_ticks if scene.steps else time_ticks
    for place in ticks(*canvas.xs, max(2, canvas.width // _CELLS_A_TICK)):
        column, label = canvas.column(place), thousands(place) if scene.steps else clock(place)
        start = min(gutter + column - len(label) // 2, len(labels) - len(label))
        if start >= 0:
            rule[column] = "┬"
            labels[start : start + len(label)] = label
    text = Text(f"{' ' * (gutter - 1)}└{''.join(rule)}\n{''.join(labels)}", "dim")
    if scene.failed is not None:
        at = gutter + canvas.column(scene.failed)
        text = Text.assemble(text[:at], (_FAILED, bad), text[at + 1 :])
    return text


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
        self._filled: dict[int, tuple[int, int]] = {}
        """The highest and the lowest row of the band in a column."""

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

    def fill(self, band: Band) -> None:
        """Fills the columns of a band, also those between two of its places."""
        before: tuple[int, int, int] | None = None
        for x, low, high in zip(band.xs, band.lows, band.highs, strict=True):
            here = self.column(x), self.row(high), self.row(low)
            column, top, bottom = before or here
            wide = max(1, here[0] - column)
            for at in range(wide + 1 if before else 1):
                highest = top + round((here[1] - top) * at / wide)
                lowest = bottom + round((here[2] - bottom) * at / wide)
                first, last = self._filled.get(column + at, (highest, lowest))
                self._filled[column + at] = min(first, highest), max(last, lowest)
            before = here

    def cells(self, row: int, lines: Mapping[int, str], colourless: bool) -> Text:
        """One row of cells, with vertical lines of a style at some columns."""
        text = Text(no_wrap=True, end="")
        for column in range(self.width):
            here = self._cells.get((row, column))
            if not here:
                top, bottom = self._filled.get(column, (0, -1))
                if column in lines:
                    text.append("│", lines[column])
                else:
                    text.append(*((_BAND, "dim") if top <= row <= bottom else (" ", "")))
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
