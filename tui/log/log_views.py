"""Views of the logs of a run: their lines, the places in them, and how they are shown.

A view outlives the pane's widget: paging through a cluster of hundreds of tasks moves views
between few widgets, and each is found as it was left.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from launcher.ids import TaskId
from launcher.quantities import thousands
from launcher.run.snapshot import AttemptStart, Snapshot, TaskView
from launcher.store.logs import LogStore
from tui.format import time_of_day
from tui.log.hints import task_contexts

from .document import Document, Line, Lines
from .finder import FILTER_PAUSE, Filtered, Scanner
from .merged import Merged, StampedLines
from .remarks import count_text, remark_source
from .rows import RowOptions, render_line
from .sanitise import Span
from .viewport import Viewport

_KEPT = 8192
"""Lines of a view of which it is remembered whether they are remarks."""


@dataclass
class LogView:
    """The state of one pane; `task` is None for the merged log."""

    task: TaskId | None
    lines: Lines
    options: RowOptions = field(default_factory=RowOptions)
    attempts: AttemptStarts | None = None
    port: Viewport = field(default_factory=Viewport)
    colours: dict[TaskId, int] = field(default_factory=dict)
    """Colours of the tasks in a merged log: numbers of a palette."""
    selection: tuple[int, int] | None = None
    """First selected line and the one that moves, both included."""
    cursor: int | None = None
    """The line of the last hit."""
    path: Path = Path()
    """The file with the whole log, or the folder of all."""
    name: str = ""
    """Run and task, for the name of a file with some of the lines."""
    filtered: bool = False
    """A filter has chosen the lines: each of them is shown."""

    def __post_init__(self) -> None:
        self._sources: dict[int, str | None] = {}
        """What finished lines are remarks of; empty text for an empty line behind a remark."""
        self._order = self.lines.order

    def hides(self, number: int) -> bool:
        """Line `number` is a remark, and remarks are not shown. The last hit is always shown."""
        if self.options.remarks or self.filtered or number == self.cursor:
            return False
        return self._source(number) is not None

    def hidden_text(self, first: int, end: int) -> str:
        """How many of these lines are hidden, and of what: `14 routine messages of TensorFlow`."""
        sources = Counter(self._source(n) for n in range(first, end) if self.hides(n))
        names = [name for name in sources if name]
        count = sum(sources[name] for name in names)
        return f"{count_text(count, names)} hidden" if count else ""

    def render(self, line: Line) -> tuple[list[Span], int]:
        """The spans that are drawn of a line, and the width of those before its own text."""
        return render_line(line, self.options, self.colours, self.task)

    def separators(self, number: int) -> list[str]:
        """Separators above line `number`: the attempts that begin there."""
        if self.attempts is None:
            return []
        task, line = self.lines.origin(number)
        begun = self.attempts.begun(task, self.lines.last_at(task, number - 1), line)
        shown = task if self.task is None else None
        return [separator(attempt, shown) for attempt in begun]

    def replace_lines(self, lines: Lines, *, filtered: bool) -> None:
        """Shows other lines, from their end: no place among the old ones means anything."""
        lines.refresh()
        self.lines = lines
        self.filtered = filtered
        self._sources.clear()
        self.cursor = self.selection = None
        self.port.follow()

    @property
    def selected_lines(self) -> range:
        """The selected lines, as far as there are such lines."""
        if self.selection is None:
            return range(0)
        first, last = max(0, min(self.selection)), max(self.selection)
        return range(first, min(self.lines.count, last + 1))

    def _source(self, number: int) -> str | None:
        if self._order != self.lines.order or len(self._sources) > _KEPT:
            self._order = self.lines.order
            self._sources.clear()
        if number in self._sources:
            return self._sources[number]
        try:
            line = self.lines.line(number)
            source = _remark(line)
            if number and not line.data.rstrip(b"\r") and _remark(self.lines.line(number - 1)):
                source = ""
        except (IndexError, OSError):
            return None
        if not line.open:  # else it may still become an error
            self._sources[number] = source
        return source


def _remark(line: Line) -> str | None:
    return None if line.open or line.cut else remark_source(line.data)


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
            view.options = options

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

    @property
    def filters(self) -> bool:
        """A filter is set somewhere."""
        return bool(self._scanners)

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
        sources: dict[TaskId, StampedLines] = {**documents}
        if text:
            filtered = {name: Filtered(document, text) for name, document in documents.items()}
            scans = (one.scan() for one in filtered.values())
            self._scanners[task] = Scanner("filter", scans, FILTER_PAUSE)
            sources = {**filtered}
        return Merged(sources) if task is None else sources[task]


class AttemptStarts:
    """First lines of attempts: one log holds all attempts of its task. The lines stay as they are
    in the file, so numbers, counts and hits know nothing of the separators that are drawn between
    them."""

    def __init__(self, logs: LogStore) -> None:
        self._logs = logs
        self._attempts: dict[TaskId, tuple[AttemptStart, ...]] = {}
        self._lines: dict[tuple[TaskId, int], int] = {}
        """The first line of each attempt, where it has printed one."""

    def update(self, tasks: Iterable[TaskView]) -> bool:
        """Takes over the attempts of a snapshot; False when they are the same as before."""
        attempts = {task.id: task.attempts for task in tasks if task.attempts}
        if attempts == self._attempts:
            return False
        self._attempts = attempts
        return True

    def begun(self, task: TaskId, after: int, line: int) -> list[AttemptStart]:
        """The attempts that begin after line `after` of a task's log, up to `line`."""
        result = []
        for attempt in self._attempts.get(task, ()):
            first = self._first_line(task, attempt)
            if first is not None and after < first <= line:
                result.append(attempt)
        return result

    def _first_line(self, task: TaskId, attempt: AttemptStart) -> int | None:
        known = self._lines.get((task, attempt.number))
        if known is not None:
            return known
        file = self._logs.open(task)
        start = attempt.log_start
        if file.size <= start:
            return None
        first = Document(task, file).number_at(start)
        # The one before may have died in the middle of a line, which the new one then goes on
        # with: the separator comes behind it.
        first += start > 0 and file.read(start - 1, 1) != b"\n"
        self._lines[task, attempt.number] = first
        return first


def separator(attempt: AttemptStart, task: TaskId | None) -> str:
    """`── attempt 2 · 12:04:11 ──`; with the task, where logs are merged."""
    when = time_of_day(attempt.time)
    whose = f"{task} " if task is not None else ""
    return f"── {whose}attempt {attempt.number} · {when} ──"
