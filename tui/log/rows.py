"""Rows of a log: the text that is drawn of a line, with times, highlights and hints."""

from __future__ import annotations

from dataclasses import field
from enum import StrEnum
from itertools import islice
from typing import Any

import re2
from rich.cells import cell_len, chop_cells

from launcher.frozen import frozen
from launcher.ids import TaskId
from launcher.lines import PLAIN, Attr, TextStyle, latest
from launcher.quantities import thousands
from tui.format import time_of_day
from tui.log.hints import TaskContexts, explain_hint, hint_for

from .document import Line
from .query import Query
from .sanitise import Span, parse_spans

DIM = TextStyle(attr=Attr.DIM)
HINT = TextStyle(3, -1, Attr.ITALIC)
TASK_COLOURS = (4, 2, 3, 5, 6, 1, 12, 10, 11, 13, 14, 9)
"""Colours of the palette; beside the colour stands the task's name."""
MAX_DRAWN = 16 * 1024
"""Bytes of a line that are drawn: more than a screen holds. A screen may show fifty lines that are
as dear to draw as lines can be, and a key must not wait for them."""
MAX_HIGHLIGHTS = 1000
"""Hits that are marked in one line."""
# What TensorFlow, absl and XLA put before a message; the letter is its severity.
_PREFIXES = re2.compile(
    rb"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: ([IWEF]) \S+:\d+\] "
    rb"|([IWEF])\d{4} \d\d:\d\d:\d+\.\d+ +\d+ \S+:\d+\] "
)


class Stamps(StrEnum):
    """Time that is shown before each line of a log."""

    OFF = "off"
    CLOCK = "time of day"
    SINCE = "since the start"


@frozen
class RowOptions:
    """Options of the rows of all panes."""

    wrap: bool = True
    stamps: Stamps = Stamps.OFF
    hide_prefix: bool = False
    remarks: bool = False
    """Remarks of TensorFlow and its like are shown."""
    query: Query | None = None
    started: float = 0.0
    tasks: TaskContexts = field(default_factory=dict)
    """For what hints say of them."""


def render_line(
    line: Line, options: RowOptions, colours: dict[TaskId, int], of: TaskId | None = None
) -> tuple[list[Span], int]:
    """A line as coloured text, and how many cells at its beginning are not the line's own. `of`
    is the task whose log this is, where the line itself does not say it."""
    data = latest(line.data)
    cut = line.cut + max(0, len(data) - MAX_DRAWN)
    data = data[:MAX_DRAWN]
    if options.hide_prefix:
        data = _PREFIXES.sub(_severity, data, count=1)
    result = parse_spans(data, line.style)
    if options.query is not None:
        result = highlight(result, options.query)
    if cut:
        result.append(Span(f" … {thousands(cut)} more bytes", DIM))
    hint = hint_for("".join(span.text for span in result))
    if hint is not None:
        text = explain_hint(hint, line.task or of, options.tasks)
        result.append(Span(f"  ◂ {text}", HINT))
    before = _before(line, options, colours)
    return before + result, sum(cell_len(span.text) for span in before)


def without_prefix(text: str) -> str:
    """A line without what TensorFlow, absl and XLA put before its message, but for its severity."""
    short: bytes = _PREFIXES.sub(_severity, text.encode(errors="replace"), count=1)
    return short.decode()


def _before(line: Line, options: RowOptions, colours: dict[TaskId, int]) -> list[Span]:
    """The time of a line and, where logs are merged, its task."""
    before: list[Span] = []
    if options.stamps is not Stamps.OFF:
        before.append(Span(_stamp(line.time, options), DIM))
    if line.task is not None:
        wide = max((len(str(name)) for name in colours), default=0)
        number = TASK_COLOURS[colours.get(line.task, 0) % len(TASK_COLOURS)]
        before.append(Span(f"{line.task!s:<{wide}} ", TextStyle(number)))
    return before


def highlight(row: list[Span], query: Query) -> list[Span]:
    """The row with what was searched for reversed: the first `MAX_HIGHLIGHTS` hits in it."""
    text = "".join(span.text for span in row)
    edges = [edge for span in islice(query.spans(text), MAX_HIGHLIGHTS) for edge in span]
    if not edges:
        return row
    edges.append(len(text))
    result: list[Span] = []
    at = passed = 0
    for span in row:
        end = at + len(span.text)
        reverse = span.style._replace(attr=span.style.attr ^ Attr.REVERSE)
        while at < end:
            while edges[passed] <= at:
                passed += 1
            cut = min(edges[passed], end)
            result.append(Span(text[at:cut], reverse if passed % 2 else span.style))
            at = cut
    return result


def wrap(row: list[Span], width: int, indent: int = 0) -> list[list[Span]]:
    """One line as rows of at most `width` cells, cut between words where there is a blank near
    the end; all but the first are indented."""
    text = "".join(span.text for span in row)
    if len(text) <= width and cell_len(text) <= width:
        return [row]
    indent = indent if indent < width // 2 else 0
    rows: list[list[Span]] = []
    todo = [(span.text, span.style) for span in reversed(row)]
    at = 0
    while at < len(text):
        room = width - (indent if rows else 0)
        need = _fitting(text, at, room)
        at += need
        out = [Span(" " * indent, PLAIN)] if rows and indent else []
        while need:
            span, style = todo.pop()
            out.append(Span(span[:need], style))
            if len(span) > need:
                todo.append((span[need:], style))
            need -= len(out[-1].text)
        rows.append(out)
    return rows


def _fitting(text: str, at: int, room: int) -> int:
    """Number of characters from `at` that fit into one row."""
    part = text[at : at + room]
    if not part.isascii():
        # Combining characters alone take no cell: nothing of them is to be chopped.
        part = next(iter(chop_cells(part, room)), part)
    if at + len(part) == len(text) or text[at + len(part)] == " ":
        return max(1, len(part))
    blank = part.rfind(" ", room * 2 // 3)
    return max(1, blank + 1 if blank >= 0 else len(part))


def _severity(match: Any) -> bytes:
    return bytes(match.group(1) or match.group(2)) + b" "


def _stamp(when: float | None, options: RowOptions) -> str:
    if when is None:
        return " " * 9
    if options.stamps is Stamps.CLOCK:
        return f"{time_of_day(when)} "
    since = max(0.0, when - options.started)
    return f"{since:>7.1f}s "
