"""Views of all logs of a run, with their filters and the options of all rows."""

from __future__ import annotations

from dataclasses import replace

from launcher.ids import TaskId
from launcher.quantities import thousands
from launcher.run.snapshot import Snapshot
from launcher.store.logs import LogStore
from tui.log.hints import task_contexts

from .attempts import AttemptStarts
from .document import Document
from .filter import GROWTH_SECONDS, Filtered
from .merged import Merged, Source
from .rows import RowOptions
from .scan import Scanner
from .view import Lines, LogView


class LogViews:
    """Views by task, made when they are first asked for and kept as long as the screen; None is
    the view of all logs merged."""

    def __init__(self, logs: LogStore, snapshot: Snapshot) -> None:
        self.options = RowOptions()
        self.off: set[TaskId] = set()
        """Tasks switched off in the merged log."""
        self._logs = logs
        self._run_id = snapshot.run_id
        self._tasks = [task.id for task in snapshot.tasks]
        self._views: dict[TaskId | None, LogView] = {}
        self._filters: dict[TaskId | None, str] = {}
        self._scanners: dict[TaskId | None, Scanner] = {}
        """The threads that filter, by view."""
        self._attempts = AttemptStarts(logs)
        self.update(snapshot)

    def update(self, snapshot: Snapshot) -> bool:
        """Takes over what a snapshot says of attempts and tasks, which is drawn between and beside
        lines; False when that is the same as before."""
        begun = self._attempts.update(snapshot.tasks)
        tasks = task_contexts(snapshot)
        if not begun and tasks == self.options.tasks:
            return False
        self.set_options(replace(self.options, tasks=tasks))
        return True

    def set_options(self, options: RowOptions) -> None:
        """Sets the options of the rows of all views."""
        self.options = options
        for view in self._views.values():
            view.set_options(options)

    def of(self, task: TaskId | None) -> LogView:
        """The view of a task's log, or of all logs merged."""
        if task not in self._views:
            colours = {name: number for number, name in enumerate(self._tasks)}
            self._views[task] = LogView(
                task,
                self._lines(task),
                self.options,
                self._attempts,
                colours=colours,
                path=self._logs.open(task).path if task else self._logs.folder,
                name=f"{self._run_id}-{task.stem if task else 'merged'}",
            )
        return self._views[task]

    def forget_cursors(self) -> None:
        """No view marks a hit any more."""
        for view in self._views.values():
            view.cursor = None

    def close(self) -> None:
        """Ends the threads that filter."""
        for scanner in self._scanners.values():
            scanner.close()

    # the merged log

    @property
    def merged(self) -> list[TaskId]:
        """The tasks that are switched on in the merged log."""
        return [task for task in self._tasks if task not in self.off]

    def switch(self, task: TaskId) -> None:
        """Switches a task on or off in the merged log."""
        self.off ^= {task}
        self.set_filter(self.of(None), self.filter_of(None))

    # filters

    def filter_of(self, task: TaskId | None) -> str:
        """The query that lines must match to be shown; empty where all are shown."""
        return self._filters.get(task, "")

    def set_filter(self, view: LogView, text: str) -> None:
        """Shows only the lines that hit; no text shows all."""
        if view.task in self._scanners:
            self._scanners.pop(view.task).close()
        self._filters[view.task] = text
        view.replace_lines(self._lines(view.task), filtered=bool(text))

    def note(self, view: LogView) -> str:
        """A view's filter and what it lets through; empty where there is none."""
        text = self.filter_of(view.task)
        return f"&{text} {thousands(view.lines.count)} lines" if text else ""

    def _lines(self, task: TaskId | None) -> Lines:
        text = self.filter_of(task)

        tasks = [task] if task is not None else self.merged
        documents = {name: Document(name, self._logs.open(name)) for name in tasks}
        sources: dict[TaskId, Source] = {**documents}
        if text:
            filtered = {name: Filtered(document, text) for name, document in documents.items()}
            scans = (one.scan() for one in filtered.values())
            self._scanners[task] = Scanner("filter", scans, GROWTH_SECONDS)
            sources = {**filtered}
        return Merged(sources) if task is None else sources[task]
