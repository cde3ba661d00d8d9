"""Commands about panes: focus, layouts, pages, and how their lines are shown."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from launcher.ids import TaskId
from tui.log.rows import Stamps
from tui.pane_layout import Arrangement
from tui.screens.run.interaction import Interaction
from tui.screens.run.pane_area import PaneArea
from tui.screens.run.search_commands import SearchCommands

_DIRECTIONS = {"left": (-1, 0), "right": (1, 0), "up": (0, -1), "down": (0, 1)}


class PaneCommands:
    """Changes the layout, and the options of all rows."""

    def __init__(self, area: PaneArea, search: SearchCommands, interaction: Interaction) -> None:
        self._area = area
        self._layout = area.pane_layout
        self._search = search
        self._interaction = interaction

    # focus

    def step(self, by: int) -> None:
        """The next or previous task, over pages."""
        self._layout.step(by)
        self._area.refocus()

    def focus_nth(self, number: int) -> None:
        """The nth pane of the page."""
        places = self._layout.place().panes
        if number <= len(places):
            self._area.focus_task(places[number - 1][0])

    async def ask_name(self) -> None:
        """Asks for a task's name and focuses it."""
        text = await self._interaction.ask("task (w1, worker:1, a host)", "")
        if not text:
            return
        task = self._layout.named(text)
        if task is None:
            self._interaction.notify(f"no task is called {text!r}", severity="warning", timeout=3)
        self._area.focus_task(task)

    def go(self, direction: str) -> None:
        """The nearest pane in a direction; in a list, the task above or below."""
        layout = self._layout
        if layout.effective in (Arrangement.LIST, Arrangement.MERGED) or layout.zoomed:
            self.step(1 if direction in ("down", "right") else -1)
            return
        here = self._area.pane
        if here is None:
            return
        dx, dy = _DIRECTIONS[direction]
        x, y = here.region.center
        best: tuple[float, TaskId | None] | None = None
        for pane in self._area.grid.panes:
            px, py = pane.region.center
            ahead = (px - x) * dx + (py - y) * dy
            aside = abs((px - x) * dy) + abs((py - y) * dx)
            if pane is here or pane.view is None or ahead <= 0:
                continue
            distance = ahead + 3 * aside
            if best is None or distance < best[0]:
                best = (distance, pane.view.task)
        if best:
            self._area.focus_task(best[1])

    # layout

    def zoom(self) -> None:
        """The focused pane alone, and back."""
        self._layout.zoomed = not self._layout.zoomed
        self._area.refocus()

    def leave_zoom(self) -> bool:
        """Shows all panes again; False when no pane is zoomed."""
        if not self._layout.zoomed:
            return False
        self.zoom()
        return True

    def next_arrangement(self) -> None:
        """Switches to the next arrangement of the panes, and from the last to the first."""
        order = list(Arrangement)
        self._arrange(order[(order.index(self._layout.effective) + 1) % len(order)])

    def toggle_merged(self) -> None:
        """The merged log, and back to the panes."""
        merged = self._layout.effective is Arrangement.MERGED
        self._arrange(Arrangement.GRID if merged else Arrangement.MERGED)

    def toggle_task(self) -> bool:
        """Switches the focused task on or off in the merged log; False in other layouts."""
        if self._layout.effective is not Arrangement.MERGED:
            return False
        if self._layout.focused:
            self._search.stop()
            self._area.views.switch(self._layout.focused)
            if self._area.pane:
                self._area.pane.redraw()
            self._area.refocus()
        return True

    def turn_page(self, by: int) -> None:
        self._layout.turn(by)
        self._area.refocus()

    def pin(self) -> None:
        """Pins the focused task to the first page of a large run, or unpins it."""
        self._layout.toggle_pin()
        self._area.refocus()

    def _arrange(self, arrangement: Arrangement) -> None:
        self._layout.zoomed = False
        self._layout.arrangement = arrangement
        self._area.refocus()
        self._interaction.notify(f"layout: {arrangement}", timeout=1.5)

    # lines, on the screen only

    def next_stamps(self, started: float) -> None:
        """Times before lines: none, time of day, since the start."""
        order = list(Stamps)
        stamps = order[(order.index(self._area.views.options.stamps) + 1) % len(order)]
        self._set_options(f"timestamps: {stamps}", stamps=stamps, started=started)

    def toggle_wrap(self) -> None:
        """Wraps long lines, or cuts them at the pane's edge."""
        wrap = not self._area.views.options.wrap
        self._set_options(f"wrap: {'on' if wrap else 'off'}", wrap=wrap)

    def toggle_prefix(self) -> None:
        """Hides TensorFlow's prefix of date and source file, or shows it."""
        hide = not self._area.views.options.hide_prefix
        text = f"TensorFlow's log prefix: {'hidden' if hide else 'shown'}"
        self._set_options(text, hide_prefix=hide)

    def toggle_fold(self) -> None:
        """Folds remarks of TensorFlow and its like into one row, or shows them."""
        fold = not self._area.views.options.fold
        self._set_options(f"TensorFlow's remarks: {'folded' if fold else 'shown'}", fold=fold)

    def _set_options(self, message: str, **changes: Any) -> None:
        self._area.set_options(replace(self._area.views.options, **changes))
        self._interaction.notify(message, timeout=2)
