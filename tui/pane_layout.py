"""Layout of the panes: arrangement, pages, focus and zoom, without a widget."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from launcher.cluster.roles import ROLES, Role
from launcher.ids import TaskId
from launcher.run.snapshot import Snapshot, TaskView
from tui.format import StatusColor, status_color

LARGE = 32
"""Tasks from which on the first page also holds those that need attention."""
MIN_WIDTH = 40
MIN_HEIGHT = 6
PAGE_LIMIT = 16
ONE_COLUMN_UNDER = 120
MANY_PAGES = 4
SHORT_LINES = 4
"""Lines of a pane in a short row at least."""
SQUEEZED_LINES = 2
"""Lines of a pane at least, where a summary has taken room: panes do not move for that."""
FRAMED_AREA = (100, 28)
FRAMED_PANE = (MIN_WIDTH, 9)
"""Sizes from which on panes have borders on all sides: they cost a row and two columns each."""


class Arrangement(StrEnum):
    """The layouts that Space steps through."""

    ROLES = "by role"
    GRID = "grid"
    LIST = "list + detail"
    MERGED = "merged log"


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


class PageRows(NamedTuple):
    """Rows of panes that fill a page."""

    counts: tuple[int, ...]
    """The number of panes in each row; the panes of a row share its width."""
    heights: tuple[int, ...]
    """Their heights; rows of height 0 share what the others leave."""

    @property
    def columns(self) -> int:
        """Columns of a grid in which each row fills the width."""
        return math.lcm(*self.counts)

    @property
    def spans(self) -> list[int]:
        """How many of these columns each pane takes."""
        return [self.columns // count for count in self.counts for _ in range(count)]

    def framed(self, width: int, height: int) -> bool:
        """The panes have borders on all sides."""
        if width < FRAMED_AREA[0] or height < FRAMED_AREA[1]:
            return False
        shared = (height - sum(self.heights)) // max(1, self.heights.count(0))
        return width // max(self.counts) >= FRAMED_PANE[0] and shared >= FRAMED_PANE[1]


def even_rows(count: int, width: int) -> PageRows:
    """Rows of the same height; the last one may have fewer panes."""
    counts = _counts(count, columns(count, width))
    return PageRows(counts, (0,) * len(counts))


def role_rows(quiet: int, others: int, width: int, height: int) -> PageRows | None:
    """Short rows of `quiet` panes, which share a quarter of the height, above those of the others;
    None where they have no room."""
    across = max(1, width // MIN_WIDTH)
    down = math.ceil(quiet / across)
    above = _counts(quiet, math.ceil(quiet / down))
    for wide in range(columns(others, width), across + 1):
        rows = _with_short_rows(above, _counts(others, wide), width, height, SHORT_LINES)
        if rows is not None:
            return rows
    return None


def _with_short_rows(
    above: tuple[int, ...], below: tuple[int, ...], width: int, height: int, lines: int
) -> PageRows | None:
    """Rows of which those above are short, with so many lines at least; those below have one more
    at least. None where they have no room."""
    frame = 2 if width >= FRAMED_AREA[0] and height >= FRAMED_AREA[1] else 1
    short = max(lines + frame, height // 4 // len(above))
    rest = height - short * len(above)
    if rest < len(below) * (lines + 2) or short * len(above) > height // 2:
        return None
    return PageRows(above + below, (short,) * len(above) + (0,) * len(below))


def _counts(count: int, across: int) -> tuple[int, ...]:
    """Panes of each row, `across` in all but the last."""
    return tuple(min(across, count - at) for at in range(0, count, across))


def is_quiet(task: TaskView) -> bool:
    """The task serves others, and says little for hours: a ps, a helper, lines of `prepare`."""
    role = ROLES.get(task.id.job)
    return role is Role.PS or (not task.in_cluster and role is not Role.EVALUATOR)


def listed(tasks: Sequence[TaskView]) -> Sequence[TaskView]:
    """The tasks in the order of a list: in a large run those that went wrong come first."""
    if len(tasks) <= LARGE:
        return tasks
    return sorted(tasks, key=lambda task: status_color(task) is not StatusColor.BAD)


@dataclass
class PaneLayout:
    """The state of the pane area. `focused` is a task of the run; it outlives pages."""

    arrangement: Arrangement | None = None
    """None until a person has chosen: then the size of run and screen decides."""
    zoomed: bool = False
    page: int = 0
    focused: TaskId | None = None
    pinned: list[TaskId] = field(default_factory=list)
    tasks: tuple[TaskView, ...] = ()
    width: int = 80
    height: int = 21
    _chosen: tuple[PageRows, int] | None = None
    """Rows by role, and the height for which they were chosen: in less they are squeezed."""
    _attention: dict[TaskId, None] = field(default_factory=dict)
    _first: list[TaskId] = field(default_factory=list)
    """The first page of a large run."""
    _begun_with: list[TaskId] = field(default_factory=list)
    """The tasks that it had at first: no other page has them."""

    def update(self, snapshot: Snapshot) -> None:
        """Takes over the tasks of a snapshot. A task that once needed attention keeps its place:
        panes never move by themselves."""
        self.tasks = snapshot.tasks
        if self.focused is None and self.tasks:
            chief = next((task.id for task in self.tasks if task.is_chief), self.tasks[0].id)
            self.focus(chief)  # a ps is silent for hours, and well
        wanted = [task.id for task in self.tasks if task.is_chief]
        wanted += self.pinned
        wanted += [task.id for task in self.tasks if status_color(task) is StatusColor.BAD]
        wanted += snapshot.verdict.tasks if snapshot.verdict is not None else ()
        wanted += [task.id for task in (*snapshot.halted, *snapshot.stalled)]
        self._attention |= dict.fromkeys(wanted)

    @property
    def effective(self) -> Arrangement:
        """The chosen arrangement; else rows by role where there are such, the grid, or the list if
        its pages would be too many."""
        if self.arrangement is None or self.arrangement is Arrangement.ROLES:
            if self.rows_by_role is not None:
                return Arrangement.ROLES
        else:
            return self.arrangement
        many = len(self.tasks) > self._per_page() * MANY_PAGES
        return Arrangement.LIST if many else Arrangement.GRID

    @property
    def shows_panes(self) -> bool:
        """Panes beside each other, not one alone."""
        return self.effective in (Arrangement.ROLES, Arrangement.GRID) and not self.zoomed

    @property
    def arrangements(self) -> list[Arrangement]:
        """The arrangements that differ from one another here."""
        by_role = self.rows_by_role is not None
        return [one for one in Arrangement if by_role or one is not Arrangement.ROLES]

    @property
    def rows_by_role(self) -> PageRows | None:
        """Rows with the quiet tasks above the others; None where the tasks have one role, or no
        room on one page."""
        if not self.tasks or len(self.tasks) > PAGE_LIMIT:
            return None
        quiet = sum(map(is_quiet, self.tasks))
        if not 0 < quiet < len(self.tasks):
            return None
        if self._chosen is None or self.height >= self._chosen[1]:
            return role_rows(quiet, len(self.tasks) - quiet, self.width, self.height)
        rows, _ = self._chosen
        short = len(rows.heights) - rows.heights.count(0)
        above, below = rows.counts[:short], rows.counts[short:]
        return _with_short_rows(above, below, self.width, self.height, SQUEEZED_LINES)

    def resize(self, width: int, height: int) -> None:
        """Takes note of the room for panes."""
        if width != self.width:
            self._chosen = None
        self.width, self.height = width, height
        rows = self.rows_by_role
        if rows is None or self._chosen is None or height >= self._chosen[1]:
            self._chosen = None if rows is None else (rows, height)
        if self.focused is not None:
            self.focus(self.focused)  # pages of another size: it may be on another one

    def pages(self) -> list[list[TaskId]]:
        """The tasks of each page. In a large run the first page has the first tasks; one that needs
        attention and is not among them takes the place of the last that does not."""
        if self.effective is Arrangement.ROLES:
            return [[task.id for task in sorted(self.tasks, key=lambda one: not is_quiet(one))]]
        groups = self._in_order()
        limit = self._per_page()
        if len(self.tasks) <= max(LARGE, limit):
            return self._chunks(groups)
        if len(self._first) != limit:
            self._first = [task for group in groups for task in group][:limit]
            self._show_attention()
            self._begun_with = list(self._first)
        self._show_attention()
        rest = [[task for task in group if task not in self._begun_with] for group in groups]
        rest.append([task for task in self._begun_with if task not in self._first])
        return [list(self._first), *self._chunks([group for group in rest if group])]

    def in_sight(self) -> list[TaskId]:
        """The tasks whose panes are in sight, in reading order."""
        if self.focused is not None and (self.zoomed or self.effective is Arrangement.LIST):
            return [self.focused]
        pages = self.pages()
        self.page = min(self.page, max(0, len(pages) - 1))
        return pages[self.page] if pages else []

    def focus(self, task: TaskId) -> None:
        """Brings a task into sight, on the page in sight if it is there."""
        self.focused = task
        pages = self.pages()
        if self.page < len(pages) and task in pages[self.page]:
            return
        self.page = next((i for i, page in enumerate(pages) if task in page), self.page)

    def turn(self, by: int) -> None:
        """Turns pages, around the end."""
        pages = self.pages()
        self.zoomed = False
        if pages:
            self.page = (self.page + by) % len(pages)
            self.focused = pages[self.page][0]

    def step(self, by: int) -> None:
        """The next or previous task, from page to page; in a list, from row to row."""
        pages = self.pages()
        if not pages:
            return
        if self.effective in (Arrangement.LIST, Arrangement.MERGED):
            tasks = [task.id for task in listed(self.tasks)]
            at = tasks.index(self.focused) if self.focused in tasks else 0
            self.focus(tasks[(at + by) % len(tasks)])
            return
        page = pages[min(self.page, len(pages) - 1)]
        at = page.index(self.focused) + by if self.focused in page else 0
        if 0 <= at < len(page):
            self.focused = page[at]
            return
        zoomed = self.zoomed
        self.turn(by)
        self.zoomed = zoomed
        self.focused = pages[self.page][0 if by > 0 else -1]

    def toggle_pin(self) -> None:
        """Pins the focused task to the first page of a large run, or unpins it."""
        task = self.focused
        if task in self.pinned:
            self.pinned.remove(task)
        elif task is not None:
            self.pinned.append(task)
            self._attention[task] = None

    def named(self, text: str) -> TaskId | None:
        """The task that a person means: `worker:1`, `worker1`, `w1`, or the host it runs on."""
        wanted = text.strip().lower().replace(":", "").replace(" ", "")
        if not wanted:
            return None
        job, index = wanted.rstrip("0123456789"), wanted[len(wanted.rstrip("0123456789")) :]
        for task in self.tasks:
            if str(task.id).replace(":", "").lower() == wanted:
                return task.id
        for task in self.tasks:
            if task.id.job.lower().startswith(job) and (not index or int(index) == task.id.index):
                return task.id
        return next((task.id for task in self.tasks if task.host.lower() == wanted), None)

    def _show_attention(self) -> None:
        """Puts tasks that need attention onto the first page, from its end; the focused pane
        stays."""
        calm = [
            i
            for i, here in enumerate(self._first)
            if here not in self._attention and here != self.focused
        ]
        for task in self._attention:
            if not calm:
                break
            if task not in self._first:
                self._first[calm.pop()] = task

    def _per_page(self) -> int:
        return per_page(len(self.tasks), self.width, self.height)

    def _in_order(self) -> list[list[TaskId]]:
        """Groups that share pages: start order, and for large runs host by host."""
        if len(self.tasks) <= LARGE:
            return [[task.id for task in self.tasks]]
        hosts: dict[str, list[TaskId]] = {}
        for task in self.tasks:
            hosts.setdefault(task.host, []).append(task.id)
        return list(hosts.values())

    def _chunks(self, groups: list[list[TaskId]]) -> list[list[TaskId]]:
        """Pages filled with whole groups where they fit; a page is at least half full."""
        limit = self._per_page()
        pages: list[list[TaskId]] = []
        for group in groups:
            if pages and (len(pages[-1]) + len(group) <= limit or 2 * len(pages[-1]) < limit):
                group = [*pages.pop(), *group]
            pages += [group[i : i + limit] for i in range(0, len(group), limit)]
        return pages
