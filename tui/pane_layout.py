"""Layout of the panes: arrangement, pages, focus and zoom, without a widget."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from launcher.ids import TaskId
from launcher.run.snapshot import Snapshot, TaskView
from tui import pane_boxes
from tui.format import StatusColor, status_color
from tui.pane_boxes import Arrangement, Box

LARGE = 32
"""Tasks from which on the first page holds those that need attention."""


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
    _attention: list[TaskId] = field(default_factory=list)

    def update(self, snapshot: Snapshot, stalled: Iterable[TaskId] = ()) -> None:
        """Takes over the tasks of a snapshot. A task that once needed attention keeps its place:
        panes never move by themselves."""
        self.tasks = snapshot.tasks
        if self.focused is None and self.tasks:
            self.focused = self.tasks[0].id
        wanted = [task.id for task in self.tasks if task.is_chief]
        wanted += self.pinned
        wanted += [task.id for task in self.tasks if status_color(task) is StatusColor.BAD]
        wanted += stalled
        self._attention += [task for task in wanted if task not in self._attention]

    @property
    def shown(self) -> Arrangement:
        """The arrangement in force."""
        if self.arrangement is not None:
            return self.arrangement
        many = len(self._chunks(self._in_order())) > pane_boxes.MANY_PAGES
        return Arrangement.LIST if many else Arrangement.GRID

    def pages(self) -> list[list[TaskId]]:
        """The tasks of each page; the first may be the attention page."""
        pages = self._chunks(self._in_order())
        if len(self.tasks) > LARGE and len(pages) > 1:
            return [self._attention[: self._per_page()], *pages]
        return pages

    def place(self) -> list[tuple[TaskId, Box]]:
        """The panes in sight and where they stand."""
        whole = Box(0, 0, self.width, self.height)
        if self.focused is not None and (self.zoomed or self.shown is Arrangement.LIST):
            return [(self.focused, whole)]
        pages = self.pages()
        if not pages:
            return []
        self.page = min(self.page, len(pages) - 1)
        tasks = pages[self.page]
        boxes: list[Box] = []
        if self.shown is Arrangement.CHIEF:
            chief = next((task.id for task in self.tasks if task.is_chief), None)
            large = chief if chief in tasks else tasks[0]
            boxes = pane_boxes.chief_large(len(tasks), tasks.index(large), self.width, self.height)
        boxes = boxes or pane_boxes.grid(len(tasks), self.width, self.height)
        return list(zip(tasks, boxes, strict=True))

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
        if self.shown in (Arrangement.LIST, Arrangement.MERGED):
            tasks = [task.id for task in self.tasks]
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
        """Pins the focused task to the attention page, or unpins it."""
        task = self.focused
        if task in self.pinned:
            self.pinned.remove(task)
        elif task is not None:
            self.pinned.append(task)
            self._attention += [task] if task not in self._attention else []

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

    def _per_page(self) -> int:
        return pane_boxes.per_page(len(self.tasks), self.width, self.height)

    def _in_order(self) -> list[list[TaskId]]:
        """Groups that share pages: start order, and for large runs host by host."""
        if len(self.tasks) <= LARGE:
            return [[task.id for task in self.tasks]]
        hosts: dict[str, list[TaskId]] = {}
        for task in self.tasks:
            hosts.setdefault(task.host, []).append(task.id)
        return list(hosts.values())

    def _chunks(self, groups: list[list[TaskId]]) -> list[list[TaskId]]:
        """Pages filled with whole groups where they fit."""
        limit = self._per_page()
        pages: list[list[TaskId]] = []
        for group in groups:
            if pages and len(pages[-1]) + len(group) <= limit:
                pages[-1] += group
                continue
            pages += [group[i : i + limit] for i in range(0, len(group), limit)]
        return pages
