"""Cause screen: which task is guilty of a failure or a hang, and the evidence, each line of which
leads to its place in a log or among the stacks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from functools import partial
from typing import ClassVar

from rich.cells import cell_len
from rich.text import Text
from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widgets import DataTable, Static

from launcher.frozen import frozen
from launcher.history.control import RunControl
from launcher.ids import TaskId, named_ranks
from launcher.printable import printable
from launcher.quantities import clock, counted
from launcher.run.cause import grouped
from launcher.run.snapshot import HostView, Snapshot, TaskView
from launcher.run.states import HostState, RunPhase, TaskState
from tui.format import StatusColor, time_of_day
from tui.log.document import Document
from tui.log.rows import without_prefix
from tui.log.sanitise import plain_text
from tui.outcome import told
from tui.screens.copied_report import REPORT_ABOUT, copy_report
from tui.screens.page import fit
from tui.screens.run_page import RunPage
from tui.screens.stacks_screen import StacksScreen
from tui.tables import Cells, TableRow
from tui.widgets.colours import status_colours
from tui.widgets.footer import KeyFooter, stacks_hint
from tui.widgets.header import RunHeader
from tui.widgets.table import Table

_MOST_TASKS = 32
_MOST_HOSTS = 4
"""Lost hosts that are named."""
_MOST_LINES = 64
"""Lines of evidence that are shown."""
_SEARCHED_LINES, _SEARCHED_BYTES = 2_000, 2_000_000
"""The end of a log in which evidence is looked for: the verdict has read far less."""
_TITLES: list[str | Text] = ["task", "host", "what points to it"]
_TEXT = 2
"""The column with the texts."""


@frozen
class EvidenceRow:
    """A row of the page."""

    text: str
    """What it says, printable."""
    task: TaskId | None = None
    """The task to which it leads."""
    names: str = ""
    """The tasks that it is about."""
    host: str = ""
    line: str | None = ""
    """Text that its line in the log holds; empty for the end of the log, None for what a stack or a
    process shows."""
    guilty: bool = False
    """The task is the cause itself."""


class CauseScreen(RunPage):
    """Follows the run: the verdict of a hang goes when the run goes on."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,C", "app.pop_screen", "Back to the logs", id="cause.back"),
        Binding("enter", "go", "To its place in the log", id="cause.go"),
        Binding("y", "report", "Copy a report", id="report", tooltip=REPORT_ABOUT),
    ]
    ABOUT_TASKS = True

    def compose(self) -> ComposeResult:
        yield RunHeader()
        yield Static(id="sentence", markup=False)
        yield Table("evidence", "Evidence", fills=_TEXT, fits=True)
        yield Static(id="whole", markup=False)
        yield KeyFooter()

    def on_mount(self) -> None:
        fit(self)
        self._rows: list[EvidenceRow] = []
        self._show()
        self.set_focus(self.query_one(Table))
        self.set_interval(1.0, self._show)

    def on_resize(self) -> None:
        self.call_after_refresh(self._show)

    def _show(self) -> None:
        if self.app.screen is not self:
            return
        hints = [("cause.back", "back"), ("cause.go", "to its place"), ("report", "copy report")]
        hints += stacks_hint(self._control.snapshot().state)
        if self.subject is not None and self.check_action("restart", ()):
            hints.append(("task.restart", "restart"))
        snapshot = self.show_run([*hints, ("help", "help")])
        bad = status_colours(self.app)[StatusColor.BAD]
        text, surety = cause_sentence(snapshot)
        sentence = Text(text, f"bold {bad}" if surety else "")
        self.query_one("#sentence", Static).update(
            sentence.append(f"\n{surety}", "default not bold") if surety else sentence
        )
        self._rows = list(evidence_rows(snapshot, time.time()))
        table = self.query_one(Table)
        table.display = bool(self._rows)
        table.show(
            _TITLES,
            [TableRow(str(n), partial(_cells, row)) for n, row in enumerate(self._rows)],
        )
        self._show_whole()

    @on(DataTable.RowHighlighted, "#evidence")
    def _show_whole(self) -> None:
        """Shows the row under the cursor as a whole, where its line has no room in the table."""
        row, table = self._row, self.query_one(Table)
        cut = row is not None and cell_len(row.text) > table.ordered_columns[_TEXT].width
        self.query_one("#whole", Static).update(Content(row.text if row and cut else ""))

    @property
    def _row(self) -> EvidenceRow | None:
        key = self.query_one(Table).key
        return self._rows[int(key)] if key is not None and int(key) < len(self._rows) else None

    @property
    def subject(self) -> TaskId | None:
        row = self._row
        return None if row is None else row.task

    @work(group="commands", exclusive=True)
    async def action_report(self) -> None:
        """Copies the cause and what a colleague needs to know beside it."""
        await copy_report(self.app, self._control)

    @on(DataTable.RowSelected, "#evidence")
    @work(group="commands", exclusive=True)
    async def action_go(self) -> None:
        """Goes to the line in the log of its task, or to its stack; where it is not there any more,
        to the end of the log."""
        row = self._row
        if row is None or row.task is None:
            self.notify("this line leads to no task", timeout=3)
            return
        snapshot = self._control.snapshot()
        if row.line is None and snapshot.task(row.task).state.live:
            self.app.switch_screen(StacksScreen(self._control, self._alert, row.task))
            return
        found = None
        if row.line:
            found = await asyncio.to_thread(_place, self._control, row.task, row.line)
            if self.app.screen is not self:  # a person has gone elsewhere meanwhile
                return
        logs = self.logs
        self.app.pop_screen()
        logs.area.show_line(row.task, found)
        if found is None and row.line != "":
            kept = f"; the stacks are in {snapshot.hang.file}" if snapshot.hang else ""
            why = f"{row.task} has ended{kept}" if row.line is None else "its line is not there"
            self.app.notify(f"the end of the log of {row.task}: {why}", timeout=8)


def cause_sentence(snapshot: Snapshot) -> tuple[str, str]:
    """The verdict, and how sure it is; where there is none, what is known without it."""
    verdict = snapshot.verdict
    if verdict is not None:
        sure = "this is certain" if verdict.sure else "probable: another task may be guilty"
        return told(verdict.text), sure
    if snapshot.first_failure is not None:
        return "Nothing points to one cause. This task failed first:", ""
    if snapshot.halted:
        return "Nothing points to one cause. Processes of these tasks make no progress:", ""
    if snapshot.stalled:
        return "Nothing points to one cause. These tasks have stalled:", ""
    if lost := [host for host in snapshot.hosts if host.state is HostState.LOST]:
        tell = _host_lost_at_end if snapshot.state is RunPhase.ENDED else _lost_host
        return "\n".join(map(tell, lost[:_MOST_HOSTS])), ""
    return "No task has failed, and none has stalled.", ""


def _lost_host(host: HostView) -> str:
    """What is known of a host that does not answer, and what becomes of its tasks."""
    text = f"{host.name} is lost ({host.reason or 'no answer'}); tfmux tries to reconnect."
    if host.lease_until is not None:
        text += f" Without that its agent ends the tasks at {time_of_day(host.lease_until)}."
    return told(text)


def _host_lost_at_end(host: HostView) -> str:
    """What is known of a host that did not answer when the run ended; the receipt has the rest."""
    return told(f"{host.name} was lost when the run ended ({host.reason or 'no answer'}).")


def evidence_rows(snapshot: Snapshot, now: float) -> Iterator[EvidenceRow]:
    """The guilty tasks, then what points to them; without a verdict, the tasks that failed or have
    stalled."""
    tasks = {task.id: task for task in snapshot.tasks}
    verdict, failure = snapshot.verdict, snapshot.first_failure
    if verdict is not None:
        guilty = verdict.tasks
    elif failure is not None:
        guilty = (failure.task, *failure.others)
    else:
        lost = [task for task in snapshot.tasks if task.state is TaskState.LOST]
        guilty = tuple(task.id for task in snapshot.halted or snapshot.stalled or lost)
    for name in guilty[:_MOST_TASKS]:
        if name in tasks:
            text = _state(tasks[name], snapshot, now)
            host = printable(tasks[name].host)
            yield EvidenceRow(text, name, str(name), host, guilty=True)
    if len(guilty) > _MOST_TASKS:
        yield EvidenceRow(f"and {counted(len(guilty) - _MOST_TASKS, 'other task')}")
    for group in grouped(verdict.evidence)[:_MOST_LINES] if verdict is not None else ():
        known = [one for one in group if one.task in tasks]
        if not known:
            yield EvidenceRow(told(str(group[0])))
            continue
        one = known[0]
        hosts = list(dict.fromkeys(printable(tasks[each.task].host) for each in known))
        yield EvidenceRow(
            without_prefix(told(one.text)),
            one.task,
            named_ranks(dict.fromkeys(each.subject for each in known)),
            hosts[0] if len(hosts) == 1 else counted(len(hosts), "host"),
            one.text if one.in_log else None,
        )


def _state(task: TaskView, snapshot: Snapshot, now: float) -> str:
    text = task.exit_text
    if task.halted_since is not None:
        text += f", {task.halted} for {clock(now - task.halted_since)}"
    if snapshot.state is not RunPhase.ENDED and task.stalled_since is not None:
        text += f", stalled for {clock(now - task.stalled_since)}"
    return told(f"{text} ({task.reason})" if task.reason else text)


def _cells(row: EvidenceRow) -> Cells:
    mark = "! " if row.guilty else ""
    style = "bold" if row.guilty else ""
    return [
        Text(f"{mark}{row.names}", style, no_wrap=True),
        Text(row.host, no_wrap=True),
        Text(row.text, style),
    ]


def _place(control: RunControl, task: TaskId, text: str) -> int | None:
    """Number of the last line of a task's log that holds the text; None where there is none."""
    document = Document(task, control.logs.open(task))
    document.refresh()
    read = 0
    for number in reversed(range(max(0, document.count - _SEARCHED_LINES), document.count)):
        data = document.line(number).data
        read += len(data)
        if text in plain_text(data):
            return number
        if read > _SEARCHED_BYTES:
            break
    return None
