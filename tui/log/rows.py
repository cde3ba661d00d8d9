"""What is drawn of a line: its text, and what stands before it or is marked in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice
from typing import Any

import re2
from rich.cells import cell_len, chop_cells

from launcher.ids import TaskId
from launcher.store.hints import hint_for
from tui.format import thousands, time_of_day
from tui.standing import Standings, explained

from .document import Line
from .sanitise import PLAIN, Attr, Look, Piece, last_rewrite, pieces
from .search import Query

DIM = Look(attr=Attr.DIM)
HINT = Look(3, -1, Attr.ITALIC)
TASK_COLOURS = (4, 2, 3, 5, 6, 1, 12, 10, 11, 13, 14, 9)
"""Of the palette; beside the colour stands the task's name."""
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
    """Times before lines."""

    OFF = "off"
    CLOCK = "time of day"
    SINCE = "since the start"


@dataclass(frozen=True)
class Options:
    """How lines are shown; never what is in the file."""

    wrap: bool = True
    stamps: Stamps = Stamps.OFF
    hide_prefix: bool = False
    query: Query | None = None
    started: float = 0.0
    tasks: Standings = field(default_factory=dict)
    """For what hints say of them."""


def row(
    line: Line, options: Options, colours: dict[TaskId, int], of: TaskId | None = None
) -> tuple[list[Piece], int]:
    """A line as coloured text, and how many cells at its beginning are not the line's own. `of`
    is the task whose log this is, where the line itself does not say it."""
    data = last_rewrite(line.data)
    cut = line.cut + max(0, len(data) - MAX_DRAWN)
    data = data[:MAX_DRAWN]
    if options.hide_prefix:
        data = _PREFIXES.sub(_severity, data, count=1)
    result = pieces(data)
    if options.query is not None:
        result = highlighted(result, options.query)
    if cut:
        result.append(Piece(f" …✂ {thousands(cut)} more bytes", DIM))
    hint = hint_for("".join(piece.text for piece in result))
    if hint is not None:
        text = explained(hint, line.task or of, options.tasks)
        result.append(Piece(f"  ◂ {text}", HINT))
    before: list[Piece] = []
    if options.stamps is not Stamps.OFF:
        before.append(Piece(_stamp(line.time, options), DIM))
    if line.task is not None:
        wide = max((len(str(task)) for task in colours), default=0)
        number = TASK_COLOURS[colours.get(line.task, 0) % len(TASK_COLOURS)]
        before.append(Piece(f"{line.task!s:<{wide}} ", Look(number)))
    return before + result, sum(cell_len(piece.text) for piece in before)


def highlighted(row: list[Piece], query: Query) -> list[Piece]:
    """The row with what was searched for reversed: the first `MAX_HIGHLIGHTS` hits in it."""
    text = "".join(piece.text for piece in row)
    edges = [edge for span in islice(query.spans(text), MAX_HIGHLIGHTS) for edge in span]
    if not edges:
        return row
    edges.append(len(text))
    result: list[Piece] = []
    at = passed = 0
    for piece in row:
        end = at + len(piece.text)
        reverse = piece.look._replace(attr=piece.look.attr ^ Attr.REVERSE)
        while at < end:
            while edges[passed] <= at:
                passed += 1
            cut = min(edges[passed], end)
            result.append(Piece(text[at:cut], reverse if passed % 2 else piece.look))
            at = cut
    return result


def wrapped(row: list[Piece], width: int, indent: int = 0) -> list[list[Piece]]:
    """One line as rows of at most `width` cells, cut between words where there is a blank near
    the end; all but the first are indented."""
    text = "".join(piece.text for piece in row)
    if len(text) <= width and cell_len(text) <= width:
        return [row]
    indent = indent if indent < width // 2 else 0
    rows: list[list[Piece]] = []
    todo = [(piece.text, piece.look) for piece in reversed(row)]
    at = 0
    while at < len(text):
        room = width - (indent if rows else 0)
        need = _fitting(text, at, room)
        at += need
        out = [Piece(" " * indent, PLAIN)] if rows and indent else []
        while need:
            piece, look = todo.pop()
            out.append(Piece(piece[:need], look))
            if len(piece) > need:
                todo.append((piece[need:], look))
            need -= len(out[-1].text)
        rows.append(out)
    return rows


def _fitting(text: str, at: int, room: int) -> int:
    """How many characters from `at` make up one row."""
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


def _stamp(when: float | None, options: Options) -> str:
    if when is None:
        return " " * 9
    if options.stamps is Stamps.CLOCK:
        return f"{time_of_day(when)} "
    since = max(0.0, when - options.started)
    return f"{since:>7.1f}s "
