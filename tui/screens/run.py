"""The run screen: what people look at for hours."""

from __future__ import annotations

import asyncio
import gc
import time
from dataclasses import replace
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal

from launcher.ids import TaskId
from launcher.run.snapshot import Snapshot
from launcher.run.states import Outcome, RunState
from launcher.session.control import RunControl
from tui.layout import Arrangement
from tui.screens.pane_actions import PaneActions
from tui.screens.run_keys import RUN_KEYS
from tui.screens.task_actions import TaskActions
from tui.stall import stalled_for
from tui.standing import fact, standings
from tui.troubles import Troubles
from tui.widgets.footer import KeyFooter
from tui.widgets.header import RunHeader
from tui.widgets.outcome_panel import OutcomePanel
from tui.widgets.pane_grid import PaneGrid
from tui.widgets.prompt import Prompt
from tui.widgets.status_strip import StatusStrip
from tui.widgets.task_list import TaskList
from tui.widgets.titles import TitlePart, sparkline, task_title

FRAME = 1 / 30
QUIET_FRAME = 1 / 10
QUIET_AFTER = 30
"""Frames without news after which the clock slows down."""
RESTS = 3
"""Of each second, painting logs takes at most a quarter."""
MAX_REST = 0.25


class RunScreen(PaneActions, TaskActions):
    """Header, strip, panes, footer. One clock drives all of them: it takes up the newest
    snapshot and asks each visible pane whether its log has grown."""

    AUTO_FOCUS = ""  # the prompt's input would take the first keys
    BINDINGS: ClassVar[list[BindingType]] = RUN_KEYS

    def __init__(self, control: RunControl) -> None:
        super().__init__(control)
        self._latest = self.snapshot
        self._troubles = Troubles(control)
        self._trouble = ""
        self._sparks: dict[TaskId, str] = {}
        self._titles: dict[TaskId | None, tuple[TitlePart, ...]] = {}
        self._second = 0.0
        self._rest_until = 0.0
        self._notes = len(self.snapshot.notes)

    def compose(self) -> ComposeResult:
        """From top to bottom."""
        yield RunHeader()
        yield StatusStrip()
        with Horizontal():
            yield TaskList()
            yield PaneGrid()
        yield OutcomePanel()
        yield Prompt()
        yield KeyFooter()

    def on_mount(self) -> None:
        self.find_widgets()
        self._take_to_logs(self.snapshot)
        self.query_one(OutcomePanel).display = False
        self.control.subscribe(self._hand_over)
        self.run_worker(self._clock(), group="clock")
        # What is mounted stays: the collector need not walk it again and again (its pauses were
        # the longest that a key waited for).
        self.call_after_refresh(gc.freeze)
        if self.snapshot.state is RunState.ENDED:
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
        # A screen that is closed loses its widgets before its workers are cancelled.
        while self in self.app.screen_stack:
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
            self._look_at_series(now)
        if changed or second:
            self._show_states(now)
        if self._sizes != (self._area.size, self._grid.size):
            self._place()
        if time.monotonic() < self._rest_until:
            return changed
        if self.app.screen is self or self.app.screen.is_modal:
            grown = [pane.poll() for pane in self._grid.panes]
            self.follow_searches()
            self._show_titles()
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
        self.board.update(snapshot, self._stalled)
        self._take_to_logs(snapshot)
        self._place()
        for note in snapshot.notes[self._notes :]:
            self.notify(note, timeout=8)
        self._notes = len(snapshot.notes)
        by_itself = snapshot.outcome not in (Outcome.KILLED, Outcome.TERMINATED)
        if snapshot.state is RunState.ENDED and before.state is not RunState.ENDED and by_itself:
            self.query_one(OutcomePanel).show(snapshot)

    def _take_to_logs(self, snapshot: Snapshot) -> None:
        """What the run knows and the logs do not is drawn between and beside their lines."""
        begun = self.attempts.update(snapshot.tasks)
        tasks = standings(snapshot)
        if begun or tasks != self.options.tasks:
            self.set_options(replace(self.options, tasks=tasks))

    def _look_at_series(self, now: float) -> None:
        """Once a second: who has stalled, what tasks complain about, and the sparklines of the
        panes in sight."""
        self._stalled = {}
        for task in self.snapshot.tasks:
            if task.state.live and task.step is not None:
                late = stalled_for(self.control.series(task.id).points, now)
                if late is not None:
                    self._stalled[task.id] = late
        for pane in self._grid.panes:
            if pane.view and pane.view.task:
                points = self.control.series(pane.view.task).points
                losses = [p.values["loss"] for p in points if "loss" in p.values]
                self._sparks[pane.view.task] = sparkline(losses)
        self._trouble = ""
        trouble = self._troubles.newest(self.snapshot, now)
        if trouble is not None and self.snapshot.first_failure is None:
            whose, hint = trouble
            self._trouble = f"⚠ {whose}: {hint.kind}"
            if known := fact(hint, whose, self.options.tasks):
                self._trouble += f": {known}"

    def _show_states(self, now: float) -> None:
        self.query_one(RunHeader).show(self.snapshot, len(self._stalled), self._trouble)
        self._make_titles(now)
        self.show_focus()
        self.query_one(KeyFooter).show(self._keys())

    def show_around(self) -> None:
        """Titles, strip, list and footer."""
        self._make_titles(time.time())
        self._show_titles()
        self.show_focus()
        self.query_one(KeyFooter).show(self._keys())

    def show_focus(self) -> None:
        """The focused task in strip and list."""
        self.query_one(StatusStrip).show(self.snapshot, self.board.focused)
        if self._list.display:
            off = self._off if self.board.shown is Arrangement.MERGED else None
            self._list.show(self.snapshot, self.board.focused, time.time(), off)

    def _make_titles(self, now: float) -> None:
        """Titles of the panes in sight; the sparklines in them are those of the last second."""
        states = {task.id: task for task in self.snapshot.tasks}
        self._titles.clear()
        for pane in self._grid.panes:
            name = pane.view.task if pane.view else None
            if name is None:
                count = len(self.merged_tasks())
                text = f"all logs, {count} of {len(states)} tasks, by time of receipt"
                self._titles[None] = (TitlePart(0, text, "name"),)
            elif name in states:
                self._titles[name] = task_title(
                    states[name],
                    now,
                    self._sparks.get(name, ""),
                    self._stalled.get(name),
                    name in self.board.pinned,
                )

    def _show_titles(self) -> None:
        for pane in self._grid.panes:
            if pane.view and pane.view.task in self._titles:
                pane.set_title(self._titles[pane.view.task], self.note_of(pane.view))

    def _keys(self) -> list[tuple[str, str]]:
        """The footer's keys, the most important first."""
        ended = self.snapshot.state is RunState.ENDED
        keys = [("F9", "receipt" if ended else "kill all"), ("q", "leave"), ("?", "help")]
        if self.query_one(OutcomePanel).display:
            keys += [("Esc", "hide summary")]
        if self.board.shown is Arrangement.MERGED:
            keys += [("o", "task on/off")]
        keys += [("Tab", "next"), ("z", "zoom"), ("Space", "layout"), ("/", "search")]
        if (
            self.board.shown in (Arrangement.GRID, Arrangement.CHIEF)
            and len(self.board.pages()) > 1
        ):
            keys += [("[ ]", f"page {self.board.page + 1}/{len(self.board.pages())}")]
        keys += [("&", "filter"), ("e", "errors"), ("G", "follow"), ("m", "merged")]
        keys += [("M", "metrics"), ("H", "hosts"), ("y", "copy"), ("'", "go to")]
        return keys
