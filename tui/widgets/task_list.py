"""Tasks of a run where not all have a pane in sight: a strip of letters, and a list beside a
pane."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from rich.text import Text
from textual import events
from textual.message import Message
from textual.widget import Widget

from launcher.ids import TaskId
from launcher.quantities import age, thousands
from launcher.run.snapshot import Snapshot, TaskView
from launcher.run.states import TaskState
from tui.format import StatusColor, state_mark, status_color
from tui.pane_layout import listed
from tui.widgets.colours import has_few_colours, status_colours, theme_colour

MAX_ROWS = 4
SUMMARY_ROWS = 2


class TaskClicked(Message):
    """A task was clicked, here or in another widget that shows tasks."""

    def __init__(self, task: TaskId) -> None:
        self.task = task
        super().__init__()


class TaskList(Widget):
    """One row a task; the focused one stays in sight."""

    def __init__(self) -> None:
        super().__init__()
        self._snapshot: Snapshot | None = None
        self._rows: Sequence[TaskView] = ()
        self._focused: TaskId | None = None
        self._hidden: Collection[TaskId] = ()
        self._first = 0
        self._now = 0.0
        self._boxes = False

    def show(
        self,
        snapshot: Snapshot,
        focused: TaskId | None,
        now: float,
        hidden: Collection[TaskId] | None = None,
    ) -> None:
        """Shows a snapshot; with `hidden`, rows have a box that says which tasks are off."""
        self._snapshot, self._focused, self._now = snapshot, focused, now
        self._hidden = hidden if hidden is not None else ()
        self._boxes = hidden is not None
        self.refresh()

    def render(self) -> Text:
        """The rows around the focused one."""
        text = Text(no_wrap=True, end="")
        if self._snapshot is None:
            return text
        tasks = self._rows = listed(self._snapshot.tasks)
        at = next((i for i, task in enumerate(tasks) if task.id == self._focused), 0)
        height, width = max(1, self.size.height), self.size.width
        self._first = min(self._first, at, max(0, len(tasks) - height))
        self._first = max(self._first, at - height + 1)
        colours = status_colours(self.app)
        for task in tasks[self._first : self._first + height]:
            mark = "▸" if task.id == self._focused else " "
            box = ("○ " if task.id in self._hidden else "● ") if self._boxes else ""
            right = "" if task.step is None else thousands(task.step)
            if not right or not task.state.live:
                right = f"{right}  {task.exit_text}".lstrip()
            if task.last_output and task.state.live:
                right += f" {age(self._now - task.last_output):>6}"
            row = Text(f"{mark}{box}{state_mark(task).letter} {task.id} ", no_wrap=True)
            row.stylize(f"bold {colours[status_color(task)]}", len(mark + box), len(mark + box) + 1)
            room = width - row.cell_len - len(right) - 1
            if room < 0:
                right, room = "", max(0, width - row.cell_len - 1)
            row.append(" " * room + right + " ", "dim")
            if task.id == self._focused:
                row.stylize("reverse")
            row.truncate(width)
            text.append_text(row)
            text.append("\n")
        return text

    def on_click(self, event: events.Click) -> None:
        if self._first + event.y < len(self._rows):
            self.post_message(TaskClicked(self._rows[self._first + event.y].id))


class _StripCell(NamedTuple):
    x: int
    y: int
    text: str
    task: TaskId | None
    """None: the name of a job."""
    view: TaskView | None
    """One that has its colour."""


class StatusStrip(Widget):
    """Cells grouped by job: `ps R  worker RRF`, with each task's name while there is room.
    Thousands of tasks are counted by state, and those that went wrong are named below.

    A click focuses the task.
    """

    def __init__(self) -> None:
        super().__init__()
        self._snapshot: Snapshot | None = None
        self._focused: TaskId | None = None
        self._shown: object = None
        self._cells: list[_StripCell] = []

    def show(self, snapshot: Snapshot, focused: TaskId | None) -> None:
        """Shows a snapshot and which task has the focus."""
        looks = [(task.state, task.exit_code, task.id) for task in snapshot.tasks]
        if (looks, focused) == self._shown:
            return
        self._shown = (looks, focused)
        self._snapshot, self._focused = snapshot, focused
        self._cells = _cells(snapshot, self.size.width or self.app.size.width)
        rows = min(MAX_ROWS, 1 + max((cell.y for cell in self._cells), default=0))
        if len(self._cells) < len(snapshot.tasks):
            rows = SUMMARY_ROWS  # panes do not move when the first task goes wrong
        if self.styles.height is None or self.styles.height.value != rows:
            self.styles.height = rows
        self.refresh()

    def on_resize(self) -> None:
        if self._snapshot:
            self._shown = None
            self.show(self._snapshot, self._focused)

    def render(self) -> Text:
        row = Text(no_wrap=True, end="")
        if self._snapshot is None:
            return row
        colours = status_colours(self.app)
        few = has_few_colours(self.app)
        lit = "reverse" if few else f"on {theme_colour(self.app, 'primary-muted')}"
        x = y = 0
        for cell in self._cells:
            row.append("\n" * (cell.y - y) + " " * (cell.x - (x if cell.y == y else 0)))
            style = f"bold {colours[status_color(cell.view)]}" if cell.view else "dim"
            focused = cell.task is not None and cell.task == self._focused
            row.append(cell.text, f"{style} {lit}" if focused else style)
            x, y = cell.x + len(cell.text), cell.y
        return row

    def on_click(self, event: events.Click) -> None:
        for cell in self._cells:
            inside = cell.y == event.y and cell.x <= event.x < cell.x + len(cell.text)
            if inside and cell.task is not None:
                self.post_message(TaskClicked(cell.task))


def _cells(snapshot: Snapshot, width: int) -> list[_StripCell]:
    """Cells of all tasks; without names, and in several rows, when names do not fit."""
    cells: list[_StripCell] = []
    x = y = 0
    if sum(len(str(task.id)) + 5 for task in snapshot.tasks) <= width:
        for task in snapshot.tasks:
            text = f" {task.id} {state_mark(task).letter} "
            cells.append(_StripCell(x, 0, text, task.id, task))
            x += len(cells[-1].text) + 1
        return cells
    job = ""
    for task in snapshot.tasks:
        if task.id.job != job:
            job = task.id.job
            x += 2 if x else 0
            if x + len(job) + 3 > width:
                x, y = 0, y + 1
            cells.append(_StripCell(x, y, f"{job} ", None, None))
            x += len(job) + 1
        if x >= width:
            x, y = 0, y + 1
        if y == MAX_ROWS:
            return _summary(snapshot, width)
        cells.append(_StripCell(x, y, state_mark(task).letter, task.id, task))
        x += 1
    return cells


def _summary(snapshot: Snapshot, width: int) -> list[_StripCell]:
    """The number of tasks in each state, the bad ones first, and names of those."""
    groups: dict[str, dict[TaskState, list[TaskView]]] = {}
    for task in snapshot.tasks:
        groups.setdefault(task.id.job, {}).setdefault(task.state, []).append(task)
    cells: list[_StripCell] = []
    x = 0
    for job, states in groups.items():
        cells.append(_StripCell(x, 0, f"{job} ", None, None))
        x += len(job) + 2
        for tasks in sorted(states.values(), key=_is_calm):
            text = f"{thousands(len(tasks))} {tasks[0].state}"
            cells.append(_StripCell(x, 0, text, None, tasks[0]))
            x += len(text) + 2
        x += 1
    cells = [cell for cell in cells if cell.x + len(cell.text) <= width]
    x = 0
    for task in snapshot.tasks:
        if status_color(task) is StatusColor.BAD:
            text = f"{state_mark(task).letter} {task.id}"
            if x + len(text) + 2 > width:
                cells.append(_StripCell(x, 1, "…", None, None))
                break
            cells.append(_StripCell(x, 1, text, task.id, task))
            x += len(text) + 2
    return cells


def _is_calm(tasks: list[TaskView]) -> bool:
    return status_color(tasks[0]) is not StatusColor.BAD
