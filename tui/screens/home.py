"""The home screen: saved clusters, living runs, past runs, demos."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import ClassVar

from rich.text import Text
from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from launcher.cluster import library
from launcher.cluster.file import load
from launcher.cluster.library import Deleted, SaveError
from launcher.errors import TfmuxError
from launcher.session.attach import StoredRun
from launcher.session.control import RunControl
from launcher.session.discovery import ActiveRun, ActiveRuns, active_runs
from launcher.session.history import FinishedRun, RunSummary
from launcher.store.runs import RunFolder
from tui.catalog import Catalog, ClusterEntry, DemoEntry, Entry, RunEntry
from tui.format import StatusColor
from tui.keys import key_of
from tui.screens.ask import AskText
from tui.screens.editor.screen import EditorScreen
from tui.screens.editor.templates import TemplateDialog
from tui.screens.home_rows import Rows, detail
from tui.screens.kill_living import KillLiving
from tui.screens.page import OpenRun, Page
from tui.screens.preflight import PreflightScreen
from tui.screens.prompts import Asker
from tui.sessions import Sessions
from tui.widgets.colours import status_colours
from tui.widgets.footer import KeyFooter

LOOK_AGAIN = 2.0
"""Seconds between two looks at this machine's files; hosts are asked only when one comes here."""
DETAIL_FROM = 110
"""Cells of width from which on the chosen row is told about beside the list."""


class HomeScreen(Page):
    """One list of everything there is; Enter opens what the cursor is on."""

    CSS_PATH = "home.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "move(1)", "Down", id="home.down"),
        Binding("k", "move(-1)", "Up", id="home.up"),
        Binding("l", "launch", "Launch at once", id="home.launch"),
        Binding("t", "test", "Test: look at every host", id="home.test"),
        Binding("e", "edit", "Edit the cluster", id="home.edit"),
        Binding("n", "new", "New cluster", id="home.new"),
        Binding("c", "copy", "Copy the cluster", id="home.copy"),
        Binding("r", "rename", "Rename the cluster", id="home.rename"),
        Binding("x,delete", "remove", "Delete the cluster, or kill the run", id="home.remove"),
        Binding("u,ctrl+z", "undo", "Undo the deletion", id="home.undo"),
        Binding("f5", "again", "Look again, and ask the hosts", id="home.again"),
    ]

    def __init__(self, sessions: Sessions, files: Sequence[Path] = ()) -> None:
        super().__init__()
        self.sessions = sessions
        self.asker = Asker()
        self._shelf = Catalog(files)
        self._clusters: list[ClusterEntry] = []
        self._runs: list[RunEntry] = []
        self._demos: list[DemoEntry] = []
        self._living: dict[str, ActiveRun] = {}
        self._unreadable: dict[str, str] = {}
        self._asked: set[str] = set()
        """Runs whose hosts have said how they stand."""
        self._new: str | None = None
        """The row that was just made: the cursor goes there once it is to be seen."""
        self._shown: object = None
        self._deleted: list[Deleted] = []

    def compose(self) -> ComposeResult:
        """From top to bottom."""
        yield Static("tfmux", id="title", markup=False)
        with Horizontal():
            yield OptionList(id="shelf", markup=False)
            with VerticalScroll(id="detail", can_focus=False):
                yield Static(id="about", markup=False)
        yield KeyFooter()

    def on_mount(self) -> None:
        self.asker.serve(self.app)
        self.set_focus(self.query_one(OptionList))
        self.set_interval(LOOK_AGAIN, self._look_if_shown)

    def on_screen_resume(self) -> None:
        """Coming here again, things may have changed."""
        self.action_again()

    def on_resize(self) -> None:
        self.query_one("#detail").display = self.size.width >= DETAIL_FROM
        self._shown = None
        self.call_after_refresh(self._show)

    # looking

    def action_again(self) -> None:
        """Looks at the files, and asks the hosts of runs that nobody here tends."""
        self._asked.clear()
        self._look()
        self._ask()

    def _look_if_shown(self) -> None:
        if self.is_current:
            self._look()

    @work(thread=True, exclusive=True, group="look", exit_on_error=False)
    def _look(self) -> None:
        found = (self._shelf.clusters(), self._shelf.runs(), self._shelf.demos())
        self.app.call_from_thread(self._take, *found)

    @work(thread=True, exclusive=True, group="ask", exit_on_error=False)
    def _ask(self) -> None:
        before = {folder.run_id for folder in RunFolder.all()}
        # A loop of its own: logging in to many hosts must not slow the keys.
        found = asyncio.run(active_runs())
        self.app.call_from_thread(self._take_living, before, found)

    def _take(
        self, found: list[ClusterEntry], runs: list[RunEntry], demos: list[DemoEntry]
    ) -> None:
        self._clusters, self._runs, self._demos = found, runs, demos
        self._show()

    def _take_living(self, asked: set[str], found: ActiveRuns) -> None:
        self._asked = asked
        self._living = {run.run_id: run for run in found.runs}
        self._unreadable = {
            run.run_id: f"could not be read: {run.reason}" for run in found.unreadable
        }
        self._show()

    # showing

    def _sections(self) -> list[tuple[str, str, list[Entry]]]:
        """Title, what is said when there is none, and the rows."""
        runs = [
            RunEntry(
                self._told(run.summary),
                run.launcher,
                self._living.get(run.summary.run_id),
                run.asked or run.summary.run_id in self._asked,
            )
            for run in self._runs
        ]
        return [
            ("Clusters", "none yet: n makes one from a template", list(self._clusters)),
            ("Living runs", "", [run for run in runs if run.lives]),
            ("Past runs", "", [run for run in runs if not run.lives]),
            ("Demos", "", list(self._demos)),
        ]

    def _told(self, told: RunSummary) -> RunSummary:
        problem = self._unreadable.get(told.run_id)
        return told if problem is None else replace(told, problem=problem)

    def _show(self) -> None:
        if not self._demos:
            return  # the first look is not back yet
        sections = self._sections()
        shelf = self.query_one(OptionList)
        width = shelf.size.width - 4
        state = (width, sections, int(time.time() / 30))
        if state == self._shown or width <= 0:
            return
        self._shown = state
        rows = Rows(width, time.time(), self._colours())
        options: list[Option] = []
        for title, nothing, entries in sections:
            if not entries and not nothing:
                continue
            if options:
                options.append(Option("", disabled=True))
            options.append(Option(rows.title(title, len(entries)), disabled=True))
            if not entries:
                options.append(Option(Text(f"  {nothing}", "dim"), disabled=True))
            options += [Option(rows.row(entry), id=entry.key) for entry in entries]
        ids = [option.id for option in options]
        here = self._here(shelf)
        if self._new in ids:
            here, self._new = self._new, None
        at = shelf.highlighted
        shelf.clear_options()
        shelf.add_options(options)
        if here is not None and here in ids:
            shelf.highlighted = ids.index(here)
        elif any(ids):
            after = [i for i, name in enumerate(ids) if name and i >= (at or 0)]
            shelf.highlighted = after[0] if after else max(i for i, n in enumerate(ids) if n)
        if shelf.highlighted is not None and shelf.highlighted <= 2:
            shelf.scroll_to(y=0, animate=False)
        self._tell()

    def _colours(self) -> dict[StatusColor, str]:
        return status_colours(self.app)

    @staticmethod
    def _here(shelf: OptionList) -> str | None:
        if shelf.highlighted is None:
            return None
        return shelf.get_option_at_index(shelf.highlighted).id

    @property
    def entry(self) -> Entry | None:
        """What the cursor is on."""
        here = self._here(self.query_one(OptionList))
        every = (entry for _, _, entries in self._sections() for entry in entries)
        return next((entry for entry in every if entry.key == here), None)

    @on(OptionList.OptionHighlighted)
    def _tell(self) -> None:
        entry = self.entry
        self.query_one("#about", Static).update(
            Text("") if entry is None else detail(entry, time.time(), self._colours())
        )
        self.query_one(KeyFooter).show(self._keys(entry))

    def _keys(self, entry: Entry | None) -> list[tuple[str, str]]:
        keys: list[tuple[str, str]] = []
        match entry:
            case ClusterEntry(saved=saved):
                keys = [("Enter", "open"), ("l", "launch"), ("t", "test"), ("c", "copy")]
                keys += [("r", "rename"), ("x", "delete")] if saved else []
            case RunEntry() if entry.lives:
                keys = [("Enter", "attach"), ("x", "kill")]
            case RunEntry():
                keys = [("Enter", "open")]
            case DemoEntry():
                keys = [("Enter", "launch"), ("e", "look"), ("c", "copy")]
        if self._deleted:
            keys.append(("u", "undo"))
        return [
            *keys,
            ("n", "new"),
            (key_of(self, "kill_all"), "kill all"),
            ("q", "leave"),
            ("F5", "look again"),
        ]

    # doing

    def leave(self) -> None:
        """The home screen is left to the shell."""
        self.app.exit()

    def action_move(self, by: int) -> None:
        """Down or up."""
        shelf = self.query_one(OptionList)
        if by > 0:
            shelf.action_cursor_down()
        else:
            shelf.action_cursor_up()

    @on(OptionList.OptionSelected)
    def _selected(self) -> None:
        match self.entry:
            case ClusterEntry() as entry:
                self.app.push_screen(self.editor(entry.path))
            case DemoEntry():
                self.action_launch()
            case RunEntry() as entry if entry.lives:
                self._attach_to(entry)
            case RunEntry() as entry:
                self._open_past(entry)

    def editor(self, path: Path) -> EditorScreen:
        """The editor of a file."""
        return EditorScreen(path, self.sessions, self.asker)

    def action_edit(self) -> None:
        """Opens the editor; a demo's file is only looked at there."""
        if isinstance(entry := self.entry, ClusterEntry | DemoEntry):
            self.app.push_screen(self.editor(entry.path))

    def action_launch(self) -> None:
        """Launches the cluster or demo at once."""
        entry = self.entry
        if not isinstance(entry, ClusterEntry | DemoEntry):
            return
        try:
            cluster = load(entry.path, for_launch=True)
            text = entry.path.read_text(encoding="utf-8")
            session = self.sessions.launch(cluster, text, self.asker)
        except (TfmuxError, OSError) as error:
            self._complain(error)
            return
        self._open(session)

    def action_test(self) -> None:
        """Looks at every host of the cluster, and starts nothing."""
        entry = self.entry
        if isinstance(entry, ClusterEntry) and entry.cluster is not None:
            self.app.push_screen(
                PreflightScreen(entry.cluster, entry.path, self.sessions, self.asker)
            )

    def action_new(self) -> None:
        """Chooses a template, and opens the editor on a new cluster."""

        def made(path: Path | None) -> None:
            if path is not None:
                self.app.push_screen(self.editor(path))

        self.app.push_screen(TemplateDialog(), made)

    def action_copy(self) -> None:
        """Saves a copy under another name."""
        entry = self.entry
        if isinstance(entry, ClusterEntry | DemoEntry):
            name = entry.path.stem
            wanted = library.free_name(name if isinstance(entry, DemoEntry) else f"{name}-2")
            self._ask_name("Copy", wanted, partial(library.duplicate, entry.path))

    def action_rename(self) -> None:
        """Gives a saved cluster another name."""
        entry = self.entry
        if isinstance(entry, ClusterEntry) and entry.saved:
            name = entry.path.stem
            self._ask_name(f"Rename {name}", name, partial(library.rename, entry.path))

    def _ask_name(self, title: str, name: str, act: partial[Path]) -> None:
        def named(answer: str | None) -> None:
            if answer is None:
                return
            try:
                self._new = f"cluster {act(answer)}"
            except SaveError as error:
                self._complain(error)
            self._look()

        dialog = AskText(title, name, library.name_problem, "the name of the new file")
        self.app.push_screen(dialog, named)

    def action_remove(self) -> None:
        """Deletes the saved cluster (u undoes it), or ends the living run after a question."""
        match self.entry:
            case ClusterEntry(saved=True) as entry:
                try:
                    self._deleted.append(library.delete(entry.path))
                except SaveError as error:
                    self._complain(error)
                    return
                self.notify(f"{entry.path.stem} is deleted; u brings it back")
                self._look()
            case ClusterEntry() as entry:
                self.notify(f"{entry.path} is not a saved cluster: delete it yourself")
            case RunEntry() as entry if entry.lives:
                self._kill([entry])

    def action_undo(self) -> None:
        """Brings the last deleted cluster back."""
        if not self._deleted:
            self.notify("nothing was deleted here")
            return
        try:
            path = self._deleted.pop().restore()
        except SaveError as error:
            self._complain(error)
            return
        self._new = f"cluster {path}"
        self.notify(f"{path.stem} is back")
        self._look()

    def kill_living(self) -> None:
        """F9: every living run is listed; after one question all are ended."""
        for screen in self.app.screen_stack:
            if isinstance(screen, KillLiving):
                screen.action_kill()
                return
        self._kill([run for run in self._sections()[1][2] if isinstance(run, RunEntry)])

    def _kill(self, runs: list[RunEntry]) -> None:
        if not runs:
            count = len(self._unreadable)
            doubt = f" found; {count} could not be looked at, tfmux ps names them" if count else ""
            self.notify(f"no active runs{doubt}")
            return
        self.app.push_screen(KillLiving(runs, self.sessions, self.asker))

    @work(thread=True, exclusive=True, group="open", exit_on_error=False)
    def _attach_to(self, entry: RunEntry) -> None:
        try:
            run = self.sessions.attach(entry.summary.run_id, self.asker)
        except (TfmuxError, OSError) as error:
            self.app.call_from_thread(self._complain, error)
            return
        self.app.call_from_thread(self._open, run)

    def _open(self, control: RunControl) -> None:
        self.post_message(OpenRun(control))

    def _complain(self, error: Exception) -> None:
        self.notify(
            str(error), title="This did not work", severity="error", timeout=12, markup=False
        )

    @work(thread=True, exclusive=True, group="open", exit_on_error=False)
    def _open_past(self, entry: RunEntry) -> None:
        try:
            run = FinishedRun(StoredRun(entry.summary.folder))
        except (TfmuxError, OSError) as error:
            self.app.call_from_thread(self._complain, error)
            return
        self.app.call_from_thread(self._open, run)
