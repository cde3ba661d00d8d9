"""Layout of the panes: arrangement, pages, focus and zoom, without a widget."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

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
FRAMED_AREA = (100, 28)
FRAMED_PANE = (MIN_WIDTH, 9)
"""Sizes from which on panes have borders on all sides: they cost a row and two columns each."""


class Arrangement(StrEnum):
    """The layouts that Space steps through."""

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


def framed(count: int, width: int, height: int) -> bool:
    """The panes of a page have borders on all sides."""
    if width < FRAMED_AREA[0] or height < FRAMED_AREA[1]:
        return False
    across = columns(count, width)
    down = math.ceil(count / across)
    return width // across >= FRAMED_PANE[0] and height // down >= FRAMED_PANE[1]


def spans(count: int, width: int) -> list[int]:
    """How many columns of a grid each pane takes: the last row's panes share what it has. Those of
    any row add up to the columns that the grid has."""
    across = columns(count, width)
    last = count % across or across
    whole = math.lcm(across, last)
    return [whole // across] * (count - last) + [whole // last] * last


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
        wanted += [task.id for task in self.tasks if task.stalled_since is not None]
        self._attention |= dict.fromkeys(wanted)

    @property
    def effective(self) -> Arrangement:
        """The chosen arrangement; else the grid, or the list if its pages would be too many."""
        if self.arrangement is not None:
            return self.arrangement
        many = len(self.tasks) > self._per_page() * MANY_PAGES
        return Arrangement.LIST if many else Arrangement.GRID

    def pages(self) -> list[list[TaskId]]:
        """The tasks of each page. In a large run the first page has the first tasks; one that needs
        attention and is not among them takes the place of the last that does not."""
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
