"""The run screen: panes with the logs of a run's tasks, and the keys that act on them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.screen import Screen

from launcher.run.snapshot import Snapshot
from launcher.run.states import Outcome, RunPhase
from launcher.session.control import RunControl
from tui.log.log_views import LogViews
from tui.pane_layout import PaneLayout
from tui.screens.run.bindings import RUN_BINDINGS
from tui.screens.run.chrome import Chrome
from tui.screens.run.error_commands import ErrorCommands
from tui.screens.run.frame_clock import FrameClock
from tui.screens.run.interaction import ScreenInteraction
from tui.screens.run.line_commands import LineCommands
from tui.screens.run.pane_area import PaneArea
from tui.screens.run.pane_commands import PaneCommands
from tui.screens.run.row_option_commands import RowOptionCommands
from tui.screens.run.search_commands import SearchCommands
from tui.screens.run.task_commands import TaskCommands
from tui.screens.run.task_monitor import TaskMonitor
from tui.widgets.log_pane import LogPane
from tui.widgets.prompt import Prompt
from tui.widgets.task_clicked import TaskClicked


class RunScreen(Screen[None]):
    """Puts the parts together, shows them what is new, and hands each key to the part that
    answers it."""

    AUTO_FOCUS = ""  # the prompt's input would take the first keys
    BINDINGS: ClassVar[list[BindingType]] = RUN_BINDINGS

    def __init__(self, control: RunControl) -> None:
        super().__init__()
        self.control = control
        self.snapshot = self._latest = control.snapshot()
        self.pane_layout = PaneLayout()
        self.pane_layout.update(self.snapshot)
        self.views = LogViews(control.logs, self.snapshot)
        self.prompt = Prompt()
        self.area = PaneArea(
            self.pane_layout, self.views, self._focus_pane, lambda: self.chrome.show_panes()
        )
        interaction = ScreenInteraction(self, self.prompt, self.area.restore_focus)
        self.monitor = TaskMonitor(control)
        self.search = SearchCommands(self.area, interaction)
        self.errors = ErrorCommands(control, self.area, self.search, interaction)
        self.pane_commands = PaneCommands(self.area, self.search, interaction)
        self.line_commands = LineCommands(lambda: self.area.pane, control.logs, interaction)
        self.task_commands = TaskCommands(control, self.pane_layout, interaction)
        self.row_options = RowOptionCommands(self.area, interaction)
        self.chrome = Chrome(self.snapshot, self.area, self.monitor, self.search.note)
        self.clock = FrameClock(self._frame, self._is_open)
        self._second = 0.0
        self._notes = len(self.snapshot.notes)

    def compose(self) -> ComposeResult:
        """From top to bottom."""
        yield self.chrome.header
        yield self.chrome.strip
        yield self.area
        yield self.chrome.outcome
        yield self.prompt
        yield self.chrome.footer

    def on_mount(self) -> None:
        self.control.subscribe(self._hand_over)
        self.run_worker(self.clock.run(), group="clock")
        if self.snapshot.state is RunPhase.ENDED:
            self.chrome.show_outcome(self.snapshot)
            failure = self.snapshot.first_failure
            if failure and any(task.id == failure.task for task in self.snapshot.tasks):
                self.pane_layout.focus(failure.task)  # what a past run is opened for

    def on_unmount(self) -> None:
        """Ends the threads that read logs."""
        self.search.close()
        self.errors.close()

    # what is new

    def _hand_over(self, snapshot: Snapshot) -> None:
        """Called on another thread: leaves the snapshot for the next frame."""
        self._latest = snapshot

    def _is_open(self) -> bool:
        """A screen that is closed, alone or with the app, loses its widgets before its workers
        are cancelled."""
        return self in self.app.screen_stack and self.app.is_running

    def _frame(self) -> bool:
        """Shows what is new; False when nothing was."""
        now = time.time()
        changed = self._latest is not self.snapshot
        second = now - self._second >= 1.0
        if changed:
            self._apply(self._latest)
        if second:
            self._second = now
            visible = [p.view.task for p in self.area.grid.panes if p.view and p.view.task]
            self.monitor.update(self.snapshot, visible, self.views.options.tasks, now)
        if changed or second:
            self.chrome.show(self.snapshot, now)
        self.area.place_resized()
        if self.clock.resting:
            return changed
        if self.app.screen is self or self.app.screen.is_modal:
            grown = self.area.poll()
            self.search.follow()
            self.errors.follow()
            self.chrome.show_titles()
            if grown:
                changed = True
                self.call_after_refresh(self.clock.rest_after, time.monotonic())
        return changed

    def _apply(self, snapshot: Snapshot) -> None:
        before, self.snapshot = self.snapshot, snapshot
        self.pane_layout.update(snapshot, self.monitor.stalled)
        if self.views.update(snapshot):
            self.area.redraw()
        self.area.place()
        for note in snapshot.notes[self._notes :]:
            self.notify(note, timeout=8)
        self._notes = len(snapshot.notes)
        by_itself = snapshot.outcome not in (Outcome.KILLED, Outcome.TERMINATED)
        if snapshot.state is RunPhase.ENDED and before.state is not RunPhase.ENDED and by_itself:
            self.chrome.show_outcome(snapshot)

    # focus and mouse

    def _focus_pane(self, pane: LogPane) -> None:
        if not self.prompt.display:
            # At once: Widget.focus() waits for its turn, and the next key would act elsewhere.
            self.set_focus(pane, scroll_visible=False)

    @on(TaskClicked)
    def _task_clicked(self, event: TaskClicked) -> None:
        self.area.focus_task(event.task)

    @on(LogPane.TitleDoubleClicked)
    def _title_clicked(self) -> None:
        self.pane_commands.zoom()

    @on(LogPane.LinesSelected)
    def _lines_marked(self) -> None:
        self.line_commands.show_keys()

    # keys

    async def _begin(self, command: Coroutine[Any, Any, None]) -> None:
        """Runs a command that may ask, up to its question: the next key belongs to the answer."""
        self.run_worker(command, group="commands")
        await asyncio.sleep(0)

    def action_next(self, by: int) -> None:
        self.pane_commands.step(by)

    def action_nth(self, number: int) -> None:
        self.pane_commands.focus_nth(number)

    async def action_name(self) -> None:
        await self._begin(self.pane_commands.ask_name())

    def action_go(self, direction: str) -> None:
        self.pane_commands.go(direction)

    def action_zoom(self) -> None:
        self.pane_commands.zoom()

    def action_back(self) -> None:
        """Out of whatever was entered last."""
        for leave in (
            self.line_commands.leave_selection,
            self.search.stop,
            self.pane_commands.leave_zoom,
            self.chrome.hide_outcome,
            self.line_commands.leave_hit,
        ):
            if leave():
                return

    def action_arrange(self) -> None:
        self.pane_commands.next_arrangement()

    def action_merged(self) -> None:
        self.pane_commands.toggle_merged()

    def action_open(self) -> None:
        """Switches the focused task on or off in the merged log; elsewhere opens its page."""
        if not self.pane_commands.toggle_task():
            self.task_commands.open_page()

    def action_pin(self) -> None:
        self.pane_commands.pin()

    def action_page(self, by: int) -> None:
        self.pane_commands.turn_page(by)

    def action_scroll(self, rows: int) -> None:
        self.line_commands.scroll(rows)

    def action_scroll_page(self, pages: float) -> None:
        self.line_commands.scroll_pages(pages)

    def action_first_line(self) -> None:
        self.line_commands.go_home()

    def action_follow(self) -> None:
        self.line_commands.go_end()

    def action_select(self) -> None:
        self.line_commands.toggle_selection()

    def action_copy(self) -> None:
        self.line_commands.copy()

    async def action_save(self) -> None:
        await self._begin(self.line_commands.save(self.snapshot.run_id))

    async def action_search(self) -> None:
        await self._begin(self.search.ask_query())

    async def action_hit(self, by: int) -> None:
        await self._begin(self.search.step(by))

    async def action_filter(self) -> None:
        await self._begin(self.search.ask_filter())

    def action_error(self, by: int) -> None:
        self.errors.step(by)

    def action_first_failure(self) -> None:
        self.errors.first_failure()

    def action_stamps(self) -> None:
        self.row_options.next_stamps(self.snapshot.started)

    def action_wrap(self) -> None:
        self.row_options.toggle_wrap()

    def action_prefix(self) -> None:
        self.row_options.toggle_prefix()

    async def action_restart(self, hard: bool) -> None:
        await self._begin(self.task_commands.restart(hard))

    async def action_signal(self, name: str) -> None:
        await self._begin(self.task_commands.signal(name))
