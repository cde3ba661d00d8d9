"""List of all tasks beside one large pane."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rich.text import Text
from textual import events
from textual.message import Message
from textual.widget import Widget

from launcher.ids import TaskId
from launcher.quantities import age, thousands
from launcher.run.snapshot import Snapshot, TaskView
from tui.format import STATE_MARKS, status_color
from tui.pane_layout import listed
from tui.widgets.colours import status_colours


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
            right = thousands(task.step) if task.step is not None else task.state.value
            if task.last_output and task.state.live:
                right += f" {age(self._now - task.last_output):>6}"
            row = Text(f"{mark}{box}{STATE_MARKS[task.state].letter} {task.id} ", no_wrap=True)
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
