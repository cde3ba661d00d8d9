"""The run screen: what people look at for hours."""

from __future__ import annotations

import asyncio
import gc
import time
from typing import ClassVar

from textual.binding import BindingType

from launcher.run.snapshot import Snapshot
from launcher.run.states import Outcome, RunPhase
from launcher.session.control import RunControl
from tui.layout import Arrangement
from tui.screens.run.keys import RUN_KEYS
from tui.screens.run.line_actions import LineActions
from tui.screens.run.pane_actions import PaneActions
from tui.screens.run.search_actions import SearchActions
from tui.screens.run.task_actions import TaskActions
from tui.widgets.outcome_panel import OutcomePanel

FRAME = 1 / 30
QUIET_FRAME = 1 / 10
QUIET_AFTER = 30
"""Frames without news after which the clock slows down."""
RESTS = 3
"""Of each second, painting logs takes at most a quarter."""
MAX_REST = 0.25


class RunScreen(PaneActions, LineActions, SearchActions, TaskActions):
    """All parts together. One clock drives them: it takes up the newest snapshot and asks each
    visible pane whether its log has grown."""

    AUTO_FOCUS = ""  # the prompt's input would take the first keys
    BINDINGS: ClassVar[list[BindingType]] = RUN_KEYS

    def __init__(self, control: RunControl) -> None:
        super().__init__(control)
        self._latest = self.snapshot
        self._second = 0.0
        self._rest_until = 0.0
        self._notes = len(self.snapshot.notes)

    def on_mount(self) -> None:
        self.query_one(OutcomePanel).display = False
        self.control.subscribe(self._hand_over)
        self.run_worker(self._clock(), group="clock")
        # What is mounted stays: the collector need not walk it again and again (its pauses were
        # the longest that a key waited for).
        self.call_after_refresh(gc.freeze)
        if self.snapshot.state is RunPhase.ENDED:
            self.query_one(OutcomePanel).show(self.snapshot)
            failure = self.snapshot.first_failure
            if failure and any(task.id == failure.task for task in self.snapshot.tasks):
                self.board.focus(failure.task)  # what a past run is opened for

    def _hand_over(self, snapshot: Snapshot) -> None:
        """Called on the launcher's thread: leaves the snapshot for the next frame."""
        self._latest = snapshot

    def action_open(self) -> None:
        """Switches the focused task on or off in the merged log; elsewhere opens its page."""
        if self.board.shown is Arrangement.MERGED:
            self.switch_task()
        else:
            self.open_page()

    # the clock

    async def _clock(self) -> None:
        """Thirty frames a second while anything happens, ten in quiet hours."""
        quiet = 0
        # A screen that is closed, alone or with the app, loses its widgets before its workers
        # are cancelled.
        while self in self.app.screen_stack and self.app.is_running:
            quiet = 0 if self._frame() else quiet + 1
            await asyncio.sleep(FRAME if quiet < QUIET_AFTER else QUIET_FRAME)

    def _frame(self) -> bool:
        """Shows what is new; False when nothing was."""
        now = time.time()
        changed = self._latest is not self.snapshot
        second = now - self._second >= 1.0
        if changed:
            self._take(self._latest)
        if second:
            self._second = now
            self.look_at_series(now)
        if changed or second:
            self.show_states(now)
        self.place_resized()
        if time.monotonic() < self._rest_until:
            return changed
        if self.app.screen is self or self.app.screen.is_modal:
            grown = [pane.poll() for pane in self.grid.panes]
            self.follow_searches()
            self.show_titles()
            if any(grown):
                changed = True
                self.call_after_refresh(self._painted, time.monotonic())
        return changed

    def _painted(self, began: float) -> None:
        """A frame that took long, on a busy machine or a large screen, is followed by a longer
        rest: keys and tasks come first, however fast logs grow."""
        now = time.monotonic()
        self._rest_until = now + min(MAX_REST, RESTS * (now - began))

    def _take(self, snapshot: Snapshot) -> None:
        before, self.snapshot = self.snapshot, snapshot
        self.board.update(snapshot, self.stalled)
        if self.views.update(snapshot):
            self.redraw_panes()
        self.place()
        for note in snapshot.notes[self._notes :]:
            self.notify(note, timeout=8)
        self._notes = len(snapshot.notes)
        by_itself = snapshot.outcome not in (Outcome.KILLED, Outcome.TERMINATED)
        if snapshot.state is RunPhase.ENDED and before.state is not RunPhase.ENDED and by_itself:
            self.query_one(OutcomePanel).show(snapshot)
