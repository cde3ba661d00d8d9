"""Boxes of panes: pure arithmetic, so that every size of terminal can be tested."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from enum import StrEnum

MIN_WIDTH = 40
MIN_HEIGHT = 6
PAGE_LIMIT = 16
ONE_COLUMN_UNDER = 120
MANY_PAGES = 4


class Arrangement(StrEnum):
    """The layouts that Space steps through."""

    GRID = "grid"
    CHIEF = "chief large"
    LIST = "list + detail"
    MERGED = "merged log"


@dataclass(frozen=True)
class Box:
    """A pane's place, in cells from the top left of the pane area."""

    x: int
    y: int
    width: int
    height: int


def columns(count: int, width: int) -> int:
    """Columns for `count` panes of one page."""
    if count <= 3 and width < ONE_COLUMN_UNDER:
        return 1
    return max(1, min(math.ceil(math.sqrt(count)), width // MIN_WIDTH))


def per_page(count: int, width: int, height: int) -> int:
    """Number of the `count` panes that one page holds, each at least 40×6."""
    rows = max(1, height // MIN_HEIGHT)
    fits = max(1, width // MIN_WIDTH) * rows
    best = min(PAGE_LIMIT, fits, count)
    while best > 1 and math.ceil(best / columns(best, width)) > rows:
        best -= 1
    return max(1, best)


def grid(count: int, width: int, height: int) -> list[Box]:
    """Boxes in reading order that fill the area; the last row's share what it has."""
    if count == 0:
        return []
    return _fill(Box(0, 0, width, height), count, columns(count, width))


def chief_large(count: int, chief: int, width: int, height: int) -> list[Box]:
    """The chief over the larger part, the others small: to its right, or below it when the
    terminal is narrow. Boxes are in the panes' own order. Empty when they do not fit."""
    others = count - 1
    if others == 0:
        return [Box(0, 0, width, height)]
    if width >= ONE_COLUMN_UNDER:
        rows = max(1, height // MIN_HEIGHT)
        across = math.ceil(others / rows)
        side = max(MIN_WIDTH * across, width // 3)
        if width - side < MIN_WIDTH * 1.5:
            return []
        main = Box(0, 0, width - side, height)
        small = _fill(Box(width - side, 0, side, height), others, across)
    else:
        across = max(1, min(others, width // MIN_WIDTH))
        below = max(height // 3, MIN_HEIGHT * math.ceil(others / across))
        if height - below < MIN_HEIGHT:
            return []
        main = Box(0, 0, width, height - below)
        small = _fill(Box(0, height - below, width, below), others, across)
    return [*small[:chief], main, *small[chief:]]


def _fill(area: Box, count: int, across: int) -> list[Box]:
    """`count` boxes in reading order, `across` in a row, that fill an area."""
    down = math.ceil(count / across)
    boxes: list[Box] = []
    for row, (y, tall) in enumerate(_split(area.height, down)):
        in_row = min(across, count - row * across)
        boxes += [Box(area.x + x, area.y + y, wide, tall) for x, wide in _split(area.width, in_row)]
    return boxes


def _split(total: int, parts: int) -> list[tuple[int, int]]:
    """`parts` spans that fill `total`, as equal as whole cells allow."""
    edges = [total * i // parts for i in range(parts + 1)]
    return [(start, end - start) for start, end in itertools.pairwise(edges)]
