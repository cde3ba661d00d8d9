"""What one pane knows of one log: the lines, the place in them, and how they are to be shown.

It outlives the pane's widget: paging through a cluster of hundreds of tasks moves views between
few widgets, and each is found as it was left.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from rich.cells import cell_len, chop_cells

from launcher.ids import TaskId

from .document import Line
from .sanitise import PLAIN, Piece, pieces
from .viewport import Viewport


class Lines(Protocol):
    """Lines by number that may grow: a document, the lines of it that pass a filter, or all
    logs merged."""

    @property
    def count(self) -> int:
        """Lines there are."""

    def refresh(self) -> bool:
        """Takes up what has come; False when nothing has."""

    def line(self, number: int) -> Line:
        """Line `number`, counted from 0. Raises `IndexError` when there is none."""


@dataclass(frozen=True)
class Options:
    """How lines are shown; never what is in the file."""

    wrap: bool = True


@dataclass
class LogView:
    """The state of one pane."""

    task: TaskId
    lines: Lines
    options: Options = field(default_factory=Options)
    port: Viewport = field(default_factory=Viewport)

    def row_pieces(self, line: Line) -> list[Piece]:
        """What is drawn of a line."""
        result = pieces(line.data)
        if line.cut:
            result = [*result, Piece(f" …✂ {line.cut:,} more bytes".replace(",", " "), PLAIN)]
        return result


def wrapped(row: list[Piece], width: int) -> list[list[Piece]]:
    """One line as rows of at most `width` cells."""
    if sum(cell_len(piece.text) for piece in row) <= width:
        return [row]
    text = "".join(piece.text for piece in row)
    rows: list[list[Piece]] = []
    todo = [(piece.text, piece.look) for piece in reversed(row)]
    for part in chop_cells(text, width):
        need, out = len(part), []
        while need:
            piece, look = todo.pop()
            out.append(Piece(piece[:need], look))
            if len(piece) > need:
                todo.append((piece[need:], look))
            need -= len(out[-1].text)
        rows.append(out)
    return rows
