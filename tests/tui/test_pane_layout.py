"""Positions of panes at the sizes that the design names."""

from __future__ import annotations

import pytest

from tui import pane_layout
from tui.pane_layout import Box


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
    assert pane_layout.per_page(tasks, *size) == page
    assert pane_layout.columns(page, size[0]) == columns


def test_boxes_fill_the_area_and_never_overlap() -> None:
    """At every size from 80×24 to 400×120 the panes of a page cover each cell once, and none
    is smaller than 40×6."""
    for width in range(80, 401, 23):
        for height in range(20, 118, 13):
            for count in (1, 2, 3, 5, 9, 16, 40):
                page = min(count, pane_layout.per_page(count, width, height))
                boxes = pane_layout.grid(page, Box(0, 0, width, height))
                assert len(boxes) == page
                assert sum(box.width * box.height for box in boxes) == width * height
                assert all(box.width >= 40 and box.height >= 6 for box in boxes)


def test_small_pages_have_no_borders_at_the_sides() -> None:
    """They would cost lines that matter; the title alone stands for them."""
    for size, count, framed in [((80, 21), 2, False), ((120, 37), 4, True), ((200, 47), 16, True)]:
        area = Box(0, 0, *size)
        assert pane_layout.framed(pane_layout.grid(count, area), area) is framed
    assert not pane_layout.framed([Box(0, 0, 80, 21)], Box(0, 0, 80, 21))
