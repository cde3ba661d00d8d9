"""Positions of panes at the sizes that the design names."""

from __future__ import annotations

import pytest

from launcher.ids import TaskId
from launcher.run.snapshot import TaskView
from launcher.run.states import TaskState
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
                rows = pane_layout.even_rows(page, width)
                check_widths(rows, page)
                assert width // max(rows.counts) >= 40 and height // len(rows.counts) >= 6


def check_widths(rows: pane_layout.PageRows, panes: int) -> None:
    """The panes of each row fill the columns of the grid."""
    spans = list(rows.spans)
    assert len(spans) == sum(rows.counts) == panes
    for count in rows.counts:
        assert sum(spans[:count]) == rows.columns
        del spans[:count]


@pytest.mark.parametrize(
    ("quiet", "others", "size", "counts", "heights"),
    [
        (1, 2, (80, 22), (1, 1, 1), (5, 0, 0)),
        (1, 3, (80, 22), (1, 2, 1), (5, 0, 0)),
        (2, 2, (80, 22), (2, 1, 1), (5, 0, 0)),
        (3, 2, (80, 22), (2, 1, 1, 1), (5, 5, 0, 0)),
        (1, 2, (200, 48), (1, 2), (12, 0)),
        (2, 6, (200, 48), (2, 3, 3), (12, 0, 0)),
        (7, 3, (200, 48), (4, 3, 2, 1), (6, 6, 0, 0)),
        (1, 8, (80, 22), None, None),
        (5, 1, (80, 22), None, None),
    ],
)
def test_quiet_tasks_share_short_rows(
    quiet: int,
    others: int,
    size: tuple[int, int],
    counts: tuple[int, ...] | None,
    heights: tuple[int, ...] | None,
) -> None:
    """Given ps and helpers beside tasks that train, then they share a quarter of the height above
    them, with four lines each at least; where the others have no room then, there are no such
    rows."""
    rows = pane_layout.role_rows(quiet, others, *size)
    assert (rows and rows.counts, rows and rows.heights) == (counts, heights)


def test_rows_by_role_keep_their_sizes_at_every_size() -> None:
    """Given any size from 80×24 to 400×120, then short rows have four lines, the others six rows
    with their title, and together they take no more than there is."""
    for width in range(80, 401, 37):
        for height in range(21, 118, 7):
            for quiet in range(1, 9):
                for others in range(1, 9):
                    rows = pane_layout.role_rows(quiet, others, width, height)
                    if rows is None:
                        continue
                    check_widths(rows, quiet + others)
                    short = sum(rows.heights)
                    edges = 2 if rows.framed(width, height) else 1
                    assert all(not high or high - edges >= 4 for high in rows.heights)
                    assert short <= height // 2
                    assert (height - short) // rows.heights.count(0) >= 6


def test_rows_by_role_stay_when_the_room_shrinks_for_a_while() -> None:
    """Given rows by role that fit, when a summary takes a third of the height, then they stay, only
    lower; a run that opens in that room has the even grid."""
    tasks = tuple(
        TaskView(TaskId.parse(name), "tf1", "tf1:1", TaskState.RUNNING, in_cluster=name != "tb:0")
        for name in ("ps:0", "worker:0", "worker:1", "worker:2", "tb:0")
    )
    by_role, grid = pane_layout.Arrangement.ROLES, pane_layout.Arrangement.GRID

    def opened(height: int) -> pane_layout.PaneLayout:
        layout = pane_layout.PaneLayout(tasks=tasks)
        layout.resize(80, height)
        return layout

    layout = opened(22)
    rows = layout.rows_by_role
    assert layout.effective == by_role and rows is not None
    assert [str(task) for task in layout.in_sight()] == [
        *("ps:0", "tb:0", "worker:0", "worker:1", "worker:2")
    ]
    for height in (18, 14, 16, 22):
        layout.resize(80, height)
        shown = layout.rows_by_role
        assert layout.effective == by_role and shown is not None and shown.counts == rows.counts
    assert opened(14).effective == grid
    layout.arrangement = grid
    layout.resize(80, 22)
    assert layout.effective == grid


def test_small_pages_have_no_borders_at_the_sides() -> None:
    """They would cost lines that matter; the title alone stands for them."""
    for size, count, framed in [((80, 21), 2, False), ((120, 37), 4, True), ((200, 47), 16, True)]:
        assert pane_layout.even_rows(count, size[0]).framed(*size) is framed
    assert not pane_layout.even_rows(1, 80).framed(80, 21)
