"""Metrics screen: loss and steps per second of every task over time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, ClassVar, cast

from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import Screen
from textual.widgets import Label, Static

from launcher.ids import TaskId
from launcher.quantities import thousands
from launcher.run.snapshot import TaskView
from launcher.session.control import RunControl
from launcher.store.metrics import Point
from tui.curves import Curve, curve, rates, resampled, smoothed, value_at
from tui.format import clock, figure
from tui.log.rows import TASK_COLOURS
from tui.widgets.footer import KeyFooter
from tui.widgets.header import RunHeader

if TYPE_CHECKING:
    from textual_plotext import PlotextPlot

MAX_CURVES = 12
"""Curves that a terminal can still tell apart; the table below has all tasks."""
SMOOTHING = (0.0, 0.6, 0.9, 0.97)
CURSOR_STEP = 0.02


class MetricsScreen(Screen[None]):
    """Drawn anew once a second: a plot costs more than all panes together."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,M", "app.pop_screen", "Back to the logs", id="metrics.back"),
        Binding("plus", "smooth(1)", "More smoothing", id="metrics.smoother"),
        Binding("minus", "smooth(-1)", "Less smoothing", id="metrics.rougher"),
        Binding("left", "cursor(-1)", "Values earlier", id="metrics.earlier"),
        Binding("right", "cursor(1)", "Values later", id="metrics.later"),
    ]

    def __init__(self, control: RunControl) -> None:
        super().__init__()
        self._control = control
        self._smoothing = 1
        self._cursor: float | None = None
        """Moment at which values are read, as a share of the time; None is now."""

    def compose(self) -> ComposeResult:
        from textual_plotext import PlotextPlot  # slow to import, and most runs go without

        yield RunHeader()
        with Vertical(classes="body"):
            yield Label(id="loss-title", markup=False)
            yield PlotextPlot(id="loss")
            yield Label(id="rate-title", markup=False)
            yield PlotextPlot(id="rate")
            with VerticalScroll(id="values"):
                yield Static(markup=False)
        hints = [("kill_all", "kill all"), ("metrics.back", "back")]
        hints += [("metrics.smoother metrics.rougher", "smoothing")]
        hints += [("metrics.earlier metrics.later", "read values")]
        yield KeyFooter([*hints, ("hosts", "hosts"), ("help", "help")])

    def on_mount(self) -> None:
        self.set_interval(1.0, self._draw)

    def on_resize(self) -> None:
        self.call_after_refresh(self._draw)  # curves are resampled to the width of their plots

    def action_smooth(self, by: int) -> None:
        """Changes the weight of the moving average."""
        self._smoothing = min(max(0, self._smoothing + by), len(SMOOTHING) - 1)
        self._draw()

    def action_cursor(self, by: int) -> None:
        """Reads values at another moment."""
        at = (1.0 if self._cursor is None else self._cursor) + by * CURSOR_STEP
        self._cursor = None if at >= 1.0 else max(0.0, at)
        self._draw()

    def _draw(self) -> None:
        if self.app.screen is not self:
            return
        snapshot = self._control.snapshot()
        self.query_one(RunHeader).show(snapshot)
        points = {task.id: list(self._control.series(task.id).points) for task in snapshot.tasks}
        tasks = [task for task in snapshot.tasks if points[task.id]]
        started = snapshot.started
        end = max((points[task.id][-1].time for task in tasks), default=time.time()) - started
        moment = end * self._cursor if self._cursor is not None else None
        losses = [curve(points[task.id], "loss", started) for task in tasks]
        speeds = [rates(points[task.id], started) for task in tasks]
        weight = SMOOTHING[self._smoothing]
        shown = f", {MAX_CURVES} of {len(tasks)} tasks" if len(tasks) > MAX_CURVES else ""
        self.query_one("#loss-title", Label).update(f"loss  smoothing {weight:g}{shown}")
        self.query_one("#rate-title", Label).update(f"global steps a second{shown}")
        self._plot("#loss", tasks, losses, moment)
        self._plot("#rate", tasks, speeds, moment)
        at = moment if moment is not None else end
        table = values_table(tasks, points, losses, speeds, at, started)
        self.query_one("#values Static", Static).update(table)

    def _plot(
        self, name: str, tasks: list[TaskView], curves: list[Curve], moment: float | None
    ) -> None:
        widget = cast("PlotextPlot", self.query_one(name))
        plot = widget.plt
        plot.clear_data()
        plot.xlabel("seconds")
        for i, (task, of) in enumerate(zip(tasks, curves, strict=True)):
            if i < MAX_CURVES and of[0]:
                drawn = smoothed(of, SMOOTHING[self._smoothing])
                xs, ys = resampled(drawn, max(10, widget.size.width))
                ys = [float(f"{y:.4g}") for y in ys]  # an axis of 17 digits would take its room
                colour = TASK_COLOURS[i % len(TASK_COLOURS)]
                plot.plot(xs, ys, label=str(task.id), marker="braille", color=colour)
        if moment is not None:
            plot.vline(moment, color="gray")
        widget.refresh()


def values_table(
    tasks: list[TaskView],
    points: dict[TaskId, list[Point]],
    losses: list[Curve],
    speeds: list[Curve],
    at: float,
    started: float,
) -> Table:
    """A row a task: what its metrics were at a moment, `at` seconds after the start."""
    table = Table.grid(padding=(0, 3, 0, 0))
    table.add_row(*(Text(word, "dim") for word in (f"at {clock(at)}", "step", "loss", "steps/s")))
    for i, task in enumerate(tasks):
        steps = curve(points[task.id], "step", started)
        cells = [value_at(steps, at), value_at(losses[i], at), value_at(speeds[i], at)]
        words = ["–" if value is None else figure(value) for value in cells]
        if cells[0] is not None:
            words[0] = thousands(cells[0])
        others = [
            f"{name} {figure(task.metrics[name])}"
            for name in sorted(task.metrics.keys() - {"step", "loss", "total"})
        ]
        name = Text(str(task.id), f"bold color({TASK_COLOURS[i % len(TASK_COLOURS)]})")
        table.add_row(name, *words, "  ".join(others))
    return table
