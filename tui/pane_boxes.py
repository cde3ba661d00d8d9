"""Boxes of panes: pure arithmetic, so that every size of terminal can be tested.

A page is a tree of splits: rows, each with its columns; or the chief's pane and beside it the rest.
A person may move the borders of a split; what was moved is known by the name of the split.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

MIN_WIDTH = 40
MIN_HEIGHT = 6
LEAST_WIDTH = 20
LEAST_HEIGHT = 4
"""Smallest pane that a person can make."""
PAGE_LIMIT = 16
ONE_COLUMN_UNDER = 120
MANY_PAGES = 4
FRAMED_AREA = (100, 28)
FRAMED_PANE = (MIN_WIDTH, 9)
"""Sizes from which on panes have borders on all sides: they cost a row and two columns each."""
STEPS = 20
"""Steps of the keys that make a pane larger, over the whole area."""

Sizes = Mapping[str, Sequence[int]]
"""Cells of the parts of splits that a person has changed, by the names of the splits; another area
is divided in proportion."""


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

    def part(self, beside: bool, start: int, length: int) -> Box:
        """A part of the box, by its columns or by its rows."""
        if beside:
            return Box(self.x + start, self.y, length, self.height)
        return Box(self.x, self.y + start, self.width, length)


@dataclass(frozen=True)
class Split:
    """Area divided into parts, beside or below each other; a number is a pane."""

    name: str
    beside: bool
    parts: tuple[Split | int, ...]
    usual: tuple[int, ...] = ()
    """Sizes in proportion to each other, where they are not equal."""


@dataclass(frozen=True)
class PlacedSplit:
    """A split on the screen: the lengths of its parts, and the panes in each."""

    split: Split
    box: Box
    lengths: tuple[int, ...]
    panes: tuple[tuple[int, ...], ...]

    def divider_at(self, x: int, y: int, *, before: int) -> int | None:
        """Number of the border at a cell: that between this part and the next. A border has the
        first cells of a part, and the `before` last ones of the part before it."""
        box, beside = self.box, self.split.beside
        if not (0 <= x - box.x < box.width and 0 <= y - box.y < box.height):
            return None
        at = x - box.x if beside else y - box.y
        edges = list(itertools.accumulate(self.lengths))[:-1]
        return next((i for i, edge in enumerate(edges) if edge - before <= at <= edge), None)

    def moved(self, number: int, x: int, y: int) -> tuple[int, ...]:
        """Lengths after a border has been moved to a cell, as far as the parts can shrink."""
        at = x - self.box.x if self.split.beside else y - self.box.y
        first, second = self.lengths[number], self.lengths[number + 1]
        least = self._least()
        by = at - sum(self.lengths[: number + 1])
        by = max(least[number] - first, min(by, second - least[number + 1]))
        return (*self.lengths[:number], first + by, second - by, *self.lengths[number + 2 :])

    def grown(self, part: int, steps: int) -> tuple[int, ...]:
        """Lengths after one part has grown by steps, or shrunk by negative ones; the others give
        way, the largest first."""
        lengths, least = list(self.lengths), self._least()
        others = [i for i in range(len(lengths)) if i != part]
        for _ in range(abs(steps) * max(1, sum(lengths) // STEPS)):
            if steps > 0:
                giver = max(others, key=lambda i: lengths[i] - least[i])
                taker = part
            else:
                giver, taker = part, min(others, key=lambda i: lengths[i])
            if lengths[giver] <= least[giver]:
                break
            lengths[giver] -= 1
            lengths[taker] += 1
        return tuple(lengths)

    def _least(self) -> list[int]:
        return [_least(part, self.split.beside) for part in self.split.parts]


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


def framed(boxes: Iterable[Box], area: Box) -> bool:
    """The panes of a page have borders on all sides."""
    if area.width < FRAMED_AREA[0] or area.height < FRAMED_AREA[1]:
        return False
    return all(box.width >= FRAMED_PANE[0] and box.height >= FRAMED_PANE[1] for box in boxes)


def grid(count: int, width: int) -> Split | int:
    """Rows in reading order that fill the area; the last row's panes share what it has."""
    return _rows(range(count), columns(count, width))


def chief_large(count: int, chief: int, width: int, height: int) -> Split | int | None:
    """The chief over the larger part, the others small: to its right, or below it when the
    terminal is narrow. None when they do not fit."""
    others = [pane for pane in range(count) if pane != chief]
    if not others:
        return chief
    if width >= ONE_COLUMN_UNDER:
        rows = max(1, height // MIN_HEIGHT)
        across = math.ceil(len(others) / rows)
        side = max(MIN_WIDTH * across, width // 3)
        if width - side < MIN_WIDTH * 1.5:
            return None
        rest = _rows(others, across, "chief ")
        return Split("chief beside", True, (chief, rest), (width - side, side))
    across = max(1, min(len(others), width // MIN_WIDTH))
    below = max(height // 3, MIN_HEIGHT * math.ceil(len(others) / across))
    if height - below < MIN_HEIGHT:
        return None
    rest = _rows(others, across, "chief ")
    return Split("chief above", False, (chief, rest), (height - below, below))


def place(tree: Split | int, area: Box, sizes: Sizes) -> tuple[dict[int, Box], list[PlacedSplit]]:
    """The boxes of a page's panes by number, and its splits, the outermost first."""
    if isinstance(tree, int):
        return {tree: area}, []
    least = [_least(part, tree.beside) for part in tree.parts]
    shares = sizes.get(tree.name, ())
    if len(shares) != len(tree.parts):
        shares = tree.usual or [1] * len(tree.parts)
    lengths = _divided(area.width if tree.beside else area.height, shares, least)
    boxes: dict[int, Box] = {}
    inner: list[PlacedSplit] = []
    panes = []
    starts = itertools.accumulate(lengths, initial=0)
    for part, start, length in zip(tree.parts, starts, lengths, strict=False):
        found, splits = place(part, area.part(tree.beside, start, length), sizes)
        boxes |= found
        inner += splits
        panes.append(tuple(found))
    return boxes, [PlacedSplit(tree, area, tuple(lengths), tuple(panes)), *inner]


def _rows(panes: Sequence[int], across: int, prefix: str = "") -> Split | int:
    """Rows of `across` panes. Rows of the same number of panes are divided alike."""
    rows = [tuple(panes[i : i + across]) for i in range(0, len(panes), across)]
    parts = tuple(_split(f"{prefix}columns {len(row)}", True, row) for row in rows)
    return _split(f"{prefix}rows {len(parts)}", False, parts)


def _split(name: str, beside: bool, parts: tuple[Split | int, ...]) -> Split | int:
    return parts[0] if len(parts) == 1 else Split(name, beside, parts)


def _least(part: Split | int, beside: bool) -> int:
    """Columns or rows that a part needs."""
    if isinstance(part, int):
        return LEAST_WIDTH if beside else LEAST_HEIGHT
    needs = [_least(inner, beside) for inner in part.parts]
    return sum(needs) if part.beside is beside else max(needs)


def _divided(total: int, shares: Sequence[int], least: Sequence[int]) -> list[int]:
    """Lengths that fill `total`, in proportion as far as whole cells and the least ones allow."""
    whole = sum(shares)
    edges = [total * share // whole for share in itertools.accumulate(shares, initial=0)]
    lengths = [end - start for start, end in itertools.pairwise(edges)]
    if total < sum(least):
        return lengths
    for part, needed in enumerate(least):
        while lengths[part] < needed:
            largest = max(range(len(lengths)), key=lambda i: lengths[i] - least[i])
            lengths[largest] -= 1
            lengths[part] += 1
    return lengths
