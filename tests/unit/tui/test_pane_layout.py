"""Positions of panes at the sizes that the design names."""

from __future__ import annotations

import pytest

from tui import pane_layout


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


def test_each_row_of_panes_fills_the_width() -> None:
    """At every size from 80×24 to 400×120 the spans of any row add up to the columns of the grid,
    and no pane is smaller than 40×6."""
    for width in range(80, 401, 23):
        for height in range(20, 118, 13):
            for count in (1, 2, 3, 5, 9, 16, 40):
                page = min(count, pane_layout.per_page(count, width, height))
                spans = pane_layout.spans(page, width)
                across = pane_layout.columns(page, width)
                rows = [spans[i : i + across] for i in range(0, page, across)]
                assert len({sum(row) for row in rows}) == 1 and sum(map(len, rows)) == page
                assert width // across >= 40 and height // len(rows) >= 6


def test_small_pages_have_no_borders_at_the_sides() -> None:
    """They would cost lines that matter; the title alone stands for them."""
    for size, count, framed in [((80, 21), 2, False), ((120, 37), 4, True), ((200, 47), 16, True)]:
        assert pane_layout.framed(count, *size) is framed
    assert not pane_layout.framed(1, 80, 21)
