"""Metrics screen: loss and steps per second of every task over time or steps; of many tasks their
median and band."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, NamedTuple

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import DataTable

from launcher.history.control import RunControl
from launcher.ids import TaskId
from launcher.quantities import clock, counted, thousands
from launcher.run.snapshot import Snapshot, TaskView
from launcher.store.metrics import PointColumns
from tui.curves import Band, Curve, band, by_step, curve, rates, smoothed, value_at
from tui.format import figure
from tui.screens.page import entitle, fit
from tui.screens.run_page import RunPage
from tui.tables import Cells, TableRow, right
from tui.widgets.footer import KeyFooter, stacks_hint
from tui.widgets.header import RunHeader
from tui.widgets.plot import MEDIAN, Drawn, Plot, Scene, marker, style
from tui.widgets.table import Table

MAX_CURVES = 12
"""Curves that a terminal can still tell apart; of more tasks the band is drawn, and the curves of
those that a person chooses."""
_BAND_TASKS, _BAND_POINTS, _BAND_PLACES = 2048, 32_768, 16_384
"""Tasks, points of all of them and values at all places from which a band is made, each second."""
SMOOTHING = (0.0, 0.6, 0.9, 0.97)
CURSOR_STEP = 0.02
BESIDE_FROM = 160
"""Cells of width from which on the plots stand beside each other."""
_HINTS = (
    ("metrics.back", "back"),
    ("metrics.draw", "draw task"),
    ("metrics.axis", "time or step"),
    ("metrics.earlier metrics.later", "values"),
    ("metrics.smoother metrics.rougher", "smoothing"),
    ("hosts", "hosts"),
    ("help", "help"),
)
_READ = (
    "Metrics are read from lines such as 'step 20 loss 0.31' and from the bars of Keras and tqdm. "
    "For other lines, write [metrics] pattern in the cluster file."
)
_TITLES: Sequence[str | Text] = ["task", right("step"), right("loss"), right("steps/s"), "others"]
_ORDERS: Sequence[Callable[[TaskView], Any]] = (
    lambda task: task.id,
    lambda task: task.step,
    lambda task: task.loss,
    lambda task: task.rate,
)


class MetricsScreen(RunPage):
    """Drawn anew once a second."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,M", "app.pop_screen", "Back to the logs", id="metrics.back"),
        Binding("plus", "smooth(1)", "More smoothing", id="metrics.smoother"),
        Binding("minus", "smooth(-1)", "Less smoothing", id="metrics.rougher"),
        Binding(
            "left",
            "cursor(-1)",
            "Move the cursor back in time",
            id="metrics.earlier",
            priority=True,
        ),
        Binding("right", "cursor(1)", "Move the cursor forward", id="metrics.later", priority=True),
        Binding("t", "axis", "By time, or by step", id="metrics.axis"),
        Binding(
            "o",
            "draw",
            "Draw the task, or not",
            id="metrics.draw",
            tooltip="The one under the cursor; of many tasks only median and range are drawn",
        ),
    ]

    def __init__(self, control: RunControl, alert: Callable[[], str] = str) -> None:
        super().__init__(control, alert)
        self._smoothing = 1
        self._cursor: float | None = None
        """Place at which values are read, as a share of the time or steps; None is the end."""
        self._by_step = False
        self._changed: set[TaskId] = set()
        """Tasks that a person has taken in where the others are not drawn, or out."""
        self._bands: tuple[object, Bands] = (None, NO_BANDS)
        """What the last bands were made of, and the bands."""

    def compose(self) -> ComposeResult:
        yield RunHeader()
        with Vertical(id="plots"):
            yield Plot("loss")
            yield Plot("rate")
        yield Table("values", "Values", fits=True)
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
        """Reads values at another place."""
        at = (1.0 if self._cursor is None else self._cursor) + by * CURSOR_STEP
        self._cursor = None if at >= 1.0 else max(0.0, at)
        self._draw()

    def action_axis(self) -> None:
        """Draws over global steps, or over time again."""
        self._by_step = not self._by_step
        self._draw()

    @on(DataTable.RowSelected)
    def action_draw(self) -> None:
        """Takes the task under the cursor in, or out."""
        key = self.query_one(Table).key
        if key is not None:
            self._changed ^= {TaskId.parse(key)}
            self._draw()

    @on(Table.Ordered)
    def _draw(self) -> None:
        if self.app.screen is not self:
            return
        snapshot = self._control.snapshot()
        self.show_run([*_HINTS, *stacks_hint(snapshot.state)])
        points = {task.id: self._control.series(task.id).points for task in snapshot.tasks}
        tasks = [task for task in snapshot.tasks if points[task.id].times]
        many = len(tasks) > MAX_CURVES
        drawn = [task for task in tasks if (task.id in self._changed) is many]
        curves = {task.id: self._curves(points[task.id], snapshot) for task in drawn[:MAX_CURVES]}
        bands = self._banded(tasks, points, snapshot) if many else NO_BANDS
        begin, end = self._span(tasks, points, snapshot)
        at = begin + (end - begin) * (1.0 if self._cursor is None else self._cursor)
        moment = None if self._cursor is None else at
        numbers = {task.id: number for number, task in enumerate(snapshot.tasks)}
        about = self._about(tasks, len(curves), many=many)
        loss = f"Loss, smoothing {SMOOTHING[self._smoothing]:g}{about}"
        none = "no task has printed" if snapshot.ended is None else "no task printed"
        scene = Scene(
            span=(begin, end),
            moment=moment,
            failed=self._failed(points, snapshot),
            steps=self._by_step,
        )
        titles = (("loss", loss, "a loss"), ("rate", f"Global steps a second{about}", "two steps"))
        for number, (name, title, what) in enumerate(titles):
            of = bands[number]
            lines = [
                Drawn(numbers[task], found[number + 1], self._label(task, numbers))
                for task, found in curves.items()
            ]
            lines += [Drawn(MEDIAN, (of.xs, of.middles), "median")] if of.xs else []
            shown = scene._replace(curves=lines, band=of if of.xs else None)
            self.query_one(f"#{name}", Plot).show(shown, title, f"{none} {what}. {_READ}")

        def cells(task: TaskView) -> Cells:
            of = self._curves(points[task.id], snapshot, smooth=False)
            values = [value_at(one, at) for one in of]
            *figures, others = _words(task, values)
            shown = task.id in curves
            colour = style(numbers[task.id]) if shown and not self.app.no_color else ""
            mark = "" if len(curves) == len(tasks) else "● " if shown else "○ "
            name = Text(f"{mark}{self._label(task.id, numbers)}", f"bold {colour}")
            return [name, *map(right, figures), Text(others, "dim")]

        table = self.query_one(Table)
        where = f"step {thousands(at)}" if self._by_step else clock(at)
        entitle(table, f"Values at {where}")
        rows = [
            TableRow(str(task.id), partial(cells, task)) for task in table.ordered(tasks, _ORDERS)
        ]
        table.show(_TITLES, rows)

    def _label(self, task: TaskId, numbers: Mapping[TaskId, int]) -> str:
        """Its name, behind the marker of its curve where there are no colours."""
        return f"{marker(numbers[task])} {task}" if self.app.no_color else f"{task}"

    def _about(self, tasks: Sequence[TaskView], drawn: int, *, many: bool) -> str:
        """What is drawn, where that is not the curve of each task."""
        if many:
            chosen = f", {drawn} drawn" if drawn else ""
            return f", median and range of {counted(len(tasks), 'task')}{chosen}"
        return f", {drawn} of {counted(len(tasks), 'task')}" if drawn < len(tasks) else ""

    def _curves(self, points: PointColumns, snapshot: Snapshot, *, smooth: bool = True) -> Curves:
        """The curves of a task's points, over time or steps."""
        started = snapshot.started
        steps = curve(points.times, points.steps, started)
        found = Curves(steps, curve(points.times, points.losses, started), rates(points, started))
        if self._by_step:
            found = Curves(*(by_step(of, steps) for of in found))
        weight = SMOOTHING[self._smoothing] if smooth else 0.0
        return found._replace(losses=smoothed(found.losses, weight))

    def _banded(
        self, tasks: Sequence[TaskView], points: Mapping[TaskId, PointColumns], snapshot: Snapshot
    ) -> Bands:
        """The bands of many tasks; made anew only when there are other points."""
        few = tasks[:: -(-len(tasks) // _BAND_TASKS)]
        made_of = (
            (self._by_step, self._smoothing, snapshot.started),
            [(task.id, len(points[task.id].times), points[task.id].times[-1]) for task in few],
        )
        if made_of != self._bands[0]:
            every = -(-sum(len(points[task.id].times) for task in few) // _BAND_POINTS)
            curves = [self._curves(points[task.id].every(every), snapshot) for task in few]
            places = max(16, min(self.size.width, _BAND_PLACES // len(few)))
            losses, speeds = ([of[number] for of in curves] for number in (1, 2))
            self._bands = made_of, Bands(band(losses, places), band(speeds, places))
        return self._bands[1]

    def _span(
        self, tasks: Sequence[TaskView], points: Mapping[TaskId, PointColumns], snapshot: Snapshot
    ) -> tuple[float, float]:
        """The first and the last place that is drawn."""
        if self._by_step:
            first = (points[task.id].steps[0] for task in tasks)
            last = float(max((task.step or 0 for task in tasks), default=0))
            return min((step for step in first if step <= last), default=0.0), last
        times = [points[task.id].times for task in tasks]
        begin = min((each[0] for each in times), default=snapshot.started)
        end = max((each[-1] for each in times), default=time.time())
        return begin - snapshot.started, end - snapshot.started

    def _failed(self, points: Mapping[TaskId, PointColumns], snapshot: Snapshot) -> float | None:
        """Where the first task failed; None where none did, or had made no step."""
        failure = snapshot.first_failure
        if failure is None:
            return None
        at = failure.time - snapshot.started
        if not self._by_step:
            return at
        of = points.get(failure.task, PointColumns())
        return value_at(curve(of.times, of.steps, snapshot.started), at)


class Curves(NamedTuple):
    """The curves of a task."""

    steps: Curve
    losses: Curve
    rates: Curve


class Bands(NamedTuple):
    """The bands of all tasks."""

    losses: Band
    rates: Band


NO_BANDS = Bands(Band([], [], [], []), Band([], [], [], []))


def _words(task: TaskView, values: list[float | None]) -> list[str]:
    """Step, loss and rate of a task at the moment, then the other metrics of its last line."""
    words = ["–" if value is None else figure(value) for value in values]
    if values[0] is not None:
        words[0] = thousands(values[0])
    others = sorted(task.metrics.keys() - {"step", "loss", "total"})
    return [*words, "  ".join(f"{name} {figure(task.metrics[name])}" for name in others)]
