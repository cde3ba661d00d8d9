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


class Rank(IntEnum):
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
    """It repeats a figure."""


class Part(NamedTuple):
    """Part of a row; a larger `rank` goes first when there is no room. `style` is a Rich style,
    or in the title of a pane one of its component classes. One that `joins` stands right behind
    the part before it. One that `shortens` is cut before it goes, to no fewer than six cells."""

    rank: int
    text: str
    style: str = ""
    joins: bool = False
    shortens: bool = False


def fitting(parts: Sequence[Part], width: int, gap: str = "") -> list[Part]:
    """The parts that fit into `width` cells, in their order; at least one."""
    kept = list(parts)
    while len(kept) > 1 and (missing := row_width(kept, gap) - width) > 0:
        last = max(range(len(kept)), key=lambda i: (kept[i].rank, i))
        part = kept[last]
        left = cell_len(part.text) - missing
        if part.shortens and left >= _SHORTEST:
            kept[last] = part._replace(text=cut(part.text, left))
        else:
            del kept[last]
    return kept


def row_width(parts: Sequence[Part], gap: str) -> int:
    """Width of a row in cells, gaps included."""
    gaps = sum(not part.joins for part in parts[1:])
    return cell_len("".join(part.text for part in parts)) + cell_len(gap) * gaps


def fit(parts: Sequence[Part], width: int, gap: str = "  ") -> Text:
    """A row of the parts that fit."""
    row = Text(no_wrap=True, overflow="ellipsis", end="")
    for part in fitting(parts, width, gap):
        row.append("" if part.joins or not row else gap)
        row.append(part.text, part.style)
    row.truncate(width, overflow="ellipsis")
    return row
