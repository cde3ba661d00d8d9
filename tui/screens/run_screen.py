"""Run screen: panes with the logs of a run's tasks, and around them how the run goes."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import ClassVar

from textual import events, on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.command import Hit, Hits, Provider
from textual.containers import VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.screen import Screen
from textual.widgets import Static

from launcher.cluster.roles import ROLES, Role
from launcher.crossing import loop_caller
from launcher.history.control import RunControl
from launcher.ids import TaskId
from launcher.quantities import counted
from launcher.run.snapshot import Snapshot, TaskView, new_notes
from launcher.run.states import Outcome, RunPhase
from launcher.store.logs import LogStore
from tui.clipboard import copy
from tui.failure_report import guilty_lines
from tui.keys import bound_keys, key_hints, key_of
from tui.memory import Memory
from tui.outcome import (
    failure_text,
    paragraphs,
    queue_status,
    receipt_text,
    refusals_text,
    results_text,
)
from tui.pane_layout import Arrangement
from tui.screens.copied_report import LOW_LINES, REPORT_ABOUT, TALL, copy_report
from tui.screens.dialogs import Confirm, ask
from tui.screens.page import fit
from tui.task_monitor import TaskMonitor
from tui.widgets.colours import status_colours, theme_colour
from tui.widgets.fit import Part
from tui.widgets.footer import KeyFooter, kill_hint, stacks_hint
from tui.widgets.header import RunHeader
from tui.widgets.pane_area import PaneArea
from tui.widgets.prompt import Prompt
from tui.widgets.task_list import StatusStrip, TaskClicked
from tui.widgets.titles import NAME, Title, empty_text, task_title

_OPEN = Binding.Group("Web page; merged: on/off")
_RESTART = Binding.Group("Restart, at once")
_END = Binding.Group("TERM, KILL the task")
_LENT = ("copy", "error")
"""Actions of panes whose keys belong to the summary while that is shown."""
_MOST_NOTES = 4
_MOST_TASKS = 64
"""Tasks that the palette offers to go to."""
_NOTE_SECONDS = 8
LAST_LINES = 5
"""Last lines of a failure on a tall terminal."""
FRAME = 1 / 30
SEARCH_FRAME = 1 / 10
INPUT_FRAMES = 10
"""Frames that a key or a click is worth: what it asks for may come a little later."""
RESTS = 3
"""Rests of a frame's length after each frame: painting logs takes at most a quarter of each
second."""
MIN_REST, MAX_REST = 0.1, 0.25
"""Seconds between two paintings of logs: nobody reads lines that scroll by faster, and what the
screen takes is missing in a training on the same machine."""
_GRAPHIC = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")


class GoToTask(Provider):
    """Goes to the pane of a task, in the palette: `Go to worker:3`."""

    async def search(self, query: str) -> Hits:
        """The tasks that match a query."""
        screen = self.screen
        if not isinstance(screen, RunScreen):
            return
        matcher, found = self.matcher(query), 0
        for task in screen.snapshot.tasks:
            text = f"Go to {task.id}"
            if (score := matcher.match(text)) > 0 and found < _MOST_TASKS:
                found += 1
                go = partial(screen.area.focus_task, task.id)
                yield Hit(
                    score, matcher.highlight(text), go, help=f"{task.exit_text} on {task.host}"
                )


class RunScreen(Screen[None]):
    """Composes the parts, and shows them what is new."""

    COMMANDS: ClassVar[set[type[Provider] | Callable[[], type[Provider]]]] = {GoToTask}

    BLANK = True  # as `PaneGrid`
    AUTO_FOCUS = ""  # the prompt's input would take the first keys
    BINDING_GROUP_TITLE = "Task"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", "Back", id="back"),
        Binding(
            "o",
            "open",
            "Open its page; merged: on or off",
            id="task.open",
            tooltip="Such as TensorBoard; in the merged log: hides the task, or shows it",
            group=_OPEN,
        ),
        Binding(
            "r",
            "restart(False)",
            "Restart the task",
            id="task.restart",
            tooltip="TERM, then KILL after the grace, then a new attempt",
            group=_RESTART,
        ),
        Binding(
            "R",
            "restart(True)",
            "Restart the task at once (KILL)",
            id="task.restart_hard",
            tooltip="KILL, then a new attempt",
            group=_RESTART,
        ),
        Binding(
            "x",
            "signal('TERM')",
            "End the task (TERM)",
            id="task.term",
            tooltip="This task alone; KILL after the grace",
            group=_END,
        ),
        Binding(
            "X",
            "signal('KILL')",
            "Kill the task (KILL)",
            id="task.kill",
            tooltip="This task alone, at once",
            group=_END,
        ),
        # The keys of the summary, beside those that launch again and edit everywhere.
        Binding("r", "app.again", "Launch the ended run again", id="end.again", show=False),
        Binding("e", "app.edit_file", "Edit the ended run's file", id="end.edit", show=False),
        Binding("y", "report", "Copy a report", id="report", tooltip=REPORT_ABOUT),
    ]

    class NewSnapshot(Message):
        """There is another snapshot of the run."""

    def __init__(self, control: RunControl, memory: Memory) -> None:
        super().__init__()
        self.control = control
        self.snapshot = control.snapshot()
        self.header = RunHeader()
        self.strip = StatusStrip()
        self.strip.display = False
        self.area = PaneArea(control, self.snapshot, memory)
        self.outcome = OutcomePanel(control.logs)
        self.prompt = Prompt()
        self.footer = KeyFooter()
        self.monitor = TaskMonitor(control)
        self.clock = FrameClock(self._frame, self._rest, self._is_open)
        self._titles: dict[TaskId | None, Title] = {}
        self._queue = ""
        """Text of empty panes."""
        self._second = 0.0
        self._notes: list[str] = []
        """Notes that wait until there is room for them."""
        self._noted: list[float] = []
        """When notes were shown that are still to be seen."""

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """No task can be restarted or ended when the run has ended: help does not list that."""
        if action == "report":
            return self.outcome.display
        return self.snapshot.ended is None or not _of_living_runs(action)

    def on_key(self, event: events.Key) -> None:
        """Says why a key does nothing whose command was refused."""
        bindings = self._bindings.key_to_bindings.get(event.key, ())
        actions = {binding.action for binding in bindings}
        if self.snapshot.ended is None:
            if event.key in bound_keys(self.app, ()).get("again", ()):
                kill = key_of(self, "kill_all")
                self.notify(f"the run is active: {kill} ends it, then it can be launched again")
        elif "app.again" not in actions and any(map(_of_living_runs, actions)):
            self.notify("the run has ended: its tasks cannot be restarted or ended", timeout=3)

    def compose(self) -> ComposeResult:
        yield self.header
        yield self.strip
        yield self.area
        yield self.outcome
        yield self.prompt
        yield self.footer

    def on_mount(self) -> None:
        fit(self)
        self.run_worker(self.clock.run(), group="clock")
        call = loop_caller()
        self.control.subscribe(lambda _: call(self.clock.hear))
        if self.snapshot.state is RunPhase.ENDED:
            self._show_outcome()

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
        second = not 0 <= now - self._second < 1.0  # the clock may be set back
        if changed:
            self._apply(latest)
            self.post_message(self.NewSnapshot())
        if second:
            self._second = now
            self._show_notes(time.monotonic())
            visible = [p.view.task for p in self.area.grid.panes if p.view and p.view.task]
            contexts = self.area.views.options.tasks
            self.monitor.update(self.snapshot, visible, contexts, now)
        if changed or second:
            self.show_run(now)
        if self.app.screen is self or self.app.screen.is_modal:
            began = time.monotonic()
            grown = self.area.poll()
            if grown or changed or second or self.area.notes_change:
                self._show_titles()
            if grown:
                changed = True
                self.call_after_refresh(self.clock.rest_after, began)
        return changed

    def _rest(self) -> float:
        """Seconds after which a frame is due although nothing is new."""
        if self.area.searches:
            return SEARCH_FRAME
        return min(1.0, max(0.01, self._second + 1.0 - time.time()))

    def _apply(self, snapshot: Snapshot) -> None:
        before, self.snapshot = self.snapshot, snapshot
        self.area.pane_layout.update(snapshot)
        if self.area.views.update(snapshot):
            self.area.redraw()
        self.area.place()
        self._notes += new_notes(before.notes, snapshot.notes)
        self._show_notes(time.monotonic())
        by_itself = snapshot.outcome not in (Outcome.KILLED, Outcome.TERMINATED)
        if snapshot.state is RunPhase.ENDED and before.state is not RunPhase.ENDED and by_itself:
            self._show_outcome()
            self.area.refocus()
        elif self.outcome.display and snapshot.verdict != before.verdict:
            self._show_outcome()
        elif self.outcome.display and snapshot.results_kept != before.results_kept:
            self.outcome.show(snapshot)

    def _show_outcome(self) -> None:
        """Shows how the run ended, and the task that is to blame: the summary may leave room for
        one pane alone."""
        self.outcome.show(self.snapshot)
        self.area.lent.update(_LENT)
        culprit = self.snapshot.culprit
        if culprit and any(task.id == culprit for task in self.snapshot.tasks):
            self.area.pane_layout.focus(culprit)

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

    # around the panes

    def show_run(self, now: float) -> None:
        """Shows the snapshot, which may be the one of the second before."""
        alert = self.control.standstill or self.monitor.alert
        self.header.show(self.snapshot, alert, summary=bool(self.outcome.display))
        self._make_titles(now)
        layout, views = self.area.pane_layout, self.area.views
        in_sight = layout.shows_panes and len(layout.pages()) <= 1
        if self.strip.display is (in_sight or self.area.task_list.display):
            self.strip.display = not self.strip.display
        self.strip.show(self.snapshot, layout.focused)
        if self.area.task_list.display:
            off = views.off if layout.effective is Arrangement.MERGED else None
            self.area.task_list.show(self.snapshot, layout.focused, now, off)
        self.footer.show(self._hints())

    @on(PaneArea.Changed)
    def _panes_changed(self) -> None:
        if self._is_open():
            self.show_run(time.time())
            self._show_titles()

    def _make_titles(self, now: float) -> None:
        """Makes the titles of the panes in sight."""
        self._queue = queue_status(self.snapshot, now)
        if self._queue and self.snapshot.allocation is not None:
            self._queue += f"\n{self.snapshot.allocation.advice}"
        tasks = {task.id: task for task in self.snapshot.tasks}
        colours = status_colours(self.app)
        verdict = self.snapshot.verdict
        if verdict is not None and len(verdict.tasks) == len(tasks):
            verdict = None  # a mark on every pane says nothing
        self._titles.clear()
        for pane in self.area.grid.panes:
            name = pane.view.task if pane.view else None
            if name is None:
                count = len(self.area.views.merged)
                text = f"all logs, {count} of {len(tasks)} tasks, in order of arrival"
                self._titles[None] = Title((Part(0, text, NAME),))
            elif name in tasks:
                self._titles[name] = task_title(
                    tasks[name],
                    now,
                    colours,
                    self.monitor.sparklines.get(name, ""),
                    name in self.area.pane_layout.pinned,
                    self.snapshot.total_steps or tasks[name].metrics.get("total"),
                    self.monitor.warnings.get(name),
                    verdict if verdict is not None and name in verdict.tasks else None,
                )

    def _show_titles(self) -> None:
        """Shows the titles as they were made last, with what filter and search have found since."""
        now = time.time()
        tasks = {task.id: task for task in self.snapshot.tasks}
        for pane in self.area.grid.panes:
            name = pane.view.task if pane.view else None
            if pane.view and name in self._titles:
                pane.set_title(self._titles[name], self.area.note(pane.view))
            task = tasks.get(name) if name is not None else None
            empty = ""
            if pane.view and task is not None:
                hidden = bool(pane.view.lines.count)
                empty = empty_text(task, self.snapshot, now, hidden=hidden)
            pane.set_placeholder(self._queue or empty)

    def _hints(self) -> list[tuple[str, str]]:
        """The commands of the footer, the most important first."""
        layout = self.area.pane_layout
        hints = [kill_hint(self.snapshot), ("leave", "leave"), ("help", "help")]
        if self.snapshot.ended is not None and not self.outcome.display:  # it names its own keys
            hints[1:1] = [("again", "launch again"), ("edit.file", "edit")]
        at_work = self.snapshot.state not in (RunPhase.KILLING, RunPhase.ENDED)
        in_trouble = at_work and self.snapshot.trouble is not None
        if in_trouble:
            hints[1:1] = [("failure", f"to {self.snapshot.trouble}"), ("cause", "cause")]
            hints[3:3] = [*stacks_hint(self.snapshot.state), ("task.restart", "restart")]
        if layout.effective is Arrangement.MERGED:
            hints += [("task.open", "task on/off")]
        hints += [("pane.next", "next"), ("zoom", "zoom"), ("layout.next", "layout")]
        hints += [("search", "search")]
        pages = len(layout.pages())
        if layout.effective is Arrangement.GRID and pages > 1:
            hints += [("page.previous page.next", f"page {layout.page + 1}/{pages}")]
        own = [] if self.outcome.display else [("error.next", "errors"), ("log.copy", "copy")]
        hints += [("filter", "filter"), *own[:1], ("scroll.follow", "follow")]
        hints += [("layout.merged", "merged"), ("metrics", "metrics"), ("hosts", "hosts")]
        hints += [] if in_trouble else stacks_hint(self.snapshot.state)
        hints += [*own[1:], ("pane.name", "go to")]
        return [*hints, ("log.remarks", "routine")]

    # keys and clicks

    @on(TaskClicked)
    def _task_clicked(self, event: TaskClicked) -> None:
        self.area.focus_task(event.task)

    def on_descendant_blur(self) -> None:
        """The footer names keys of what has the focus."""
        self.footer.refresh()

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        self.footer.refresh()

    def action_back(self) -> None:
        """Out of whatever was entered last."""
        pane = self.area.pane
        nothing: Callable[[], bool] = lambda: False  # noqa: E731
        for leave in (
            pane.leave_selection if pane else nothing,
            self.area.stop_search,
            self.area.leave_zoom,
            self.hide_outcome,
            pane.leave_hit if pane else nothing,
        ):
            if leave():
                return
        self.call_later(self.app.run_action, "home")

    def hide_outcome(self) -> bool:
        """Hides how the run ended; False when that is not shown."""
        if not self.outcome.display:
            return False
        self.outcome.display = False
        self.area.lent.clear()
        self.show_run(time.time())
        return True

    @work(group="commands")
    async def action_open(self) -> None:
        """Switches the focused task on or off in the merged log; elsewhere opens its web page
        (TensorBoard's, say), else the only one that there is. Where there can be no browser, the
        address goes to the clipboard."""
        if self.area.toggle_task():
            return
        name = self.area.pane_layout.focused
        url = self.snapshot.task(name).url if name else ""
        pages = [task.url for task in self.snapshot.tasks if task.url]
        if not url and len(pages) == 1:
            url = pages[0]
        if not url:
            why = "does not forward a port (forward = true), or is not ready"
            self.notify(f"nothing to open: {name} {why}", timeout=5)
        elif self.app.is_web or sys.platform == "darwin" or any(map(os.environ.get, _GRAPHIC)):
            # The standard library would start a text browser over this screen.
            self.app.open_url(url)
            self.notify(f"opened {url}", timeout=4)
        else:
            where = await copy(self.app, url)
            self.notify(f"{url}: no browser here, the address was {where}", timeout=8)

    @work(group="commands")
    async def action_report(self) -> None:
        """Copies what a colleague needs to know of the end of the run."""
        await copy_report(self.app, self.control)

    @work(group="commands")
    async def action_restart(self, hard: bool) -> None:
        """Ends the focused task and starts it again; hard: KILL instead of TERM and grace."""
        word = "hard restart" if hard else "restart"
        await self._confirmed(word, lambda task: self.control.restart(task, hard=hard))

    @work(group="commands")
    async def action_signal(self, name: str) -> None:
        """Sends TERM (KILL after the grace) or KILL to the focused task alone."""
        act = partial(self.control.signal, name=name)
        await self._confirmed(f"send {name} to", act, "The run ends with the {}.", name == "TERM")

    async def _confirmed(
        self,
        word: str,
        act: Callable[[TaskId], None],
        result: str = "Workers are still running and need the {}.",
        asks: bool = False,
    ) -> None:
        """Acts at once, or after a yes where it `asks` or other tasks depend on this one."""
        name = self.area.pane_layout.focused
        if name is None:
            return
        snapshot = self.control.snapshot()
        if not self.control.living or snapshot.ended is not None:
            self.notify(f"the run has ended: there is no {name} to {word}", timeout=3)
            return
        if snapshot.state is RunPhase.KILLING and word.endswith("restart"):
            self.notify(f"the run is being ended: {name} cannot be restarted", timeout=3)
            return
        task = snapshot.task(name)
        if asks and not task.state.live:
            self.notify(f"{name} has ended already", timeout=3)
            return
        needed = _others_depend_on(task, snapshot)
        why = (
            result.format("chief" if task.is_chief else "ps") if needed else "The task is running."
        )
        if (needed or asks) and await ask(self, Confirm(f"{word} {name}?", why)) is not True:
            return
        act(name)
        self.notify(f"{word} {name}", timeout=3)


def _of_living_runs(action: str) -> bool:
    """The action means nothing when the run has ended."""
    return action.startswith(("restart", "signal"))


def _others_depend_on(task: TaskView, snapshot: Snapshot) -> bool:
    """A ps or the chief, while other cluster tasks run."""
    if not task.is_chief and not _is_ps(task):
        return False
    return any(
        other.state.live and other.in_cluster and other.id != task.id and not _is_ps(other)
        for other in snapshot.tasks
    )


def _is_ps(task: TaskView) -> bool:
    return task.in_cluster and ROLES.get(task.id.job) is Role.PS


class OutcomePanel(VerticalScroll, can_focus=False):
    """How the run ended, below the panes and never over them. Hidden until it has ended by itself;
    what has no room scrolls."""

    def __init__(self, logs: LogStore) -> None:
        self._logs = logs
        self._text = Static(markup=False)
        super().__init__(self._text)
        self.display = False

    def show(self, snapshot: Snapshot) -> None:
        """Shows the cause and the receipt; outcome and time stand in the header."""
        colours = status_colours(self.app)
        tall = self.app.size.height >= TALL
        lines = LAST_LINES if tall else LOW_LINES
        guilty = guilty_lines(snapshot, self._logs)
        width = 0 if tall else self.app.size.width - 4  # a scrollbar has two
        failure = failure_text(snapshot, colours, lines, brief=not tall, lines=guilty, width=width)
        receipt = receipt_text(snapshot, colours).append_text(results_text(snapshot))
        texts = (refusals_text(snapshot, colours), failure, receipt)
        text = paragraphs(*texts, apart=tall).rich
        text.rstrip()  # the row has none to spare for an empty line
        self._text.update(text)
        keys = [("again", "launch again"), ("end.edit", "edit"), ("report", "copy report")]
        keys += [("back", "hide")]
        if snapshot.unconfirmed:
            keys.insert(0, ("kill_all", "kill again"))
        if snapshot.culprit is not None:
            keys = [("failure", "log"), ("cause", "cause"), *keys]
        key = f"bold {theme_colour(self.app, 'accent-text')}"
        words = (
            piece
            for hint in key_hints(self, keys)
            for piece in (("  ", ""), (hint.keys, key), (f" {hint.does}", ""))
        )
        self.border_title = Content.assemble(" ", *[*words][1:], " ")
        self.display = True


class FrameClock:
    """At most thirty frames a second, for news and for what a person does; one a second while
    nothing happens: each time that a process wakes has its price."""

    def __init__(
        self, frame: Callable[[], bool], rest: Callable[[], float], is_open: Callable[[], bool]
    ) -> None:
        """`frame` shows what is new and returns False when nothing was; `rest` says for how many
        seconds none is needed without news; `is_open` returns False once there is no screen to draw
        on."""
        self._frame = frame
        self._rest = rest
        self._is_open = is_open
        self._rest_until = 0.0
        self._owed = 0
        """Frames that come without news."""
        self._news = asyncio.Event()

    async def run(self) -> None:
        """Shows frames until the screen has gone."""
        while self._is_open():
            self._news.clear()
            self._owed = max(self._owed - 1, 1 if self._frame() else 0)
            await asyncio.sleep(FRAME)
            if not self._owed:
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._rest()):
                        await self._news.wait()

    def hear(self) -> None:
        """There is news."""
        self._news.set()

    def wake(self) -> None:
        """A person has done something, which some frames may be about."""
        self._owed = INPUT_FRAMES
        self._news.set()

    @property
    def resting(self) -> bool:
        """Nothing is drawn yet: logs have just been painted."""
        return time.monotonic() < self._rest_until

    def rest_after(self, began: float) -> None:
        """Rests after a frame that has just been painted. One that took long, on a busy machine or
        a large screen, is followed by a longer rest: keys and tasks come first, however fast
        logs grow."""
        now = time.monotonic()
        self._rest_until = now + min(MAX_REST, max(MIN_REST, RESTS * (now - began)))
