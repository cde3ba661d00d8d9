"""Metrics screen: loss and steps per second of every task over time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content

from launcher.quantities import thousands
from launcher.run.snapshot import TaskView
from launcher.session.control import RunControl
from tui.curves import curve, rates, smoothed, value_at
from tui.format import clock, figure
from tui.screens.page import fit
from tui.screens.run_page import RunPage
from tui.tables import Cells, TableRow, right
from tui.widgets.footer import KeyFooter, stacks_hint
from tui.widgets.header import RunHeader
from tui.widgets.plot import Drawn, Plot, marker, style
from tui.widgets.table import Table

MAX_CURVES = 12
"""Curves that a terminal can still tell apart; the table below has all tasks."""
SMOOTHING = (0.0, 0.6, 0.9, 0.97)
CURSOR_STEP = 0.02
BESIDE_FROM = 160
"""Cells of width from which on the plots stand beside each other."""
_HINTS = (
    ("metrics.back", "back"),
    ("metrics.smoother metrics.rougher", "smoothing"),
    ("metrics.earlier metrics.later", "read values"),
    ("hosts", "hosts"),
    ("help", "help"),
)
_READ = (
    "Figures are read from lines such as 'step 20 loss 0.31' and from the bars of Keras and tqdm; "
    "from others by [metrics] pattern of the cluster file."
)
_TITLES: Sequence[str | Text] = ["task", right("step"), right("loss"), right("steps/s"), "others"]
_ORDERS: Sequence[Callable[[TaskView], Any]] = (
    lambda task: task.id,
    lambda task: task.step or 0,
    lambda task: task.loss or 0.0,
    lambda task: task.rate or 0.0,
)


class MetricsScreen(RunPage):
    """Drawn anew once a second."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,M", "app.pop_screen", "Back to the logs", id="metrics.back"),
        Binding("plus", "smooth(1)", "More smoothing", id="metrics.smoother"),
        Binding("minus", "smooth(-1)", "Less smoothing", id="metrics.rougher"),
        Binding("left", "cursor(-1)", "Values earlier", id="metrics.earlier", priority=True),
        Binding("right", "cursor(1)", "Values later", id="metrics.later", priority=True),
    ]

    def __init__(self, control: RunControl, alert: Callable[[], str] = str) -> None:
        super().__init__(control, alert)
        self._smoothing = 1
        self._cursor: float | None = None
        """Moment at which values are read, as a share of the time; None is now."""

    def compose(self) -> ComposeResult:
        yield RunHeader()
        with Vertical(id="plots"):
            yield Plot("loss")
            yield Plot("rate")
        yield Table("values", "Figures", fits=True)
        yield KeyFooter()

    def on_mount(self) -> None:
        fit(self)
        self.set_focus(self.query_one(Table))
        self._arrange()
        self._draw()
        self.set_interval(1.0, self._draw)

    def on_resize(self) -> None:
        self._arrange()
        self.call_after_refresh(self._draw)  # the table shows as many rows as have room

    def _arrange(self) -> None:
        self.query_one("#plots").set_class(self.app.size.width >= BESIDE_FROM, "-beside")

    def action_smooth(self, by: int) -> None:
        """Changes the weight of the moving average."""
        self._smoothing = min(max(0, self._smoothing + by), len(SMOOTHING) - 1)
        self._draw()

    def action_cursor(self, by: int) -> None:
        """Reads values at another moment."""
        at = (1.0 if self._cursor is None else self._cursor) + by * CURSOR_STEP
        self._cursor = None if at >= 1.0 else max(0.0, at)
        self._draw()

    @on(Table.Ordered)
    def _draw(self) -> None:
        if self.app.screen is not self:
            return
        snapshot = self._control.snapshot()
        self.show_run([*_HINTS, *stacks_hint(snapshot.state)])
        series = {task.id: self._control.series(task.id).points for task in snapshot.tasks}
        tasks = [task for task in snapshot.tasks if series[task.id].times]
        numbers = {task.id: number for number, task in enumerate(snapshot.tasks)}
        started = snapshot.started
        end = max((series[task.id].times[-1] for task in tasks), default=time.time()) - started
        begin = min((series[task.id].times[0] for task in tasks), default=started) - started
        moment = end * self._cursor if self._cursor is not None else None
        drawn = tasks[:MAX_CURVES]
        shown_points = [series[task.id] for task in drawn]
        losses = [curve(points.times, points.losses, started) for points in shown_points]
        speeds = [rates(points, started) for points in shown_points]
        weight = SMOOTHING[self._smoothing]
        shown = f", {MAX_CURVES} of {len(tasks)} tasks" if len(tasks) > MAX_CURVES else ""
        self.query_one("#loss").border_title = f"Loss, smoothing {weight:g}{shown}"
        self.query_one("#rate").border_title = f"Global steps a second{shown}"

        def label(task: TaskView) -> str:
            """Its name, behind the marker of its curve where there are no colours."""
            sign = f"{marker(numbers[task.id])} " if self.app.no_color else ""
            return f"{sign}{task.id}"

        for name, curves, what in (("#loss", losses, "a loss"), ("#rate", speeds, "two steps")):
            none = "no task has printed" if snapshot.ended is None else "no task printed"
            lines = [
                Drawn(numbers[task.id], smoothed(of, weight), label(task))
                for task, of in zip(drawn, curves, strict=True)
            ]
            self.query_one(name, Plot).show(lines, (begin, end), moment, f"{none} {what}. {_READ}")
        at = moment if moment is not None else end

        def cells(task: TaskView) -> Cells:
            points = series[task.id]
            of = [curve(points.times, values, started) for values in (points.steps, points.losses)]
            values = [value_at(one, at) for one in (*of, rates(points, started))]
            *figures, others = _words(task, values)
            colour = "" if self.app.no_color else style(numbers[task.id])
            name = Text(label(task), f"bold {colour}")
            return [name, *map(right, figures), Text(others, "dim")]

        table = self.query_one(Table)
        table.border_title = Content(f"Figures at {clock(at)}")
        rows = [
            TableRow(str(task.id), partial(cells, task)) for task in table.ordered(tasks, _ORDERS)
        ]
        table.show(_TITLES, rows)


def _words(task: TaskView, values: list[float | None]) -> list[str]:
    """Step, loss and rate of a task at the moment, then the other metrics of its last line."""
    words = ["–" if value is None else figure(value) for value in values]
    if values[0] is not None:
        words[0] = thousands(values[0])
    others = sorted(task.metrics.keys() - {"step", "loss", "total"})
    return [*words, "  ".join(f"{name} {figure(task.metrics[name])}" for name in others)]
