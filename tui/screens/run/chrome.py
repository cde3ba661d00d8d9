"""Chrome of the run screen: header, status strip, titles of panes, task list and footer."""

from __future__ import annotations

import time
from collections.abc import Callable

from launcher.ids import TaskId
from launcher.run.snapshot import Snapshot
from launcher.run.states import RunPhase
from tui.log.view import LogView
from tui.outcome import queue_status
from tui.pane_layout import Arrangement
from tui.screens.run.pane_area import PaneArea
from tui.screens.run.task_monitor import TaskMonitor
from tui.widgets.fit import Part
from tui.widgets.footer import KeyFooter
from tui.widgets.header import RunHeader
from tui.widgets.outcome_panel import OutcomePanel
from tui.widgets.pane_frame import Title
from tui.widgets.status_strip import StatusStrip
from tui.widgets.titles import task_title


class Chrome:
    """Draws a run around the panes, from the last snapshot that it was given."""

    def __init__(
        self,
        snapshot: Snapshot,
        area: PaneArea,
        monitor: TaskMonitor,
        note: Callable[[LogView], str],
    ) -> None:
        """`note` gives the text at the right end of a pane's title."""
        self.header = RunHeader()
        self.strip = StatusStrip()
        self.outcome = OutcomePanel()
        self.outcome.display = False
        self.footer = KeyFooter()
        self._snapshot = snapshot
        self._area = area
        self._monitor = monitor
        self._note = note
        self._titles: dict[TaskId | None, Title] = {}
        self._queue = ""
        """Text of empty panes."""

    def show(self, snapshot: Snapshot, now: float) -> None:
        """Shows another snapshot, or the same at a later time."""
        self._snapshot = snapshot
        self.header.show(snapshot, len(self._monitor.stalled), self._monitor.alert)
        self._show(now)

    def show_panes(self) -> None:
        """Shows which tasks are in sight now, and which one has the focus."""
        self._show(time.time())
        self.show_titles()

    def show_titles(self) -> None:
        """Shows the titles as they were made last, with what filter and search have found since."""
        for pane in self._area.grid.panes:
            if pane.view and pane.view.task in self._titles:
                pane.set_title(self._titles[pane.view.task], self._note(pane.view))
            pane.set_placeholder(self._queue)

    def hide_outcome(self) -> bool:
        """Hides how the run ended; False when that is not shown."""
        if not self.outcome.display:
            return False
        self.outcome.display = False
        self.show_panes()
        return True

    def _show(self, now: float) -> None:
        self._make_titles(now)
        layout, views = self._area.pane_layout, self._area.views
        self.strip.show(self._snapshot, layout.focused)
        if self._area.task_list.display:
            off = views.off if layout.effective is Arrangement.MERGED else None
            self._area.task_list.show(self._snapshot, layout.focused, now, off)
        self.footer.show(self._hints())

    def _make_titles(self, now: float) -> None:
        """Makes the titles of the panes in sight."""
        self._queue = queue_status(self._snapshot, now)
        if self._queue and self._snapshot.allocation is not None:
            self._queue += f"\n{self._snapshot.allocation.advice}"
        tasks = {task.id: task for task in self._snapshot.tasks}
        self._titles.clear()
        for pane in self._area.grid.panes:
            name = pane.view.task if pane.view else None
            if name is None:
                count = len(self._area.views.merged)
                text = f"all logs, {count} of {len(tasks)} tasks, by time of receipt"
                self._titles[None] = Title((Part(0, text, "name"),))
            elif name in tasks:
                self._titles[name] = task_title(
                    tasks[name],
                    now,
                    self._monitor.sparklines.get(name, ""),
                    self._monitor.stalled.get(name),
                    name in self._area.pane_layout.pinned,
                    self._snapshot.total_steps or tasks[name].metrics.get("total"),
                )

    def _hints(self) -> list[tuple[str, str]]:
        """The commands of the footer, the most important first."""
        layout = self._area.pane_layout
        ended = self._snapshot.state is RunPhase.ENDED
        hints = [("kill_all", "receipt" if ended else "kill all"), ("leave", "leave")]
        hints += [("help", "help")]
        if self.outcome.display:
            hints += [("back", "hide summary")]
        if layout.effective is Arrangement.MERGED:
            hints += [("task.open", "task on/off")]
        hints += [("pane.next", "next"), ("zoom", "zoom"), ("layout.next", "layout")]
        hints += [("search", "search")]
        pages = len(layout.pages())
        if layout.effective is Arrangement.GRID and pages > 1:
            hints += [("page.previous page.next", f"page {layout.page + 1}/{pages}")]
        hints += [("filter", "filter"), ("error.next", "errors"), ("scroll.follow", "follow")]
        hints += [("layout.merged", "merged"), ("metrics", "metrics"), ("hosts", "hosts")]
        hints += [("log.copy", "copy"), ("pane.name", "go to")]
        return [*hints, ("log.fold", "unfold" if self._area.views.options.fold else "fold")]
