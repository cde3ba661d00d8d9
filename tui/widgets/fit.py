"""Row of ranked parts, of which the least important are left out when they do not fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.cells import cell_len
from rich.text import Text


class Part(NamedTuple):
    """Part of a row; a larger `rank` goes first when there is no room. `style` is a Rich style,
    or in the title of a pane one of its component classes."""

    rank: int
    text: str
    style: str = ""


def fitting(parts: Sequence[Part], width: int, gap: str = "") -> list[Part]:
    """The parts that fit into `width` cells, in their order; at least one."""
    kept = list(parts)
    while len(kept) > 1 and cell_len(gap.join(part.text for part in kept)) > width:
        kept.remove(max(reversed(kept), key=lambda part: part.rank))
    return kept


def fit(parts: Sequence[Part], width: int, gap: str = "  ") -> Text:
    """A row of the parts that fit."""
    texts = ((part.text, part.style) for part in fitting(parts, width, gap))
    row = Text(gap, no_wrap=True, overflow="ellipsis", end="").join(Text(*each) for each in texts)
    row.truncate(width, overflow="ellipsis")
    return row
