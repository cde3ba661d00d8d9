"""Table of all tasks' figures at a moment; only the rows in sight are made."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.cells import cell_len
from rich.text import Text
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from launcher.run.snapshot import TaskView
from tui.cells import cut

_GAP = 3
_FIGURE = 9
"""Cells of a step, a loss or a rate; larger ones take more."""


class MetricTable(ScrollView):
    """A title, which does not scroll, and a row a task: its name, and its figures."""

    def __init__(self, id: str) -> None:  # noqa: A002 Textual's name
        super().__init__(id=id)
        self._tasks: Sequence[TaskView] = ()
        self._titles: Sequence[str] = ()
        self._row: Callable[[TaskView], tuple[Text, Sequence[str]]] | None = None
        self._widest = 0

    def show(
        self,
        tasks: Sequence[TaskView],
        titles: Sequence[str],
        row: Callable[[TaskView], tuple[Text, Sequence[str]]],
    ) -> None:
        """Shows tasks under titles; `row` returns the name and the figures of one."""
        self._tasks, self._titles, self._row = tasks, titles, row
        marker = 2 if self.app.no_color else 0
        self._widest = max([len(titles[0]), *(cell_len(str(task.id)) + marker for task in tasks)])
        self.virtual_size = Size(0, len(tasks) + 1)
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """Row of the screen: the titles, or a task's."""
        width, at = self.size.width, y - 1 + self.scroll_offset.y
        style = self.rich_style
        if self._row is None or at >= len(self._tasks):
            return Strip.blank(width, style)
        if y == 0:
            line = self._line(Text(self._titles[0]), self._titles[1:])
            line.stylize("dim")
        else:
            line = self._line(*self._row(self._tasks[at]))
        return Strip(line.render(self.app.console)).adjust_cell_length(width).apply_style(style)

    def _line(self, name: Text, figures: Sequence[str]) -> Text:
        line = Text(no_wrap=True, end="").append_text(name)
        line.append(" " * (self._widest - name.cell_len))
        for figure in figures:
            line.append(" " * _GAP)
            line.append(cut(figure, max(_FIGURE, cell_len(figure))))
        return line
