"""Status strip: one letter for each task of the cluster."""

from __future__ import annotations

from rich.text import Text
from textual import events
from textual.widget import Widget

from launcher.ids import TaskId
from launcher.run.snapshot import Snapshot
from tui.format import LETTERS, status_color
from tui.widgets.colours import status_colours, theme_colour
from tui.widgets.task_clicked import TaskClicked

MAX_ROWS = 4


class StatusStrip(Widget):
    """Cells grouped by job: `ps R  worker RRF`, with each task's name while there is room.

    A click focuses the task.
    """

    def __init__(self) -> None:
        super().__init__()
        self._snapshot: Snapshot | None = None
        self._focused: TaskId | None = None
        self._shown: object = None
        self._places: dict[tuple[int, int], TaskId] = {}

    def show(self, snapshot: Snapshot, focused: TaskId | None) -> None:
        """Shows a snapshot and which task has the focus."""
        looks = [(task.state, task.exit_code, task.id) for task in snapshot.tasks]
        if (looks, focused) == self._shown:
            return
        self._shown = (looks, focused)
        self._snapshot, self._focused = snapshot, focused
        rows = self._rows(self.size.width or self.app.size.width)
        if self.styles.height is None or self.styles.height.value != rows:
            self.styles.height = rows
        self.refresh()

    def on_resize(self) -> None:
        if self._snapshot:
            self._shown = None
            self.show(self._snapshot, self._focused)

    def _named(self, width: int) -> bool:
        assert self._snapshot is not None
        return sum(len(str(task.id)) + 5 for task in self._snapshot.tasks) <= width

    def _rows(self, width: int) -> int:
        if self._snapshot is None or self._named(width):
            return 1
        return min(MAX_ROWS, 1 + max((y for y, _ in self._cells(width)), default=0))

    def _cells(self, width: int) -> list[tuple[int, tuple[int, str, TaskId | None]]]:
        """Row, and column, text and task of each cell, when names do not fit."""
        assert self._snapshot is not None
        cells: list[tuple[int, tuple[int, str, TaskId | None]]] = []
        x = y = 0
        job = ""
        for task in self._snapshot.tasks:
            if task.id.job != job:
                job = task.id.job
                x += 2 if x else 0
                if x + len(job) + 3 > width:
                    x, y = 0, y + 1
                cells.append((y, (x, f"{job} ", None)))
                x += len(job) + 1
            if x >= width:
                x, y = 0, y + 1
            cells.append((y, (x, LETTERS[task.state], task.id)))
            x += 1
        return cells

    def render(self) -> Text:
        """Draws the cells and remembers where each stands, for clicks."""
        row = Text(no_wrap=True, end="")
        if self._snapshot is None:
            return row
        self._places.clear()
        colours = status_colours(self.app)
        styles = {}
        lit = theme_colour(self.app, "primary-muted")
        for task in self._snapshot.tasks:
            style = f"bold {colours[status_color(task)]}"
            styles[task.id] = f"{style} on {lit}" if task.id == self._focused else style
        if self._named(self.size.width):
            for task in self._snapshot.tasks:
                text = f" {task.id} {LETTERS[task.state]} "
                for x in range(len(row), len(row) + len(text)):
                    self._places[x, 0] = task.id
                row.append(text, styles[task.id])
                row.append(" ")
            return row
        at = (0, 0)
        for y, (x, text, name) in self._cells(self.size.width):
            row.append("\n" * (y - at[0]) + " " * (x - (at[1] if y == at[0] else 0)))
            row.append(text, styles[name] if name else "dim")
            at = (y, x + len(text))
            if name:
                self._places[x, y] = name
        return row

    def on_click(self, event: events.Click) -> None:
        task = self._places.get((event.x, event.y))
        if task is not None:
            self.post_message(TaskClicked(task))
