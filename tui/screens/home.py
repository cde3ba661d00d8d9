"""Home screen: saved clusters, active runs, past runs, demos."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import ClassVar

from rich.text import Text
from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, VerticalScroll
from textual.widgets import OptionList, Static

from launcher.cluster import library, load, name_problem
from launcher.cluster.library import Deleted
from launcher.cluster.saved_file import SaveError
from launcher.errors import TfmuxError
from launcher.session.attach import StoredRun
from launcher.session.history import FinishedRun
from tui import demos
from tui.catalog import Catalog, ClusterEntry, DemoEntry, Entries, Entry, RunEntry
from tui.keys import key_of
from tui.run_clients import RunClients
from tui.screens.dialogs import AskText
from tui.screens.editor.screen import EditorScreen
from tui.screens.editor.templates import TemplateDialog
from tui.screens.home_rows import Rows, detail
from tui.screens.kill_runs import KillRunsDialog
from tui.screens.page import STYLES, OpenRun, Page
from tui.screens.preflight import PreflightScreen
from tui.screens.prompts import PromptDialogs
from tui.widgets.colours import status_colours, theme_colour
from tui.widgets.footer import KeyFooter

POLL_SECONDS = 2.0
"""Between two reads of this machine's files; hosts are asked only when the screen is opened."""
BESIDE_FROM, BELOW_FROM = 180, 36
"""Cells of width from which on details of the row under the cursor are shown beside the list, and
rows of height from which on they are shown below it."""


class HomeScreen(Page):
    """One list of everything there is."""

    CSS_PATH: ClassVar = [STYLES, "home.tcss"]
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", "Open; a demo: launch", id="home.open"),
        Binding("j", "move(1)", "Down", id="home.down"),
        Binding("k", "move(-1)", "Up", id="home.up"),
        Binding("l", "launch", "Launch at once", id="home.launch"),
        Binding("t", "test", "Test: check every host", id="home.test"),
        Binding("e", "edit", "Edit the cluster", id="home.edit"),
        Binding("n", "new", "New cluster", id="home.new"),
        Binding("c", "copy", "Copy the cluster", id="home.copy"),
        Binding("r", "rename", "Rename the cluster", id="home.rename"),
        Binding("x,delete", "remove", "Delete the cluster, or kill the run", id="home.remove"),
        Binding("u,ctrl+z", "undo", "Undo the deletion", id="home.undo"),
        Binding("f5", "again", "Refresh, and ask the hosts", id="home.again"),
    ]

    def __init__(self, clients: RunClients, files: Sequence[Path] = ()) -> None:
        super().__init__()
        self.clients = clients
        self.prompts = PromptDialogs()
        self._catalog = Catalog(files)
        self._entries = Entries([], [], [], [])
        self._new = ""
        """The row that was just made: the cursor goes there once it is in the list."""
        self._shown: object = None
        self._deleted: list[Deleted] = []

    def compose(self) -> ComposeResult:
        yield Static("tfmux", id="title", markup=False)
        with Container(id="content"):
            yield OptionList(id="catalog", markup=False)
            with VerticalScroll(id="detail", can_focus=False):
                yield Static(id="about", markup=False)
        yield KeyFooter()

    def on_mount(self) -> None:
        self.prompts.serve(self.app)
        self.set_class(self.app.no_color, "-colourless")
        self.set_focus(self._list)
        self.set_interval(POLL_SECONDS, self._read_if_shown)

    def on_screen_resume(self) -> None:
        """Reads again: things may have changed meanwhile."""
        self.action_again()

    def on_resize(self) -> None:
        beside = self.size.width >= BESIDE_FROM
        self.set_class(beside, "-beside")
        self.set_class(not beside and self.size.height >= BELOW_FROM, "-below")
        self._shown = None
        self.call_after_refresh(self._show)

    @property
    def _list(self) -> OptionList:
        return self.query_one(OptionList)

    # reading

    def action_again(self) -> None:
        """Reads the files, and asks the hosts of runs that no launcher supervises."""
        self._catalog.forget_answers()
        self._read()
        self._ask_hosts()

    def _read_if_shown(self) -> None:
        if self.is_current:
            self._read()

    @work(thread=True, exclusive=True, group="read", exit_on_error=False)
    def _read(self) -> None:
        self.app.call_from_thread(self._accept, self._catalog.read())

    @work(thread=True, exclusive=True, group="ask", exit_on_error=False)
    def _ask_hosts(self) -> None:
        self._catalog.ask_hosts()
        self.app.call_from_thread(self._accept, self._catalog.read())

    def _accept(self, entries: Entries) -> None:
        self._entries = entries
        self._show()

    # showing

    def _show(self) -> None:
        rows_list = self._list
        width = rows_list.size.width - 4
        state = (width, self._entries, int(time.time() / 30))
        if not self._entries.demos or state == self._shown or width <= 0:
            return  # not read yet, or nothing new
        self._shown = state
        accent = theme_colour(self.app, "accent-text")
        rows = Rows(width, time.time(), status_colours(self.app), accent)
        nothing = f"none yet: {key_of(self, 'home.new')} makes one from a template"
        shown = rows.options(self._entries, nothing)
        ids = [option.id for option in shown]
        here = self._key
        if self._new in ids:
            here, self._new = self._new, ""
        at = rows_list.highlighted or 0
        rows_list.clear_options()
        rows_list.add_options(shown)
        places = [i for i, name in enumerate(ids) if name]
        after = (i for i in places if i >= at)
        rows_list.highlighted = ids.index(here) if here and here in ids else next(after, places[-1])
        if rows_list.highlighted <= 2:
            rows_list.scroll_to(y=0, animate=False)
        self._show_detail()

    @property
    def _key(self) -> str | None:
        """Key of the row under the cursor."""
        at = self._list.highlighted
        return None if at is None else self._list.get_option_at_index(at).id

    @property
    def entry(self) -> Entry | None:
        """The row under the cursor."""
        here = self._key
        every = (entry for entries in self._entries for entry in entries)
        return next((entry for entry in every if entry.key == here), None)

    @on(OptionList.OptionHighlighted)
    def _show_detail(self) -> None:
        entry = self.entry
        about = Text() if entry is None else detail(entry, status_colours(self.app))
        self.query_one("#about", Static).update(about)
        self.query_one(KeyFooter).show(self._hints(entry))

    def _hints(self, entry: Entry | None) -> list[tuple[str, str]]:
        hints: list[tuple[str, str]] = []
        match entry:
            case ClusterEntry(saved=saved):
                hints = [("home.open", "open"), ("home.launch", "launch"), ("home.test", "test")]
                hints.append(("home.copy", "copy"))
                hints += [("home.rename", "rename"), ("home.remove", "delete")] if saved else []
            case RunEntry(active=True):
                hints = [("home.open", "attach"), ("home.remove", "kill")]
            case RunEntry():
                hints = [("home.open", "open")]
            case DemoEntry():
                hints = [("home.open", "launch"), ("home.edit", "look"), ("home.copy", "copy")]
        if self._deleted:
            hints.append(("home.undo", "undo"))
        hints += [("home.new", "new"), ("kill_all", "kill all"), ("leave", "leave")]
        return [*hints, ("help", "help"), ("home.again", "refresh")]

    # commands

    def leave(self) -> None:
        self.app.exit()

    def action_move(self, by: int) -> None:
        """Moves the cursor down or up."""
        if by > 0:
            self._list.action_cursor_down()
        else:
            self._list.action_cursor_up()

    @on(OptionList.OptionSelected)
    def action_open(self) -> None:
        """Opens the editor or the run; launches a demo."""
        match self.entry:
            case ClusterEntry() as entry:
                self.app.push_screen(self.editor(entry.path))
            case DemoEntry():
                self.action_launch()
            case RunEntry() as entry:
                self._open_run(entry)

    @work(thread=True, exclusive=True, group="open", exit_on_error=False)
    def _open_run(self, entry: RunEntry) -> None:
        run_id, folder = entry.summary.run_id, entry.summary.folder
        try:
            if entry.active:
                run = self.clients.attach(run_id, self.prompts)
            else:
                run = FinishedRun(StoredRun(folder))
            self.post_message(OpenRun(run))
        except (TfmuxError, OSError) as error:
            self.app.call_from_thread(self._complain, error)

    def editor(self, path: Path) -> EditorScreen:
        return EditorScreen(path, self.clients, self.prompts)

    def action_edit(self) -> None:
        """Opens the editor; a demo's file can only be saved under another name there."""
        if isinstance(entry := self.entry, ClusterEntry | DemoEntry):
            self.app.push_screen(self.editor(entry.path))

    def action_launch(self) -> None:
        """Launches the cluster or demo at once."""
        if not isinstance(entry := self.entry, ClusterEntry | DemoEntry):
            return
        try:
            if isinstance(entry, DemoEntry):
                demos.check_machine()
            cluster = load(entry.path, for_launch=True)
            text = entry.path.read_text(encoding="utf-8")
            self.post_message(OpenRun(self.clients.launch(cluster, text, self.prompts)))
        except (TfmuxError, OSError) as error:
            self._complain(error)

    def action_test(self) -> None:
        """Checks every host of the cluster, and starts nothing."""
        entry = self.entry
        if isinstance(entry, ClusterEntry) and entry.cluster is not None:
            self.app.push_screen(
                PreflightScreen(entry.cluster, entry.path, self.clients, self.prompts)
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

    def _ask_name(self, title: str, name: str, change: Callable[[str], Path]) -> None:
        def named(answer: str | None) -> None:
            if answer is not None:
                self._change(lambda: change(answer))

        dialog = AskText(title, name, name_problem, "the name of the new file")
        self.app.push_screen(dialog, named)

    def _change(self, change: Callable[[], Path]) -> None:
        """Changes a saved cluster, and puts the cursor on its file."""
        try:
            self._new = f"cluster {change()}"
        except SaveError as error:
            self._complain(error)
        self._read()

    def action_remove(self) -> None:
        """Deletes the saved cluster, which can be undone, or kills the run after a question."""
        match self.entry:
            case ClusterEntry(saved=True, path=path):
                try:
                    self._deleted.append(library.delete(path))
                except SaveError as error:
                    self._complain(error)
                    return
                self.notify(f"{path.stem} is deleted; {key_of(self, 'home.undo')} brings it back")
                self._read()
            case ClusterEntry(path=path):
                self.notify(f"{path} is not a saved cluster: delete it yourself")
            case RunEntry(active=True) as entry:
                self._kill([entry])

    def action_undo(self) -> None:
        """Restores the last deleted cluster, which may be one of an earlier session."""
        deleted = self._deleted.pop() if self._deleted else next(library.deleted(), None)
        if deleted is not None:
            self._change(deleted.restore)
        else:
            self.notify("nothing is deleted")

    def kill_active_runs(self) -> None:
        for screen in self.app.screen_stack:
            if isinstance(screen, KillRunsDialog):
                screen.action_kill()
                return
        self._kill(self._entries.active)

    def _kill(self, runs: list[RunEntry]) -> None:
        if runs:
            self.app.push_screen(KillRunsDialog(runs, self.clients, self.prompts))
        elif count := len(self._catalog.unreadable):
            self.notify(f"no active runs found; {count} could not be read, tfmux ps names them")
        else:
            self.notify("no active runs")

    def _complain(self, error: Exception) -> None:
        self.notify(str(error), title="Error", severity="error", timeout=12, markup=False)
