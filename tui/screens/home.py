"""Home screen: what runs, what happened, what can be started, from top to bottom."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import ClassVar

from rich.text import Text
from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Vertical, VerticalScroll
from textual.content import Content
from textual.timer import Timer
from textual.widgets import DataTable, Input, Static

from launcher.cluster import library
from launcher.cluster.file_model import ClusterModel
from launcher.cluster.library import Deleted
from launcher.cluster.read import load
from launcher.cluster.saved_file import SaveError
from launcher.cluster.values import name_problem
from launcher.errors import TfmuxError
from launcher.history.again import EditableFile, editable_file
from launcher.history.control import RunControl
from launcher.history.deletion import delete_runs, results_of
from launcher.history.run_list import ListedRun
from launcher.history.stored import FinishedRun, StoredRun
from launcher.quantities import counted
from launcher.run.snapshot import Snapshot
from launcher.store.runs import RunFolder
from tui import demos
from tui.catalog import Catalog, ClusterEntry, DemoEntry, Entries, Entry
from tui.format import StatusColor
from tui.keys import key_of
from tui.run_clients import RunClients
from tui.screens.dialogs import AskText, Confirm, ask
from tui.screens.editor.screen import EditorScreen, edit_run
from tui.screens.editor.templates import TemplateDialog
from tui.screens.home_rows import (
    CLUSTER_ORDERS,
    CLUSTER_TITLES,
    DEMOS,
    GROUP_DETAILS,
    NEW,
    NO_ROW,
    RUN_ORDERS,
    Colours,
    cluster_row,
    demo_rows,
    detail,
    details_key,
    run_row,
    run_titles,
    title,
)
from tui.screens.kill_runs import KillRunsDialog
from tui.screens.page import STYLES, OpenRun, Page
from tui.screens.preflight_screen import PreflightScreen, Repair
from tui.screens.prompt_dialogs import PromptDialogs
from tui.tables import RowFilter, TableRow
from tui.widgets.colours import status_colours, theme_colour
from tui.widgets.footer import KeyFooter
from tui.widgets.prompt import Prompt
from tui.widgets.table import Table

REST_SECONDS = 0.15
"""Time for which the cursor is on a row before what only its details need is read."""
POLL_SECONDS = 2.0
"""Between two reads of this machine's files; hosts are asked only when the screen is opened."""
BESIDE_FROM, BELOW_FROM = 160, 36
"""Cells of width from which on details of the row under the cursor are shown beside the tables,
and rows of height from which on they are shown below; on a smaller screen only the text is that
may have no room in the row."""


class HomeScreen(Page):
    """Runs, active ones first; below them clusters, and the demos as a group of theirs."""

    CSS_PATH: ClassVar = [STYLES, "home.tcss"]
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", "Open", id="home.open"),
        Binding("tab", "other_table", "Runs, or clusters", id="home.other"),
        Binding("l", "launch", "Launch, or launch the run again", id="home.launch"),
        Binding("e,f4", "edit", "Edit the file of the run or cluster", id="home.edit"),
        Binding("slash", "filter", "Filter the rows", id="home.filter"),
        Binding("escape", "clear_filter", "Show all rows again", id="home.all"),
        Binding("T,f6", "test", "Test: check every host", id="home.test"),
        Binding("a", "new", "Add a cluster", id="home.new"),
        Binding("c", "copy", "Copy the cluster", id="home.copy"),
        Binding("f2", "rename", "Rename the cluster", id="home.rename"),
        Binding(
            "x,delete",
            "remove",
            "Delete the row, or kill the run",
            id="home.remove",
        ),
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
        self._demos_shown: bool | None = None
        """A person's wish; without one, demos are shown while there is no cluster."""
        self._deleted: list[Deleted] = []
        self._filter = RowFilter()
        self._details: tuple[object, tuple[Text, Text]] = None, (Text(), Text())
        """What was read of an entry, and which one that was, by `details_key`."""
        self._wanted: object = None
        """The one to be read last."""
        self._resting: Timer | None = None
        self._prompt = Prompt()
        # Kept, not looked up: the app may be left before all parts of the screen are there.
        self._runs = Table("runs", "Runs", fits=True, fills=-1)
        self._runs.display = False
        self._clusters = Table("clusters", "Clusters", fills=1)

    def compose(self) -> ComposeResult:
        yield Static(id="title", markup=False)
        with Container(id="content"):
            with Vertical(id="tables"):
                yield self._runs
                yield self._clusters
            with VerticalScroll(id="detail", classes="framed", can_focus=False):
                yield Static(id="about", markup=False)
        yield self._prompt
        yield KeyFooter()

    def on_mount(self) -> None:
        self.prompts.serve(self.app)
        self.set_focus(self._clusters)
        self.set_interval(POLL_SECONDS, self._read_if_shown)

    def on_screen_resume(self) -> None:
        """Reads again: things may have changed meanwhile."""
        self.action_again()

    def on_resize(self) -> None:
        beside = self.size.width >= BESIDE_FROM
        self.set_class(beside, "-beside")
        self.set_class(not beside and self.size.height >= BELOW_FROM, "-below")
        self.call_after_refresh(self._show)

    @property
    def _table(self) -> Table:
        """The table with the cursor."""
        return self._runs if self._runs.has_focus else self._clusters

    # reading

    def action_again(self) -> None:
        """Reads the files, and asks the hosts of runs that no launcher supervises."""
        self._catalog.forget_answers()
        self._read()
        self._ask_hosts()

    def _read_if_shown(self) -> None:
        # Textual calls a screen current that lies below another page, too.
        top = self.app.screen
        if top is self or (top.is_modal and self.is_current):
            self._read()

    @property
    def has_active_runs(self) -> bool:
        return bool(self._entries.active)

    def look_again(self) -> None:
        self._read()

    @work(thread=True, exclusive=True, group="read", exit_on_error=False)
    def _read(self) -> None:
        self.app.call_from_thread(self._accept, self._catalog.read())

    @work(thread=True, exclusive=True, group="ask", exit_on_error=False)
    def _ask_hosts(self) -> None:
        self._catalog.ask_hosts()
        self.app.call_from_thread(self._accept, self._catalog.read())

    def _accept(self, entries: Entries) -> None:
        first = not self._entries.demos
        self._entries = entries
        self._show()
        self._expect_launch()
        for screen in self.app.screen_stack:
            if screen is not self and isinstance(screen, Page):
                screen.show_hints()
        if first and entries.active:
            self.set_focus(self._runs)

    def _expect_launch(self) -> None:
        """Has a launch made ready of what is under the cursor, as often as the files are read."""
        match self.entry:
            case ClusterEntry(cluster=ClusterModel() as cluster):
                self.clients.expect_launch(ssh=cluster.uses_ssh)
            case DemoEntry():
                self.clients.expect_launch(ssh=False)

    # showing

    @on(Table.Ordered)
    def _show(self) -> None:
        if not self._entries.demos:  # not read yet
            return
        now, colours = time.time(), status_colours(self.app)
        active, clusters, past, _ = self._entries
        self.query_one("#title", Static).update(self._title())
        self._show_runs([*active, *past], now)
        rows = [
            cluster_row(entry, now, colours)
            for entry in self._clusters.ordered(clusters, CLUSTER_ORDERS)
        ]
        if not rows and not self._filter:
            none = Text(f"{key_of(self, 'home.new')} creates one from a template", "dim")
            rows = [TableRow(NEW, [Text("+ a cluster"), none, Text()])]
        shown = self._demos_are_shown or bool(self._filter)
        rows += demo_rows(self._entries.demos, shown=shown)
        rows = self._filter.of(rows)
        if self._filter and not rows and not self._runs.display:
            rows = [TableRow(NO_ROW, [Text("no row"), Text("has these words", "dim"), Text()])]
        self._clusters.border_title = Content(f"Clusters {len(clusters) or ''}".rstrip())
        self._clusters.show(CLUSTER_TITLES, rows)
        if self._new in [row.key for row in rows]:
            self.set_focus(self._clusters)
            self._clusters.go_to(self._new)
            self._new = ""
        self._show_detail()

    def _show_runs(self, runs: list[ListedRun], now: float) -> None:
        table, colours = self._runs, status_colours(self.app)
        width = self.query_one("#tables").size.width
        titles = run_titles(width)
        ordered = table.ordered(runs, [RUN_ORDERS[name] for name in titles])
        rows = [run_row(entry, now, colours, width) for entry in ordered]
        rows = self._filter.of(rows)
        table.show(list(titles.values()), rows)
        of = f"{len(rows)} of " if len(rows) < len(runs) else ""
        table.border_title = Content(f"Runs {of}{len(runs)}")
        if not rows and table.has_focus:
            self.set_focus(self._clusters)
        table.display = bool(rows)

    def _title(self) -> Text:
        count, colours = len(self._entries.active), status_colours(self.app)
        text = Text(no_wrap=True)
        text.append("tfmux", f"bold {theme_colour(self.app, 'accent-text')}")
        if count:
            text.append(f"   {counted(count, 'run')} active", f"bold {colours[StatusColor.GOOD]}")
        else:
            text.append("   no run is active", "dim")
        if self._filter:
            text.append(f"   rows with {self._filter.text}", f"bold {colours[StatusColor.BUSY]}")
        return text

    @property
    def _demos_are_shown(self) -> bool:
        return not self._entries.clusters if self._demos_shown is None else self._demos_shown

    @property
    def entry(self) -> Entry | None:
        """What is under the cursor."""
        here = self._table.key
        every = (entry for entries in self._entries for entry in entries)
        return next((entry for entry in every if entry.key == here), None)

    @on(DataTable.RowHighlighted)
    def _show_detail(self) -> None:
        entry, colours = self.entry, status_colours(self.app)
        box = self.query_one("#detail")
        whole = self.has_class("-beside") or self.has_class("-below")
        if entry is not None:
            name, about = title(entry), self._about(entry, colours, whole)
        else:
            name, sentences = GROUP_DETAILS.get(self._table.key or "", ("", ""))
            about = Text(sentences, "dim")
        if not whole:
            name, about = "", Text() if self._table.key == NEW else self._table.filled
        box.border_title = Content(name) if name else None
        self.query_one("#about", Static).update(about)
        box.display = whole or bool(about)
        fixed = [("enter", "filter"), ("escape", "as before")] if self._prompt.display else []
        self.query_one(KeyFooter).show(self._hints(entry), fixed=fixed)

    def _about(self, entry: Entry, colours: Colours, whole: bool) -> Text:
        """What is known of an entry. Where there is room for more it is read, once the cursor rests
        there, and again when the entry has changed."""
        key, (known, (above, below)) = details_key(entry), self._details
        if key is not None:
            key = key, self.app.theme
        if key is None or not whole:
            return detail(entry, colours)
        if key == known:
            short = detail(entry, colours, told=bool(above))
            short.rstrip()
            return Text.assemble(above, short, "\n", below)
        if key != self._wanted:
            self._wanted = key
            if self._resting is not None:
                self._resting.stop()
            read = partial(self._read_details, entry, key, colours)
            self._resting = self.set_timer(REST_SECONDS, read)
        return detail(entry, colours)

    @work(thread=True, exclusive=True, group="details", exit_on_error=False)
    def _read_details(self, entry: Entry, key: object, colours: Colours) -> None:
        from tui.screens.home_details import read_details

        found = key, read_details(entry, colours)
        self.app.call_from_thread(self._accept_details, found)

    def _accept_details(self, found: tuple[object, tuple[Text, Text]]) -> None:
        self._details = found
        self._show_detail()

    def on_descendant_focus(self) -> None:
        """Shows the details of the other table's row, or the keys of the prompt."""
        self._show_detail()

    @on(Table.PastEnd)
    def _past_end(self, event: Table.PastEnd) -> None:
        """Goes on in the other table."""
        if event.table is self._runs and event.by > 0 and self._clusters.row_count:
            self.set_focus(self._clusters)
            self._clusters.move_cursor(row=0)
        elif event.table is self._clusters and event.by < 0 and self._runs.display:
            self.set_focus(self._runs)
            self._runs.move_cursor(row=self._runs.row_count - 1)

    def action_other_table(self) -> None:
        """Goes to the runs, or to the clusters."""
        if self._runs.display:
            self.set_focus(self._clusters if self._runs.has_focus else self._runs)

    def _hints(self, entry: Entry | None) -> list[tuple[str, str]]:
        hints: list[tuple[str, str]] = []
        kill = self.kill_hints
        if self._prompt.display:
            return kill
        match entry:
            case ClusterEntry(saved=saved):
                hints = [("home.open", "open"), ("home.launch", "launch"), ("home.test", "test")]
                hints.append(("home.copy", "copy"))
                hints += [("home.rename", "rename"), ("home.remove", "delete")] if saved else []
            case ListedRun(active=True):
                hints = [("home.open", "attach"), ("home.remove", "kill")]
            case ListedRun():
                hints = [("home.open", "open"), ("home.launch", "launch again")]
                hints += [("home.edit", "edit"), ("home.remove", "delete")]
            case DemoEntry():
                hints = [("home.launch", "launch"), ("home.open", "look"), ("home.copy", "copy")]
            case None if self._table.key == NEW:
                hints = [("home.open", "add a cluster")]
            case None if self._table.key == DEMOS:
                hints = [("home.open", "close" if self._demos_are_shown else "show")]
        if self._filter:
            hints.append(("home.all", "all rows"))
        if self._deleted:
            hints.append(("home.undo", "undo"))
        hints += [("home.new", "add"), *kill, ("leave", "leave")]
        return [*hints, ("help", "help"), ("home.filter", "filter"), ("home.again", "refresh")]

    # commands

    def leave(self) -> None:
        self.app.exit()

    @on(DataTable.RowSelected)
    def action_open(self) -> None:
        """Opens the run, or the cluster in the editor; shows or hides the demos."""
        match self.entry:
            case ClusterEntry() | DemoEntry() as entry:
                self.app.push_screen(self.editor(entry.path))
            case ListedRun() as entry:
                self._open_run(entry)
            case None if self._table.key == DEMOS:
                self._demos_shown = not self._demos_are_shown
                self._show()
            case None if self._table.key == NEW:
                self.action_new()

    def _open_run(self, entry: ListedRun) -> None:
        self.clients.expect_no_launch()

        def begin() -> RunControl:
            if entry.active:
                return self.clients.attach(entry.folder.run_id, self.prompts)
            return FinishedRun(StoredRun(entry.folder))

        self.post_message(OpenRun(f"opening {entry.folder.run_id}", begin))

    def editor(self, path: Path) -> EditorScreen:
        return EditorScreen(path, self.clients, self.prompts)

    def action_launch(self) -> None:
        """Launches the cluster or demo at once, or a past run again."""
        entry = self.entry
        if isinstance(entry, ListedRun):
            self._launch_run(entry)
        if isinstance(entry, ClusterEntry | DemoEntry):
            self._launch_file(entry.path, demo=isinstance(entry, DemoEntry))

    def _launch_file(self, path: Path, *, demo: bool = False) -> None:
        def begin() -> RunControl:
            if demo:
                demos.check_machine()
            cluster = load(path, for_launch=True)
            text = path.read_text(encoding="utf-8")
            return self.clients.launch(cluster, text, self.prompts)

        self.post_message(OpenRun(f"launching {path.stem}", begin, launches=True))

    def _launch_run(self, entry: ListedRun) -> None:
        if entry.active:
            kill = key_of(self, "home.remove")
            self.notify(f"the run is active: {kill} kills it, then it can be launched again")
            return
        run_id = entry.folder.run_id
        begin = partial(self.launch_again, run_id)
        self.post_message(OpenRun(f"launching {run_id} again", begin, launches=True))

    def launch_again(self, run_id: str) -> RunControl:
        return self.clients.launch_again(run_id, self.prompts)

    def kill_again(self, run_id: str) -> Future[RunControl]:
        return self.clients.kill(run_id, self.prompts)

    def action_edit(self) -> None:
        """Opens the cluster in the editor, or the file that a run was launched from."""
        match self.entry:
            case ClusterEntry(problem=problem) as entry if problem:
                self._edit_problem(entry.path)
            case ClusterEntry() | DemoEntry() as entry:
                self.app.push_screen(self.editor(entry.path))
            case ListedRun() as entry:
                self._edit_listed(entry.folder)

    @work(group="repair")
    async def _edit_problem(self, path: Path) -> None:
        editor = self.editor(path)
        await self.app.push_screen(editor)
        editor.action_problem()

    @work(thread=True, exclusive=True, group="open", exit_on_error=False)
    def _edit_listed(self, folder: RunFolder) -> None:
        try:
            snapshot, file = StoredRun(folder).snapshot(), editable_file(folder)
        except (TfmuxError, OSError) as error:
            self.app.call_from_thread(self._complain, error)
        else:
            self.app.call_from_thread(self.edit_run, file, snapshot)

    def edit_run(self, file: EditableFile, snapshot: Snapshot) -> None:
        edit_run(self.app, file, snapshot, self.clients, self.prompts)

    def action_test(self) -> None:
        """Checks every host of the cluster, and starts nothing."""
        entry = self.entry
        if isinstance(entry, ClusterEntry) and entry.cluster is not None:
            self.app.push_screen(self.preflight(entry.cluster, entry.path))

    def preflight(self, cluster: ClusterModel, path: Path) -> PreflightScreen:
        """The page that checks every host of a cluster."""
        repair, launch = partial(self._repair, path), partial(self._launch_file, path)
        return PreflightScreen(cluster, path, self.clients, self.prompts, repair, launch)

    @work(group="repair")
    async def _repair(self, path: Path, repair: Repair) -> None:
        """Repairs in the editor what a check has found."""
        editor = self.editor(path)
        await self.app.push_screen(editor)
        editor.repair(repair)

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
            case ListedRun(active=True) as entry:
                self._kill([entry])
            case ListedRun() as entry:
                self._delete_run(entry.folder)

    @work(group="delete")
    async def _delete_run(self, folder: RunFolder) -> None:
        """Deletes a past run, after a question that says what would be lost."""
        try:
            lost = await asyncio.to_thread(results_of, folder)
        except (TfmuxError, OSError) as error:
            self._complain(error)
            return
        why = "Its record and its logs are deleted; files on hosts are not."
        if lost:
            why = "\n".join(["Its record, its logs and its results are deleted:", *lost])
        if await ask(self, Confirm(f"Delete {folder.run_id}?", why)) is not True:
            return
        done = await asyncio.to_thread(lambda: [*delete_runs([folder], force=True)])
        for _, problem in done:
            if problem is not None:
                self._complain(problem)
        self._read()

    @work(exclusive=True, group="filter")
    async def action_filter(self) -> None:
        """Asks for words, and shows the rows that have them, while they are typed."""
        before = self._filter
        if await self._prompt.ask("filter:", before.text) is None:
            self._show_filtered(before)
        self.set_focus(self._runs if self._runs.display else self._clusters)

    @on(Input.Changed)
    def _filter_typed(self, event: Input.Changed) -> None:
        if self._prompt.display:
            self._show_filtered(RowFilter(event.value))

    def _show_filtered(self, wanted: RowFilter) -> None:
        self._filter = wanted
        self._show()

    def action_clear_filter(self) -> None:
        """Shows all rows again."""
        self._show_filtered(RowFilter())

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

    def _kill(self, runs: list[ListedRun]) -> None:
        if runs:
            self.app.push_screen(KillRunsDialog(runs, self.clients, self.prompts))
        elif count := len(self._catalog.unreadable):
            self.notify(f"no active runs found; {count} could not be read, tfmux ps names them")
        else:
            self.notify("no active runs")

    def _complain(self, error: Exception) -> None:
        self.notify(str(error), title="Error", severity="error", timeout=12, markup=False)
