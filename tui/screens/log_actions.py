"""What the keys do to the log in the focused pane: search, filter, choose, copy, save."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from textual import on
from textual.screen import Screen

from launcher.ids import TaskId
from launcher.run.snapshot import Snapshot
from launcher.session.control import RunControl
from tui.log.document import Document
from tui.log.filter import Filtered
from tui.log.finder import Finder
from tui.log.merged import Merged
from tui.log.rows import Options, Stamps
from tui.log.sanitise import plain_text
from tui.log.search import Query
from tui.log.view import Lines, LogView
from tui.widgets.log_pane import LogPane
from tui.widgets.prompt import Prompt
from tui.words import thousands

ERRORS = Query(
    r"^(?:Traceback \(most recent call last\)|[\w.]*(?:Error|Exception)\b)"
    r"|\b(?:ERROR|FATAL|CRITICAL)\b|: [EF] (?:tensorflow|external)/|^[EF]\d{4} "
    r"|[Ss]egmentation fault|[Oo]ut of memory|core dumped"
)
COPY_LIMIT = 100_000
"""Bytes; terminals drop a longer OSC 52."""


class LogActions(Screen[None]):
    """The part of the run screen that works on logs. The screen itself says which pane that
    is, and how to bring a task's line into sight."""

    control: RunControl
    snapshot: Snapshot

    def __init__(self) -> None:
        super().__init__()
        self.options = Options()
        self._finder: Finder | None = None
        self._finder_lines: Lines | None = None
        self._want: int = 0
        """A step that waits for its hit: 1 forwards, -1 backwards, 0 none."""
        self._hit = -1
        self._errors: tuple[Merged, Finder] | None = None
        self._error_step = 0
        self._error_at: int | None = None
        self._filters: dict[TaskId | None, str] = {}
        self._filtered: dict[tuple[TaskId | None, TaskId], Filtered] = {}

    # what the run screen provides

    @property
    def pane(self) -> LogPane | None:
        """The pane that has the focus."""
        raise NotImplementedError

    def all_views(self) -> list[LogView]:
        """The views of all panes that were ever shown."""
        raise NotImplementedError

    def show_line(self, task: TaskId, line: int) -> None:
        """Brings a line of a task's log into sight."""
        raise NotImplementedError

    def merged_tasks(self) -> list[TaskId]:
        """The tasks that are switched on in the merged log."""
        raise NotImplementedError

    # every frame

    def follow_searches(self) -> None:
        """Takes up hits that the threads have found since."""
        pane = self.pane
        finder = self._finder
        if self._want and finder and pane and pane.view and pane.view.lines is self._finder_lines:
            hit = finder.nearest() if self._hit < 0 else None
            if hit is None and (self._hit >= 0 or finder.done):
                at = self._hit if self._hit >= 0 else pane.view.lines.count
                hit = finder.step(at, forward=self._want > 0)
            if hit is not None:
                self._want, self._hit = 0, hit
                pane.view.cursor = hit
                pane.go_to(hit)
                pane.redraw()
            elif finder.done:
                self._want = 0
        if self._error_step and self._errors:
            self._follow_errors(*self._errors)

    def note_of(self, view: LogView) -> str:
        """What stands at the right of a pane's title: its filter and its hits."""
        notes = []
        if filter_text := self._filters.get(view.task):
            notes.append(f"&{filter_text} {thousands(view.lines.count)} lines")
        if self._finder and view.lines is self._finder_lines:
            place, total = self._finder.place(self._hit)
            dots = "" if self._finder.done else f"… {self._finder.share * 100:.0f} %"
            notes.append(f"/{self._finder.query.text} {place} of {thousands(total)}{dots}")
        return "  ".join(notes)

    # options

    def set_options(self, options: Options) -> None:
        """How lines are shown, in all panes."""
        self.options = options
        for view in self.all_views():
            view.options = options
        for pane in self.query(LogPane):
            pane.redraw()

    def action_stamps(self) -> None:
        """Times before lines: none, time of day, since the start."""
        order = list(Stamps)
        stamps = order[(order.index(self.options.stamps) + 1) % len(order)]
        started = self.snapshot.started
        self.set_options(replace(self.options, stamps=stamps, started=started))
        self.notify(f"timestamps: {stamps}", timeout=2)

    def action_wrap(self) -> None:
        """Wraps long lines, or cuts them at the pane's edge."""
        self.set_options(replace(self.options, wrap=not self.options.wrap))
        self.notify(f"wrap: {'on' if self.options.wrap else 'off'}", timeout=2)

    def action_prefix(self) -> None:
        """Hides TensorFlow's prefix of date and source file, on the screen only."""
        self.set_options(replace(self.options, hide_prefix=not self.options.hide_prefix))
        hidden = "hidden" if self.options.hide_prefix else "shown"
        self.notify(f"TensorFlow's log prefix: {hidden}", timeout=2)

    # search

    def action_search(self) -> None:
        """Asks what to search for."""
        self.query_one(Prompt).ask("search", "/")

    def action_hit(self, by: int) -> None:
        """The next or previous hit; in another pane the same search begins anew."""
        pane = self.pane
        if self.options.query is None:
            self.action_search()
        elif pane and pane.view and pane.view.lines is not self._finder_lines:
            self._start_search(self.options.query)
        else:
            self._want = by

    def _start_search(self, query: Query) -> None:
        self.stop_search()
        pane = self.pane
        if pane is None or pane.view is None:
            return
        self.set_options(replace(self.options, query=query))
        visible = pane.in_sight()
        near = visible[-1] if visible else 0
        self._finder = Finder(pane.view.lines, query, near)
        self._finder_lines = pane.view.lines
        self._want, self._hit = -1, -1

    def stop_search(self) -> bool:
        """Ends a search and its marks; False when there was none."""
        if self._finder is None:
            return False
        self._finder.cancel()
        self._finder = self._finder_lines = None
        self._want, self._hit = 0, -1
        for view in self.all_views():
            view.cursor = None
        self.set_options(replace(self.options, query=None))
        return True

    # errors

    def action_error(self, by: int) -> None:
        """The next or previous line of any task that looks like an error, by time of receipt."""
        if self._errors is None:
            files = {view.id: self.control.logs.open(view.id) for view in self.snapshot.tasks}
            merged = Merged({task: Document(task, file) for task, file in files.items()})
            merged.refresh()
            self._errors = merged, Finder(merged, ERRORS, 0)
        self._error_step = by

    def _follow_errors(self, merged: Merged, finder: Finder) -> None:
        merged.refresh()
        at = self._error_at
        if at is None:
            at = merged.count if self._error_step < 0 else -1
        hit = finder.step(at, forward=self._error_step > 0) if finder.done else None
        if hit is not None:
            self._error_at, self._error_step = hit, 0
            self.show_line(*merged.origin(hit))
            place, total = finder.place(hit)
            self.notify(f"error {place} of {total}", timeout=2)
        elif finder.done:
            self._error_step = 0
            self.notify("no line of any task looks like an error", timeout=3)

    def action_first_failure(self) -> None:
        """The end of the log of the first task that failed."""
        failure = self.snapshot.first_failure
        if failure is None:
            self.notify("no task has failed", timeout=2)
            return
        file = self.control.logs.open(failure.task)
        document = Document(failure.task, file)
        document.refresh()
        self.show_line(failure.task, max(0, document.count - 1))

    # filter

    def action_filter(self) -> None:
        """Asks which lines to show."""
        pane = self.pane
        if pane and pane.view:
            text = self._filters.get(pane.view.task, "")
            self.query_one(Prompt).ask("filter", "& lines with (!without)", text)

    def set_filter(self, view: LogView, text: str) -> None:
        """Shows only the lines that hit; no text shows all."""
        self.stop_search()
        for task in list(view.lines.documents()) if view.task is None else [view.task]:
            old = self._filtered.pop((view.task, task), None)
            if old:
                old.close()
        self._filters[view.task] = text
        view.cursor = view.selection = None
        view.lines = self.lines_of(view.task)
        view.lines.refresh()
        view.port.follow()

    def lines_of(self, task: TaskId | None) -> Lines:
        """The lines of a task's log, or of all that are switched on, with the pane's filter."""
        text = self._filters.get(task, "")

        def source(name: TaskId) -> Document | Filtered:
            document = Document(name, self.control.logs.open(name))
            if not text:
                return document
            filtered = self._filtered[task, name] = Filtered(document, text)
            return filtered

        if task is not None:
            return source(task)
        return Merged({name: source(name) for name in self.merged_tasks()})

    @on(Prompt.Answered)
    def _answered(self, event: Prompt.Answered) -> None:
        if self.pane:
            self.pane.focus(scroll_visible=False)
        if event.text is None or self.pane is None or self.pane.view is None:
            return
        if event.purpose == "search" and event.text:
            self._start_search(Query(event.text))
        elif event.purpose == "filter":
            self.set_filter(self.pane.view, event.text)
            self.pane.redraw()
        elif event.purpose == "save" and event.text:
            self._save(self.pane.view, Path(event.text).expanduser())

    # choosing, copying, saving

    def action_select(self) -> None:
        """Begins or ends choosing lines; the scroll keys then move the end of the choice."""
        pane = self.pane
        if pane is None or pane.view is None:
            return
        visible = pane.in_sight()
        if pane.view.selection or not visible:
            pane.view.selection = None
        else:
            pane.port.pause()
            at = pane.view.cursor if pane.view.cursor in visible else visible[-1]
            pane.view.selection = (at, at)
        pane.redraw()

    def move_selection(self, pane: LogPane, by: int) -> None:
        """Moves the end of the choice by lines."""
        assert pane.view is not None and pane.view.selection is not None
        first, last = pane.view.selection
        last = min(max(0, last + by), pane.view.lines.count - 1)
        pane.view.selection = (first, last)
        pane.port.reveal(last)
        pane.redraw()

    def action_copy(self) -> None:
        """Copies the chosen lines, or those in sight, to the terminal's clipboard."""
        pane = self.pane
        if pane is None or pane.view is None:
            return
        numbers = pane.in_sight()
        if pane.view.selection:
            numbers = list(range(min(pane.view.selection), max(pane.view.selection) + 1))
        text, count = "", 0
        for number in numbers:
            line = self._text(pane.view, number) + "\n"
            if len(text) + len(line) > COPY_LIMIT:
                break
            text += line
            count += 1
        self.app.copy_to_clipboard(text)
        cut = f" (the first of {len(numbers)})" if count < len(numbers) else ""
        where = self.control.logs.folder
        if pane.view.task:
            where = self.control.logs.open(pane.view.task).path
        self.notify(f"{count} lines copied{cut}. The whole log: {where}", timeout=6)
        pane.view.selection = None
        pane.redraw()

    def action_save(self) -> None:
        """Asks where to save the chosen lines, or all that the pane shows."""
        pane = self.pane
        if pane and pane.view:
            stem = pane.view.task.stem if pane.view.task else "merged"
            name = f"{self.snapshot.run_id}-{stem}-{time.strftime('%H%M%S')}.txt"
            self.query_one(Prompt).ask("save", "save to", name)

    def _save(self, view: LogView, path: Path) -> None:
        chosen = view.selection
        numbers = range(view.lines.count)
        if chosen:
            numbers = range(min(chosen), max(chosen) + 1)

        def write() -> None:
            try:
                with path.open("x", encoding="utf-8") as file:
                    file.writelines(self._text(view, number) + "\n" for number in numbers)
            except OSError as error:
                self.app.call_from_thread(self.notify, f"not saved: {error}", severity="error")
            else:
                text = f"{thousands(len(numbers))} lines saved to {path.resolve()}"
                self.app.call_from_thread(self.notify, text)

        self.run_worker(write, thread=True, group="save")

    @staticmethod
    def _text(view: LogView, number: int) -> str:
        line = view.lines.line(number)
        before = f"{line.task} | " if line.task else ""
        return before + plain_text(line.data)
