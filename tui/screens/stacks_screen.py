"""Stacks screen: what every task of a run is doing, in groups, and one group in full."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import ClassVar

from rich.text import Text
from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import DataTable, Static

from launcher.errors import TfmuxError
from launcher.history.control import STACKS_SECONDS, RunControl
from launcher.ids import TaskId, TaskRank, named_ranks
from launcher.quantities import counted
from launcher.run.stack_groups import ProcessStack, StackFrame, StackGroup, Stacks, ThreadStack
from launcher.run.states import RunPhase
from tui.format import time_of_day
from tui.screens.page import fit
from tui.screens.run_page import RunPage
from tui.tables import Cells, TableRow, right
from tui.widgets.footer import KeyFooter
from tui.widgets.header import RunHeader
from tui.widgets.table import Table

_MOST_TASKS = 32
"""Tasks of a group that are shown in full."""
_FOLDED_FROM = 3
"""Frames of libraries in a row from which on the first one stands for all."""
_FUNCTION_CELLS = 24
"""Cells of the longest function behind which the column of the files begins."""
_INSTALLED = re.compile(r".*/(?:site-packages|dist-packages|lib/python[0-9.]+)/")


class StacksScreen(RunPage):
    """Asks all hosts when it is opened and when a person asks again; what is shown stays."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,b", "back", "Back to the logs", id="stacks.back"),
        Binding("f5", "again", "Ask all hosts again", id="stacks.again"),
        Binding("z", "zoom", "The group alone, and back", id="stacks.zoom"),
    ]
    ABOUT_TASKS = True

    def __init__(
        self,
        control: RunControl,
        alert: Callable[[], str] = str,
        task: TaskId | None = None,
    ) -> None:
        """The cursor is on the group of `task` at first."""
        super().__init__(control, alert)
        self._sought = task
        self._found: Stacks | None = None
        self._groups = Table("groups", "Groups", fills=2, fits=True)
        self._missing = Static(id="missing", markup=False)
        self._full = Static(id="full", markup=False)
        self._box = VerticalScroll(self._full, id="stack", classes="framed")

    def compose(self) -> ComposeResult:
        yield RunHeader()
        yield self._groups
        yield self._missing
        yield self._box
        yield KeyFooter()

    def on_mount(self) -> None:
        fit(self)
        self._groups.display = self._box.display = False  # until there is something in them
        self._show_header()
        self.set_interval(1.0, self._show_header)
        self.action_again()

    def _show_header(self) -> None:
        if self.app.screen is self:
            hints = [("stacks.back", "back"), ("stacks.again", "again"), ("stacks.zoom", "zoom")]
            hints += [("task.restart", "restart")] if self.subject is not None else []
            self.show_run([*hints, ("cause", "cause"), ("help", "help")])

    @property
    def subject(self) -> TaskId | None:
        found, key = self._found, self._groups.key
        if found is None or key is None or int(key) >= len(found.groups):
            return None
        tasks = found.groups[int(key)].tasks
        return tasks[0] if len(tasks) == 1 else None

    def action_again(self) -> None:
        """Asks all hosts; until they have answered, what they said before stays."""
        if self._control.snapshot().state is RunPhase.ENDED:
            self._say("the run is over; there are no stacks to take")
        else:
            self._say("asking all hosts …")
            self._ask()

    @work(group="stacks", exclusive=True)
    async def _ask(self) -> None:
        looking = asyncio.wrap_future(self._control.request_stacks())
        try:
            found = await asyncio.wait_for(looking, STACKS_SECONDS)
        except TimeoutError:
            self._say(f"the launcher process has not answered within {STACKS_SECONDS:.0f} s")
        except TfmuxError as error:
            self._say(str(error))
        else:
            first, self._found = self._found is None, found
            self._show(found)
            if first:
                self._groups.display = self._box.display = True
                self.set_focus(self._groups)
                groups = enumerate(found.groups)
                if at := [str(n) for n, one in groups if self._sought in one.tasks]:
                    self._groups.go_to(at[0])

    def _say(self, text: str) -> None:
        self._missing.update(Content(text))
        self._missing.display = bool(text)

    def _show(self, found: Stacks) -> None:
        groups = found.groups
        places = counted(len(groups), "place")
        ranks = sum(len(one.ranks) for one in groups)
        number = sum(len(one.members) for one in groups)
        those = counted(number, "rank" if ranks == number > 0 else "task")
        if 0 < ranks < number:
            those = f"{counted(number - ranks, 'task')} and {counted(ranks, 'rank')}"
        self._groups.border_title = Content(f"{those} in {places} at {time_of_day(found.time)}")
        rows = [
            TableRow(str(number), partial(group_cells, one, guilty=found.blames(one)))
            for number, one in enumerate(groups)
        ]
        what = right("ranks" if ranks == number > 0 else "tasks")
        self._groups.show([what, "which", "where"], rows)
        self._say("\n".join(f"{one.name}: {one.reason}" for one in found.unanswered))
        if not groups and not found.unanswered:
            self._say("no task runs now")
        self._show_group()

    @on(DataTable.RowHighlighted, "#groups")
    def _show_group(self) -> None:
        """Shows the tasks of the group under the cursor in full."""
        found, key = self._found, self._groups.key
        if found is None or key is None or int(key) >= len(found.groups):
            self._full.update("")
            return
        group = found.groups[int(key)]
        self._box.border_title = Content(f"{group.title}")
        self._full.update(group_text(found, group, whole=not self._groups.display))
        self._show_header()
        self._box.scroll_home(animate=False)

    @on(DataTable.RowSelected, "#groups")
    def action_zoom(self) -> None:
        """Shows the group alone, or beside the others again."""
        if self._found is None:
            return
        alone = self._groups.display and bool(self._found.tasks)
        self._groups.display = not alone
        self._show_group()
        self.set_focus(self._box if alone else self._groups)

    def action_back(self) -> None:
        """Out of the zoom, then back to the logs."""
        if self._found is not None and not self._groups.display:
            self.action_zoom()
        else:
            self.app.pop_screen()


def group_cells(group: StackGroup, *, guilty: bool) -> Cells:
    """A group's row; that of a guilty task is marked."""
    alone = len(group.members) == 1
    mark = "! " if guilty else ""
    names = Text(f"{mark}{group.names}", "bold" if alone else "", no_wrap=True)
    return [right(str(len(group.members))), names, Text(group.where)]


def group_text(found: Stacks, group: StackGroup, *, whole: bool) -> Text:
    """The tasks and ranks of a group, as many as fit; `whole`: with all frames of libraries. Of a
    task that has started several ranks only the processes of those that are in the group."""
    tasks = {one.task: one for one in found.tasks}
    text = Text()
    for member in group.members[:_MOST_TASKS]:
        if isinstance(member, TaskRank):
            one = tasks[member.task]
            processes = one.processes_of(member)
        else:
            one = tasks[member]
            processes = one.processes
        text.append(f"{named_ranks([member])} on {one.host}\n", "bold")
        for process in processes:
            text.append_text(process_text(process, whole=whole))
        text.append("\n")
    if (more := len(group.members) - _MOST_TASKS) > 0:
        text.append(f"and {counted(more, 'other')} in the same place")
    return text


def process_text(process: ProcessStack, *, whole: bool) -> Text:
    """A process: what it does, then its threads, that of its program first. The user's own frames
    are bold, with their files as seen from the folder of all of them."""
    by = "" if process.way == "proc" else f"; stack by {process.way}"
    note = f" ({process.note})" if process.note else ""
    text = Text(f"  {process.state}{by}{note}\n")
    text.append(f"  process {process.pid}: {process.command}\n", "dim")
    program = process.program
    threads = sorted(process.threads, key=lambda one: (one is not program, not one.is_own))
    folder = own_folder(frame for one in threads for frame in one.frames)
    for thread in threads:
        alone = thread is program or thread.is_own
        text.append_text(_thread_text(thread, folder, whole=whole, alone=alone))
    if process.unlisted:
        text.append(f"    and {process.unlisted} more threads\n")
    if process.files:
        text.append(f"    open files: {', '.join(process.files)}\n", "dim")
    return text


def _thread_text(thread: ThreadStack, folder: str, *, whole: bool, alone: bool) -> Text:
    """A thread and its frames, the innermost first; of one that is not `alone`, all in libraries,
    the innermost stands for the others."""
    text = Text(f"    thread {thread.name}\n", "bold" if alone else "dim")
    names = [frame.function for frame in thread.frames]
    cells = max((len(name) for name in names if len(name) <= _FUNCTION_CELLS), default=0)
    for frames in _runs(thread.frames):
        shown = frames if whole or (alone and len(frames) < _FOLDED_FROM) else frames[:1]
        if not frames[0].in_library:
            shown = frames
        for frame in shown:
            place = f"{short_path(frame, folder)}:{frame.line}" if frame.file else ""
            name = frame.function or "(no name)"
            text.append(f"      {name:<{cells}}  {place}".rstrip(), _frame_style(frame))
            hidden = len(frames) - len(shown)
            text.append(f"  ← {hidden} more" if hidden else "", "dim")
            text.append("\n")
    return text


def _runs(frames: Sequence[StackFrame]) -> list[list[StackFrame]]:
    """The frames, those of libraries in a row together."""
    runs: list[list[StackFrame]] = []
    for frame in frames:
        if runs and frame.in_library == runs[-1][0].in_library:
            runs[-1].append(frame)
        else:
            runs.append([frame])
    return runs


def _frame_style(frame: StackFrame) -> str:
    return "dim" if frame.in_library and frame.file else "bold" if frame.file else ""


def own_folder(frames: Iterable[StackFrame]) -> str:
    """The folder of all files of the user's code; empty where they have none in common."""
    files = {frame.file for frame in frames if not frame.in_library}
    folders = [os.path.dirname(file) for file in files if os.path.isabs(file)]
    return os.path.commonpath(folders) if folders else ""


def short_path(frame: StackFrame, folder: str) -> str:
    """The file of a frame without what says nothing: the folder of installed code, or that of all
    the user's files."""
    if frame.in_library:
        return _INSTALLED.sub("", frame.file)
    inside = folder not in ("", "/") and frame.file.startswith(f"{folder}/")
    return frame.file[len(folder) + 1 :] if inside else frame.file
