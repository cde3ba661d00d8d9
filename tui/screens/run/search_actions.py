"""What the keys do to what is seen of logs: search, errors, filter, and how lines are shown."""

from __future__ import annotations

from dataclasses import replace

from textual import on

from launcher.session.control import RunControl
from tui.log.document import Document
from tui.log.errors import ErrorWalk
from tui.log.rows import Stamps
from tui.log.search import Query
from tui.screens.run.panes import Panes
from tui.widgets.prompt import Prompt


class SearchActions(Panes):
    """The part of the run screen that looks for lines, and says how they are shown."""

    def __init__(self, control: RunControl) -> None:
        super().__init__(control)
        self._errors: ErrorWalk | None = None

    # every frame

    def follow_searches(self) -> None:
        """Takes up hits that the threads have found since."""
        pane = self.pane
        if pane and pane.view:
            hit = self.searching.follow(pane.view.lines)
            if hit is not None:
                pane.view.cursor = hit
                pane.go_to(hit)
                pane.redraw()
        if self._errors is not None:
            self._follow_errors(self._errors)

    # options

    def action_stamps(self) -> None:
        """Times before lines: none, time of day, since the start."""
        order = list(Stamps)
        options = self.views.options
        stamps = order[(order.index(options.stamps) + 1) % len(order)]
        self.set_options(replace(options, stamps=stamps, started=self.snapshot.started))
        self.notify(f"timestamps: {stamps}", timeout=2)

    def action_wrap(self) -> None:
        """Wraps long lines, or cuts them at the pane's edge."""
        wrap = not self.views.options.wrap
        self.set_options(replace(self.views.options, wrap=wrap))
        self.notify(f"wrap: {'on' if wrap else 'off'}", timeout=2)

    def action_prefix(self) -> None:
        """Hides TensorFlow's prefix of date and source file, on the screen only."""
        hide = not self.views.options.hide_prefix
        self.set_options(replace(self.views.options, hide_prefix=hide))
        self.notify(f"TensorFlow's log prefix: {'hidden' if hide else 'shown'}", timeout=2)

    # search

    def action_search(self) -> None:
        """Asks what to search for."""
        self.query_one(Prompt).ask("search", "/")

    def action_hit(self, by: int) -> None:
        """The next or previous hit; in another pane the same search begins anew."""
        pane = self.pane
        query = self.views.options.query
        if query is None:
            self.action_search()
        elif pane and pane.view and not self.searching.is_in(pane.view.lines):
            self._start_search(query)
        else:
            self.searching.step(by)

    def _start_search(self, query: Query) -> None:
        self.stop_search()
        pane = self.pane
        if pane is None or pane.view is None:
            return
        self.set_options(replace(self.views.options, query=query))
        visible = pane.in_sight()
        self.searching.start(pane.view.lines, query, visible[-1] if visible else 0)

    # errors

    def action_error(self, by: int) -> None:
        """The next or previous line of any task that looks like an error, by time of receipt."""
        if self._errors is None:
            tasks = [task.id for task in self.snapshot.tasks]
            self._errors = ErrorWalk(self.control.logs, tasks)
        self._errors.step(by)

    def _follow_errors(self, errors: ErrorWalk) -> None:
        error = errors.follow()
        if error is not None:
            self.show_line(error.task, error.line)
            self.notify(f"error {error.place} of {error.total}", timeout=2)
        elif errors.in_vain:
            errors.step(0)
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
            text = self.views.filter_of(pane.view.task)
            self.query_one(Prompt).ask("filter", "& lines with (!without)", text)

    @on(Prompt.Answered)
    def _answered(self, event: Prompt.Answered) -> None:
        if event.text is None or self.pane is None or self.pane.view is None:
            return
        if event.purpose == "search" and event.text:
            self._start_search(Query(event.text))
        elif event.purpose == "filter":
            self.filter_lines(self.pane.view, event.text)
            self.pane.redraw()

    # leaving

    def on_unmount(self) -> None:
        """Ends the threads that read logs."""
        self.searching.stop()
        self.views.close()
        if self._errors is not None:
            self._errors.close()
