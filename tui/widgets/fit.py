"""Row of ranked parts, of which the least important are left out when they do not fit."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

from rich.cells import cell_len
from rich.text import Text

from tui.tables import cut

_SHORTEST = 6
"""Cells of a text that is cut so far that it says nothing any more if it is cut further."""


class Importance(IntEnum):
    """Importance of a part of the header, the highest first."""

    NEWS = 0
    """What a person must know: a failure, a kill, what is waited for."""
    STATE = 1
    CLOCK = 2
    SHARE = 3
    NAME = 4
    RATE = 5
    LOSS = 6
    BAR = 7
    """A bar, which repeats a value."""


class Part(NamedTuple):
    """Part of a row; a larger `rank` goes first when there is no room. `style` is a Rich style,
    or in the title of a pane one of its component classes. One that `joins` stands right behind
    the part before it. One that `shortens` is cut before it goes, to no fewer than six cells."""

    rank: int
    text: str
    style: str = ""
    joins: bool = False
    shortens: bool = False


def row_width(parts: Sequence[Part], gap: str) -> int:
    """Width of a row in cells, gaps included."""
    gaps = sum(not part.joins for part in parts[1:])
    return cell_len("".join(part.text for part in parts)) + cell_len(gap) * gaps


def fit(parts: Sequence[Part], width: int, gap: str = "  ") -> Text:
    """A row of the parts that fit."""
    row = Text(no_wrap=True, overflow="ellipsis", end="")
    for part in _fitting(parts, width, gap):
        row.append("" if part.joins or not row else gap)
        row.append(part.text, part.style)
    row.truncate(width, overflow="ellipsis")
    return row


def _fitting(parts: Sequence[Part], width: int, gap: str) -> list[Part]:
    """The parts that fit into `width` cells, in their order; at least the first that counts. Each
    gets its room before those that count less, and those may fit where a longer one does not."""
    kept: dict[int, Part] = {}
    left = width + cell_len(gap)
    for i in sorted(range(len(parts)), key=lambda i: (parts[i].rank, i)):
        part = parts[i]
        if part.joins and i and i - 1 not in kept:
            continue  # it goes on with what is not there
        room = left - (0 if part.joins else cell_len(gap))
        if part.shortens and _SHORTEST <= room < cell_len(part.text):
            part = part._replace(text=cut(part.text, room))
        if cell_len(part.text) <= room or not kept:
            kept[i] = part
            left = room - cell_len(part.text)
    return [kept[i] for i in sorted(kept)]
