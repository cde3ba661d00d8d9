"""Stacks screen: where the tasks of a run stand, in groups, and one group in full."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
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
from launcher.ids import TaskId, named_tasks
from launcher.quantities import counted
from launcher.run.stack_groups import StackGroup, Stacks
from launcher.run.states import RunPhase
from launcher.session.control import STACKS_SECONDS, RunControl
from tui.format import time_of_day
from tui.screens.page import fit
from tui.screens.run_page import RunPage
from tui.tables import Cells, TableRow, right
from tui.widgets.footer import KeyFooter
from tui.widgets.header import RunHeader
from tui.widgets.table import Table

_MOST_TASKS = 32
"""Tasks of a group that are shown in full."""
_TITLES: list[str | Text] = [right("tasks"), "which", "stand in"]


class StacksScreen(RunPage):
    """Asks all hosts when it is opened and when a person asks again; what is shown stays."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,b", "back", "Back to the logs", id="stacks.back"),
        Binding("f5", "again", "Ask all hosts again", id="stacks.again"),
        Binding("z", "zoom", "The group alone, or beside", id="stacks.zoom"),
    ]

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
            self.show_run([*hints, ("cause", "cause"), ("help", "help")])

    def action_again(self) -> None:
        """Asks all hosts; until they have answered, what they said before stays."""
        if self._control.snapshot().state is RunPhase.ENDED:
            self._say("the run is over: no task stands anywhere any more")
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
        self._groups.border_title = Content(
            f"{counted(len(groups), 'place')} where {counted(len(found.tasks), 'task')} "
            f"{'stands' if len(found.tasks) == 1 else 'stand'} at {time_of_day(found.time)}"
        )
        rows = [
            TableRow(str(number), partial(group_cells, one, guilty=found.blames(one)))
            for number, one in enumerate(groups)
        ]
        self._groups.show(_TITLES, rows)
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
        self._full.update(Content("\n".join(group_lines(found, group))))
        self._box.scroll_home(animate=False)

    @on(DataTable.RowSelected, "#groups")
    def action_zoom(self) -> None:
        """Shows the group alone, or beside the others again."""
        if self._found is None:
            return
        alone = self._groups.display and bool(self._found.tasks)
        self._groups.display = not alone
        self.set_focus(self._box if alone else self._groups)

    def action_back(self) -> None:
        """Out of the zoom, then back to the logs."""
        if self._found is not None and not self._groups.display:
            self.action_zoom()
        else:
            self.app.pop_screen()


def group_cells(group: StackGroup, *, guilty: bool) -> Cells:
    """A group's row; that of a guilty task is marked."""
    alone = len(group.tasks) == 1
    mark = "! " if guilty else ""
    names = Text(f"{mark}{named_tasks(group.tasks)}", "bold" if alone else "", no_wrap=True)
    return [right(str(len(group.tasks))), names, Text(group.where)]


def group_lines(found: Stacks, group: StackGroup) -> Iterator[str]:
    """The tasks of a group in full, as many as fit."""
    tasks = [one for one in found.tasks if one.task in group.tasks]
    for one in tasks[:_MOST_TASKS]:
        yield from one.lines()
        yield ""
    if len(tasks) > _MOST_TASKS:
        yield f"and {counted(len(tasks) - _MOST_TASKS, 'other task')} in the same place"
