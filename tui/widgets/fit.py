"""Row of ranked parts, of which the least important are left out when they do not fit."""

from __future__ import annotations

from typing import NamedTuple

from rich.text import Text


class Part(NamedTuple):
    """Part of a row; a larger `rank` goes first when there is no room."""

    rank: int
    text: str
    style: str = ""


def fit(parts: list[Part], width: int, gap: str = "  ") -> Text:
    """The parts that fit into `width` cells, in their order."""
    kept = list(parts)
    while len(kept) > 1:
        if Text(gap.join(part.text for part in kept)).cell_len <= width:
            break
        kept.remove(max(reversed(kept), key=lambda part: part.rank))
    row = Text(no_wrap=True, overflow="ellipsis", end="")
    for i, part in enumerate(kept):
        row.append(gap if i else "")
        row.append(part.text, part.style)
    row.truncate(width, overflow="ellipsis")
    return row
