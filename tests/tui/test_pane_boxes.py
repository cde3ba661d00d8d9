"""Positions of panes at the sizes that the design names."""

from __future__ import annotations

import random

import pytest

from tui import pane_boxes
from tui.pane_boxes import LEAST_HEIGHT, LEAST_WIDTH, Box, Sizes, Split


@pytest.mark.parametrize(
    ("tasks", "size", "page", "columns"),
    [
        (2, (200, 47), 2, 2),
        (2, (80, 21), 2, 1),
        (3, (80, 21), 3, 1),
        (4, (200, 47), 4, 2),
        (4, (80, 21), 4, 2),
        (9, (200, 47), 9, 3),
        (9, (80, 21), 6, 2),
        (16, (200, 47), 16, 4),
        (16, (80, 21), 6, 2),
        (64, (200, 47), 16, 4),
        (256, (400, 117), 16, 4),
    ],
)
def test_pages_and_columns(tasks: int, size: tuple[int, int], page: int, columns: int) -> None:
    """The table of the design."""
    assert pane_boxes.per_page(tasks, *size) == page
    assert pane_boxes.columns(page, size[0]) == columns


def placed(tree: Split | int, width: int, height: int, sizes: Sizes | None = None) -> list[Box]:
    boxes, _ = pane_boxes.place(tree, Box(0, 0, width, height), sizes or {})
    return [boxes[number] for number in sorted(boxes)]


def trees(count: int, width: int, height: int) -> list[Split | int]:
    large = pane_boxes.chief_large(count, count // 2, width, height)
    return [pane_boxes.grid(count, width), *([] if large is None else [large])]


def test_boxes_fill_the_area_and_never_overlap() -> None:
    """At every size from 80×24 to 400×120 the panes of a page cover each cell once, and none
    is smaller than 40×6."""
    for width in range(80, 401, 23):
        for height in range(20, 118, 13):
            for count in (1, 2, 3, 5, 9, 16, 40):
                page = min(count, pane_boxes.per_page(count, width, height))
                for tree in trees(page, width, height):
                    boxes = placed(tree, width, height)
                    assert len(boxes) == page
                    assert sum(box.width * box.height for box in boxes) == width * height
                    assert all(box.width >= 40 and box.height >= 6 for box in boxes)


def test_any_sizes_fill_the_area() -> None:
    """Sizes that a person chose, on this terminal or on another one, leave each pane a few cells
    and the area filled; sizes of another number of parts count for nothing."""
    chance = random.Random(7)
    for _ in range(300):
        width, height = chance.randint(80, 400), chance.randint(20, 117)
        page = pane_boxes.per_page(chance.randint(2, 16), width, height)
        for tree in trees(page, width, height):
            sizes: dict[str, tuple[int, ...]] = {"rows 2": (1, 2, 3)}
            area = Box(0, 0, width, height)
            for placed_split in pane_boxes.place(tree, area, {})[1]:
                parts = len(placed_split.lengths)
                sizes[placed_split.split.name] = tuple(chance.randint(1, 999) for _ in range(parts))
            boxes = placed(tree, width, height, sizes)
            assert sum(box.width * box.height for box in boxes) == width * height
            assert all(box.width >= LEAST_WIDTH and box.height >= LEAST_HEIGHT for box in boxes)


def test_a_border_is_found_and_moved() -> None:
    """Four panes on 200×40: the border of the columns moves in both rows, as far as the panes can
    shrink, and that of the rows by its title."""
    area = Box(0, 0, 200, 40)
    rows, upper, lower = pane_boxes.place(pane_boxes.grid(4, 200), area, {})[1]
    assert upper.divider_at(100, 5, before=0) == lower.divider_at(100, 35, before=0) == 0
    assert upper.divider_at(99, 5, before=0) is None and upper.divider_at(99, 5, before=1) == 0
    assert upper.divider_at(100, 35, before=0) is None  # that is the lower row's
    assert rows.divider_at(30, 20, before=0) == 0 and rows.divider_at(30, 0, before=0) is None
    assert upper.moved(0, 130, 5) == (130, 70)
    assert upper.moved(0, 5, 5) == (LEAST_WIDTH, 200 - LEAST_WIDTH)
    sizes = {upper.split.name: upper.moved(0, 130, 5)}
    assert [box.x for box in placed(pane_boxes.grid(4, 200), 200, 40, sizes)] == [0, 130, 0, 130]
    assert [box.x for box in placed(pane_boxes.grid(4, 200), 100, 40, sizes)] == [0, 65, 0, 65]


def test_a_pane_grows_and_shrinks_by_steps() -> None:
    """The others give way, the largest first, and none below the least size."""
    (columns,) = pane_boxes.place(pane_boxes.grid(3, 200), Box(0, 0, 200, 40), {})[1][1:2]
    assert columns.lengths == (100, 100)
    assert columns.grown(0, 1) == (110, 90) and columns.grown(0, -1) == (90, 110)
    assert columns.grown(1, 99) == (LEAST_WIDTH, 200 - LEAST_WIDTH)
    assert columns.grown(1, -99) == (200 - LEAST_WIDTH, LEAST_WIDTH)


def test_small_pages_have_no_borders_at_the_sides() -> None:
    """They would cost lines that matter; the title alone stands for them."""
    for size, count, framed in [((80, 21), 2, False), ((120, 37), 4, True), ((200, 47), 16, True)]:
        area = Box(0, 0, *size)
        assert pane_boxes.framed(placed(pane_boxes.grid(count, size[0]), *size), area) is framed
    assert not pane_boxes.framed([Box(0, 0, 80, 21)], Box(0, 0, 80, 21))
