"""The run screen: panes with the logs of a run's tasks, and the keys that act on them."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine
from typing import Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.screen import Screen

from launcher.quantities import counted
from launcher.run.snapshot import Snapshot, new_notes
from launcher.run.states import Outcome, RunPhase
from launcher.session.control import RunControl
from tui.log.log_views import LogViews
from tui.pane_layout import PaneLayout
from tui.screens.run.bindings import RUN_BINDINGS
from tui.screens.run.chrome import Chrome
from tui.screens.run.error_commands import ErrorCommands
from tui.screens.run.frame_clock import FrameClock
from tui.screens.run.interaction import Interaction
from tui.screens.run.line_commands import LineCommands
from tui.screens.run.pane_area import PaneArea
from tui.screens.run.pane_commands import PaneCommands
from tui.screens.run.search_commands import SearchCommands
from tui.screens.run.task_commands import TaskCommands
from tui.screens.run.task_monitor import TaskMonitor
from tui.widgets.log_pane import LogPane
from tui.widgets.prompt import Prompt
from tui.widgets.task_list import TaskClicked

_MOST_NOTES = 4
_NOTE_SECONDS = 8


class RunScreen(Screen[None]):
    """Composes the parts, and shows them what is new."""

    BLANK = True  # as `PaneGrid`
    AUTO_FOCUS = ""  # the prompt's input would take the first keys
    BINDINGS: ClassVar[list[BindingType]] = RUN_BINDINGS

    def __init__(self, control: RunControl) -> None:
        super().__init__()
        self.control = control
        self.snapshot = control.snapshot()
        self.pane_layout = PaneLayout()
        self.pane_layout.update(self.snapshot)
        self.views = LogViews(control.logs, self.snapshot)
        self.prompt = Prompt()
        self.area = PaneArea(
            self.pane_layout,
            self.views,
            self._focus_pane,
            changed=lambda: self.chrome.show_panes(),
        )
        interaction = Interaction(self, self.prompt, self.area.restore_focus)
        self.monitor = TaskMonitor(control)
        self.search = SearchCommands(self.area, interaction)
        self.errors = ErrorCommands(control, self.area, self.search, interaction)
        self.pane_commands = PaneCommands(self.area, self.search, interaction)
        self.line_commands = LineCommands(lambda: self.area.pane, control.logs, interaction)
        self.task_commands = TaskCommands(control, self.pane_layout, interaction)
        self.chrome = Chrome(self.snapshot, self.area, self.monitor, self.search.note)
        self.clock = FrameClock(self._frame, self._is_open)
        self._second = 0.0
        self._notes: list[str] = []
        """Those that wait until there is room for them."""
        self._noted: list[float] = []
        """When notes were shown that are still to be seen."""
        self._bind_actions()

    def compose(self) -> ComposeResult:
        yield self.chrome.header
        yield self.chrome.strip
        yield self.area
        yield self.chrome.outcome
        yield self.prompt
        yield self.chrome.footer

    def on_mount(self) -> None:
        self.run_worker(self.clock.run(), group="clock")
        if self.snapshot.state is RunPhase.ENDED:
            self._show_outcome()

    def on_unmount(self) -> None:
        """Ends the threads that read logs."""
        self.search.close()
        self.errors.close()

    # what is new

    def _is_open(self) -> bool:
        """A screen that is closed, alone or with the app, loses its widgets before its workers
        are cancelled."""
        return self in self.app.screen_stack and self.app.is_running

    def _frame(self) -> bool:
        """Shows what is new, all in one painting; False when nothing was."""
        self.area.place_resized()
        if self.clock.resting:
            return True
        now = time.time()
        latest = self.control.snapshot()
        changed = latest is not self.snapshot
        second = now - self._second >= 1.0
        if changed:
            self._apply(latest)
        if second:
            self._second = now
            self._show_notes(time.monotonic())
            visible = [p.view.task for p in self.area.grid.panes if p.view and p.view.task]
            self.monitor.update(self.snapshot, visible, self.views.options.tasks, now)
        if changed or second:
            self.chrome.show(self.snapshot, now)
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
        self._notes += new_notes(before.notes, snapshot.notes)
        self._show_notes(time.monotonic())
        by_itself = snapshot.outcome not in (Outcome.KILLED, Outcome.TERMINATED)
        if snapshot.state is RunPhase.ENDED and before.state is not RunPhase.ENDED and by_itself:
            self._show_outcome()
            self.area.refocus()

    def _show_outcome(self) -> None:
        """Shows how the run ended, and the task that failed first: the summary may leave room for
        one pane alone."""
        self.chrome.outcome.show(self.snapshot)
        failure = self.snapshot.first_failure
        if failure and any(task.id == failure.task for task in self.snapshot.tasks):
            self.pane_layout.focus(failure.task)

    def _show_notes(self, now: float) -> None:
        """Shows some notes and the number of the others, when there is room: those of a hundred
        lost hosts would cover the logs."""
        self._noted = [when for when in self._noted if now - when < _NOTE_SECONDS]
        room = _MOST_NOTES - len(self._noted)
        if room <= 0 or not self._notes:
            return
        shown, others = self._notes[:room], len(self._notes) - room
        self._notes.clear()
        if others > 0:
            shown.append(f"and {counted(others, 'other note')}")
        for note in shown:
            self.notify(note, timeout=_NOTE_SECONDS)
            self._noted.append(now)

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

    def _asking(self, command: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
        """Returns an action that runs a command which may ask; the next key waits for its first
        step (`tui.repairs`), and belongs to the question."""

        def begin(*arguments: Any) -> None:
            self.run_worker(command(*arguments), group="commands")

        return begin

    def _bind_actions(self) -> None:
        """Hands each key to the part that answers it."""
        panes, lines, search, tasks = (
            self.pane_commands,
            self.line_commands,
            self.search,
            self.task_commands,
        )
        self.action_next = panes.step
        self.action_nth = panes.focus_nth
        self.action_name = self._asking(panes.ask_name)
        self.action_go = panes.go
        self.action_zoom = panes.zoom
        self.action_arrange = panes.next_arrangement
        self.action_merged = panes.toggle_merged
        self.action_pin = panes.pin
        self.action_page = panes.turn_page
        self.action_scroll = lines.scroll
        self.action_scroll_page = lines.scroll_pages
        self.action_first_line = lines.go_home
        self.action_follow = lines.go_end
        self.action_select = lines.toggle_selection
        self.action_copy = lines.copy
        self.action_save = self._asking(lambda: lines.save(self.snapshot.run_id))
        self.action_search = self._asking(search.ask_query)
        self.action_hit = self._asking(search.step)
        self.action_filter = self._asking(search.ask_filter)
        self.action_error = self.errors.step
        self.action_first_failure = self.errors.first_failure
        self.action_stamps = lambda: panes.next_stamps(self.snapshot.started)
        self.action_wrap = panes.toggle_wrap
        self.action_prefix = panes.toggle_prefix
        self.action_fold = panes.toggle_fold
        self.action_restart = self._asking(tasks.restart)
        self.action_signal = self._asking(tasks.signal)

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

    def action_open(self) -> None:
        """Switches the focused task on or off in the merged log; elsewhere opens its page."""
        if not self.pane_commands.toggle_task():
            self.task_commands.open_page()
