"""Cluster editor: hosts × jobs, the file, its problems and the plan, on one screen."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

from rich.text import Text
from textual import events, on, work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import DataTable, Static, TextArea

from launcher.cluster import library
from launcher.cluster.addresses import LOCALHOST
from launcher.cluster.draft import Draft, FileStatus, ParsedDraft, imported, parse
from launcher.cluster.edit import ClusterDocument, EditError
from launcher.cluster.key_lines import KeyPath
from launcher.cluster.read import loads
from launcher.cluster.reference import keys
from launcher.cluster.roles import USUAL_JOBS
from launcher.cluster.saved_file import SaveError
from launcher.cluster.shorthand import ShorthandError, understand
from launcher.cluster.shorthand.understood import shown_names
from launcher.cluster.ssh_aliases import aliases
from launcher.cluster.values import name_problem
from launcher.errors import Problem, TfmuxError
from launcher.history.again import EditableFile, place_to_edit
from launcher.history.control import RunControl
from launcher.paths import expand_user, tilde
from launcher.plan.planner import make_plan
from launcher.printable import invisible, visible
from launcher.quantities import counted
from launcher.run.snapshot import Snapshot
from tui.keys import key_of
from tui.run_clients import RunClients
from tui.screens.dialogs import AskText, Choose, ask
from tui.screens.editor.cluster_table import ClusterTable
from tui.screens.editor.cluster_text import ClusterText, KeyList
from tui.screens.editor.form import (
    EDIT_ERRORS,
    NAME,
    PAUSE,
    Completion,
    Form,
    filled,
    line_of,
    table_at,
)
from tui.screens.editor.preview import PlanPreview
from tui.screens.page import STYLES, OpenRun, Page
from tui.screens.preflight_screen import PreflightScreen, Repair
from tui.screens.prompt_dialogs import PromptDialogs
from tui.widgets.colours import theme_colour
from tui.widgets.footer import KeyFooter

DISK_SECONDS = 1.5
"""Between two checks whether the file has changed on disk."""
_BESIDE = 110
"""Cells of width from which on the plan stands beside table and file."""
_SETTINGS = ("run", "start", "metrics", "hooks", "defaults.host", "slurm")
_UNREADABLE = "not valid TOML: correct the text first"
_NO_TABLE = "The table of hosts and jobs needs a file in valid TOML."
Change = Callable[[ClusterDocument], ClusterDocument]


class EditorScreen(Page):
    """Edits one cluster file, and launches what it says. Table and forms change the text, whose
    undo is the only one; all else is shown from what the text says."""

    CSS_PATH = [STYLES, "screen.tcss"]  # noqa: RUF012 Textual's type
    HORIZONTAL_BREAKPOINTS = [(0, "-below"), (_BESIDE, "-beside")]  # noqa: RUF012 Textual's type
    BINDING_GROUP_TITLE = "Editor"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f4", "settings", "Form of the file's table, or of the run", id="edit.settings"),
        Binding("e,f8", "problem", "Next problem", id="edit.problem"),
        Binding("space", "layout", "Plan alone, and back", id="edit.plan"),
        Binding("T,f6", "test", "Test: check every host", id="edit.test"),
        Binding("l", "launch", "Launch", id="edit.launch"),
        Binding("ctrl+s", "save", "Save", id="edit.save", priority=True),
        Binding("S", "save_as", "Save under another name", id="edit.save_as"),
        Binding("escape", "back", "Back", id="edit.back"),
    ]

    def __init__(
        self,
        path: Path,
        clients: RunClients,
        prompts: PromptDialogs,
        text: str | None = None,
        place: KeyPath = (),
    ) -> None:
        """With a `text` the file is a new one, not saved yet. The cursor begins at `place`."""
        super().__init__()
        self._begin = place
        self._clients, self._prompts = clients, prompts
        self._new_text = text
        self._path = path
        self._draft: Draft | None = None
        self.now = parse("", path)
        """What the text said when it was looked at last."""
        self._table = ClusterTable()
        self._text = ClusterText("")
        self._plan = PlanPreview(id="plan")
        self._keys = KeyList()
        self._problem = -1
        self._reported = FileStatus.UNCHANGED
        """The last state of the file on disk that the person was told of."""

    def compose(self) -> ComposeResult:
        try:
            made = imported(self._path) if self._new_text is None else None
            if made is not None:
                self._path = made.path
                self.notify(made.sentence, title="A new cluster, not saved yet", timeout=20)
            self._draft = Draft(self._path)
            self._text = ClusterText(
                made.text if made else self._new_text or self.draft.saved or ""
            )
        except SaveError as error:
            self.notify(str(error), severity="error", timeout=15)
            self.call_after_refresh(self.app.pop_screen)
        yield Static(id="title", markup=False)
        with Horizontal():
            with Vertical(id="cluster"):
                yield self._table
                yield Static(_NO_TABLE, id="unreadable", markup=False)
                yield self._text
                yield self._keys
            yield self._plan
        yield Static(id="about", markup=False)
        yield KeyFooter()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Where the file could not be read, only *back* is possible."""
        return self._draft is not None or action == "back"

    def on_mount(self) -> None:
        if self._draft is None:
            return
        for part in (self._text, self._keys, self._plan):
            part.add_class("framed")
        self._look()
        self.set_focus(self._table if self.now.document is not None else self._text)
        self.show_place(self._begin)
        self.set_interval(DISK_SECONDS, self._check_disk)
        self._expect_launch()
        # What is drawn here in colours of the theme is drawn again only as the text changes.
        self.app.theme_changed_signal.subscribe(self, lambda _: self._show(self.now))

    def on_resize(self) -> None:
        """Keeps the cursor of the text in sight."""
        self.call_after_refresh(self._text.scroll_cursor_visible)

    @property
    def draft(self) -> Draft:
        assert self._draft is not None
        return self._draft

    def edits(self, path: Path) -> bool:
        """Whether the screen is about this file."""
        return self._draft is not None and self.draft.path.absolute() == path.absolute()

    @property
    def text(self) -> str:
        """The file as it stands here."""
        return self._text.text

    @property
    def modified(self) -> bool:
        """The text differs from what was last read or written."""
        return self.text != (self.draft.saved if self.draft.saved is not None else "")

    # what the text says

    @on(TextArea.Changed)
    def _changed(self) -> None:
        self._show_title()
        self._look_soon()

    @work(exclusive=True, group="look")
    async def _look_soon(self) -> None:
        """Looks at the text when no key has come for a moment, in a thread."""
        await asyncio.sleep(PAUSE)
        now = await asyncio.to_thread(parse, self.text, self.draft.path)
        # A screen that is closed loses its widgets before its workers are cancelled.
        closed = self not in self.app.screen_stack or not self.app.is_running
        if not closed and now.text == self.text != self.now.text:
            self._show(now)

    def _look(self) -> ParsedDraft:
        """What the text says, at once."""
        if self.now.text != self.text or not self._table.columns:
            self._show(parse(self.text, self.draft.path))
        return self.now

    def _show(self, now: ParsedDraft) -> None:
        self.now = now
        readable = now.document is not None
        if not readable and self._table.has_focus:
            self.set_focus(self._text)
        self._table.display = readable
        self.query_one("#unreadable").display = not readable
        self._table.show_cluster(now)
        self._text.mark({problem.line for problem in now.problems if problem.line})
        plan = None if now.cluster is None else make_plan(now.cluster, "RUN")
        self._plan.show(plan, now.cluster, now.problems)
        self._show_title()
        self._follow()

    def _show_title(self) -> None:
        name, width = Text(self.draft.path.stem, "bold"), self.size.width - 2
        verdict = Text("  ✓", f"bold {theme_colour(self.app, 'status-good')}")
        if count := len(self.now.problems):
            style = f"bold {theme_colour(self.app, 'status-bad')}"
            verdict = Text(f"  ! {counted(count, 'problem')}", style)
        unsaved = "  ● not saved" if self.modified else ""
        name.truncate(max(1, width - len(unsaved) - verdict.cell_len), overflow="ellipsis")
        title = Text.assemble(name, verdict, (unsaved, "bold"))
        folder = tilde(self.draft.path)
        if title.cell_len + len(folder) + 4 <= width:
            title.append(folder.rjust(width - title.cell_len), "dim")
        self.query_one("#title", Static).update(title)
        self._text.border_title = Content(self.draft.path.name)

    # the cursor

    @on(DataTable.CellHighlighted)
    @on(TextArea.SelectionChanged)
    @on(events.DescendantFocus)
    def _moved(self) -> None:
        if self._draft is not None and self._table.columns:
            self._follow()

    @property
    def _in_text(self) -> bool:
        """The text has the focus, or is about to get it."""
        return self.focused is self._text

    def _place(self) -> KeyPath:
        """Path of the key under the cursor, in the table or the text."""
        if self._in_text or self.now.document is None:
            line = self._text.cursor_location[0] + 1
            return next(filter(None, map(self.now.lines.on, range(line, 0, -1))), ())
        path = self._table.path(self.now.document)
        return (*path, self._table.field) if self._table.field else path

    def _follow(self) -> None:
        """Lets keys, text and plan follow the cursor."""
        place = self._place()
        table, path = table_at(place)
        key = str(place[len(path)]) if len(place) > len(path) else ""
        self._keys.show(table, key)
        if not self._in_text and path and (line := self.now.lines.of(path)):
            if self.now.lines.on(line)[: len(path)] == path:
                self._text.go_to(line)
        if place[:1] == ("jobs",) and len(place) > 1:
            index = place[3] if place[2:3] == ("tasks",) and len(place) > 3 else 0
            self._plan.go_to(f"{place[1]}:{index}")
        self._show_about(table, path, key)
        self._show_footer()

    def _show_about(self, table: str, path: KeyPath, key: str) -> None:
        """The row above the footer: what is wrong under the cursor, else what it is."""
        text = Text(no_wrap=True, overflow="ellipsis")
        problem = self._problem_here(path, key) or next(iter(self.now.problems), None)
        if problem is not None:
            where = f"line {problem.line}: " if problem.line else ""
            text.no_wrap = False
            text.append(f"! {where}{problem}", theme_colour(self.app, "status-bad"))
        elif self._table.has_focus and not key:
            text.append(self._cell_about(), "dim")
        elif found := next((each for each in keys(table) if each.name == key), None):
            text.append(f"{key}: ", "bold").append(found.brief, "dim")
        self.query_one("#about", Static).update(text)

    def _problem_here(self, path: KeyPath, key: str) -> Problem | None:
        own = (*path, key) if key else path
        line = self._text.cursor_location[0] + 1 if self._in_text else None
        found = [p for p in self.now.problems if line is not None and p.line == line]
        found += [p for p in self.now.problems if own and p.path[: len(own)] == own]
        return next(iter(found), None)

    def _cell_about(self) -> str:
        host, job = self._table.host, self._table.job
        add, less = key_of(self._table, "edit.add_task"), key_of(self._table, "edit.remove_task")
        form = key_of(self._table, "edit.form")
        if job:
            where = f"on {host}" if host else "on every host"
            return f"{add} adds a {job} task {where}, {less} removes one, {form} edits its settings"
        if job is not None:
            return f"{add} adds a job of any name, such as tensorboard"
        return f"{form} edits the settings of {host or 'all hosts'}"

    def show_hints(self) -> None:
        if self.is_mounted:
            self._show_footer()

    def _show_footer(self) -> None:
        footer, kill = self.query_one(KeyFooter), self.kill_hints
        problem = [("edit.problem", "next problem")] if self.now.problems else []
        if self._in_text:
            hints = [("edit.to_table", "table"), ("edit.save", "save"), ("edit.settings", "form")]
            if self.now.document is None:  # no table to go to, and no form of one
                hints = [("edit.to_table", "back"), ("edit.save", "save")]
            footer.show([*hints, *problem, *kill], fixed=[("ctrl+z", "undo")], typing=True)
            return
        hints = [("edit.launch", "launch"), ("edit.test", "test"), ("edit.save", "save"), *problem]
        if self._table.has_focus:
            both = ("edit.add_task edit.remove_task", "task")
            hints += [both, ("edit.form", "form"), ("edit.add", "hosts"), ("edit.settings", "run")]
        hints += [("help", "help"), ("edit.plan", "plan"), ("edit.back", "back")]
        footer.show([*hints, ("edit.undo", "undo"), ("edit.remove", "delete"), *kill])

    # edits

    def _edit(self, change: Change) -> bool:
        """Changes the text; shows an error and returns False if that is impossible."""
        document = self._look().document
        try:
            if document is None:
                raise EditError(_UNREADABLE)
            self._text.put(change(document).text)
        except EDIT_ERRORS as error:
            self.notify(str(error), severity="error", timeout=10)
            return False
        self._look()
        return True

    @work(group="dialog")
    async def action_add_task(self) -> None:
        """Adds a task where the cursor is, of all hosts on each; in the last column, of a new
        job."""
        job, chosen = self._table.job, self._table.hosts_meant()
        if job is None:
            self.notify("move to the column of a job to add a task", timeout=4)
            return
        if not job:
            free = [
                name
                for name in _JOBS
                if not self.now.document or name not in self.now.document.table("jobs")
            ]
            dialog = AskText(
                "Add a job",
                about=f"its name, such as {', '.join(free)}",
                suggester=Completion(free),
            )
            job = await ask(self, dialog) or ""
        if job.strip():
            name = job.strip()
            if self._edit(lambda document: _added(document, chosen, name)):
                self._table.go(self._table.host, name)

    def action_remove_task(self) -> None:
        """Takes the last task of the job under the cursor away, of all hosts on each."""
        job = self._table.job
        if job:
            self._edit(lambda document: _removed(document, self._table.hosts_meant(), job))

    def on_paste(self, event: events.Paste) -> None:
        """What is pasted over the table are hosts, or a cluster."""
        if self._table.has_focus:
            self.action_add(visible(event.text.replace("\r\n", "\n").replace("\r", "\n").strip()))

    @work(group="dialog")
    async def action_add(self, pasted: str = "") -> None:
        """Asks for hosts, or for a cluster spec, and adds them."""
        document = self._look().document
        if document is None:
            return
        names = aliases()
        known = {*names, *document.host_names()}
        start = pasted or ", ".join(document.undefined_hosts())

        @lru_cache(1)
        def said(line: str) -> tuple[str, str]:
            return _understood(line, known)

        dialog = AskText(
            "Add hosts",
            start,
            problem=lambda line: said(line)[1],
            about=lambda line: said(line)[0],
            suggester=Completion(names),
        )
        line = await ask(self, dialog)
        before = set(document.host_names())
        if line and self._edit(lambda document: document.add(understand(invisible(line), known))):
            now = self.now.document
            new = [name for name in now.host_names() if name not in before] if now else []
            self._table.go(new[0] if new else self._table.host, None)

    def action_remove(self) -> None:
        """Deletes the tasks under the cursor, or the host with its tasks."""
        host, job = self._table.host, self._table.job
        key = key_of(self._table, "edit.undo")
        if not host:
            self.notify("move to one host to delete it, or its tasks")
        elif job and self._edit(lambda document: _removed(document, (host,), job, every=True)):
            self.notify(f"{job} on {host} deleted; {key} brings it back", timeout=4)
        elif job is None and self._edit(lambda document: document.remove_host(host)):
            self.notify(f"{host} and its tasks deleted; {key} brings them back", timeout=4)

    def action_undo(self) -> None:
        if not self._text.history.undo_stack:
            self.notify("nothing to undo", timeout=2)
        self._text.undo()
        self._look()

    def action_redo(self) -> None:
        self._text.redo()
        self._look()

    @on(DataTable.CellSelected)
    def _cell_chosen(self) -> None:
        document = self._look().document
        if document is None:
            return
        if path := self._table.path(document):
            self._fill(path, self._table.field)
        else:
            self.action_add_task()

    @work(group="dialog")
    async def action_settings(self) -> None:
        """Opens the form of the table under the cursor of the text, else of one that is asked
        for."""
        document = self._look().document
        if document is None:
            self.notify(_UNREADABLE, severity="warning")
            return
        place = self._place()
        path = table_at(place)[1]
        if not self._in_text or not path:
            choices = {str(n): f"[{table}]" for n, table in enumerate(_SETTINGS, 1)}
            answer = await ask(self, Choose("Settings", choices))
            if answer is None:
                return
            path, place = tuple(_SETTINGS[int(answer) - 1].split(".")), ()
        self._fill(path, str(place[len(path)]) if len(place) > len(path) else "")

    @work(group="form")
    async def _fill(self, path: KeyPath, key: str) -> None:
        await self._filled(path, key)

    async def _filled(self, path: KeyPath, key: str) -> bool:
        """Asks for the keys of a table, and puts them into the file; False where nothing has
        changed."""
        document, file = self._look().document, self.draft.path
        if document is None:
            return False

        def check(lines: Mapping[str, str]) -> ParsedDraft:
            return parse(filled(document, path, lines).text, file)

        title = f"[{'.'.join(visible(str(part)) for part in path)}]"
        lines = await ask(self, Form(title, document, path, check, key))
        if lines and self._edit(lambda document: filled(document, path, lines)):
            if path[0] == "hosts" and NAME in lines:
                self._table.go(lines[NAME].strip(), None)
            return True
        return False

    # moving about

    def show_place(self, place: KeyPath) -> None:
        """Moves the cursor to an entry of the file: of a host or a task in the table, of anything
        else in the text."""
        jobs = {} if self.now.cluster is None else self.now.cluster.jobs
        match place:
            case ("hosts", str(host), *rest) if self.now.document is not None:
                # `via` stands in the column of ssh
                field = str(rest[0]) if rest else ""
                self._table.go(host, field="ssh" if field == "via" else field)
                self.set_focus(self._table)
            case ("jobs", str(job), "tasks", int(index)) if job in jobs and (
                index < len(jobs[job].tasks)
            ):
                self._table.go(jobs[job].tasks[index].host, job)
                self.set_focus(self._table)
            case _ if line := self.now.lines.of(place):
                self._go_to_line(line)

    def _go_to_line(self, line: int) -> None:
        self.remove_class("-plan")
        self.set_focus(self._text)
        self._text.go_to(line)
        self._follow()

    def action_problem(self, number: int | None = None) -> None:
        """Goes to the line of a problem, or of the next one."""
        problems = self._look().problems
        if not problems:
            self.notify("no problems", timeout=2)
            return
        self._problem = (self._problem + 1 if number is None else number) % len(problems)
        self._go_to_line(problems[self._problem].line or 1)

    def action_layout(self) -> None:
        """Shows the plan alone, or again table and file."""
        alone = not self.has_class("-plan")
        self.set_class(alone, "-plan")
        if alone:
            self._plan.focus_tasks()
        else:
            self.set_focus(self._table if self.now.document is not None else self._text)

    def action_back(self) -> None:
        """Goes from text or plan to the table, from there to the page below."""
        if self.has_class("-plan"):
            self.action_layout()
        elif self._draft and not self._table.has_focus and self._look().document is not None:
            self.set_focus(self._table)
        else:
            self.leave()

    # the file

    def _check_disk(self) -> None:
        if self.app.screen is self:  # else a question about it may be open
            self._tell_of_disk()
            self._expect_launch()

    def _expect_launch(self) -> None:
        """Has a launch made ready of the cluster as it was looked at last."""
        if self.now.cluster is not None:
            self._clients.expect_launch(ssh=self.now.cluster.uses_ssh)

    @work(group="dialog")
    async def _tell_of_disk(self) -> None:
        """Tells, once, that the file was deleted or changed on disk; reads it again where nothing
        here is unsaved."""
        disk = self.draft.file_status()
        if disk is self._reported:
            return
        self._reported = disk
        if disk is FileStatus.DELETED:
            self.notify("the file was deleted; saving creates it again", timeout=10)
        elif disk is FileStatus.CHANGED and self._in_text:
            # The next letter typed would answer the question.
            text = "the file has changed on disk; saving asks whether to overwrite it"
            self.notify(text, severity="warning", timeout=10)
        elif disk is FileStatus.CHANGED and not self.modified:
            if self._reload():
                self.notify("changed on disk, read again", timeout=5)
        elif disk is FileStatus.CHANGED:
            await self._resolve("overwrite the file when saving")

    def _reload(self) -> bool:
        """Reads the file again; undo brings the text from here back. False if it cannot be read."""
        try:
            self._text.put(self.draft.reload())
        except SaveError as error:
            self._error("Not reloaded", error)
            return False
        self._reported = FileStatus.UNCHANGED
        self._look()
        return True

    async def _resolve(self, keep: str) -> bool:
        """Asks whether the text on disk or the one here is to be kept; True if the one here."""
        choices = {
            "r": "Reload the file; undo restores the text from here",
            "k": f"Keep the text from here, and {keep}",
        }
        answer = await ask(self, Choose("The file has changed on disk", choices))
        if answer == "r":
            self._reload()
        elif answer == "k":
            self.draft.accept_disk()
            self._reported = FileStatus.UNCHANGED
            self._look()
        return answer == "k"

    @work(group="dialog")
    async def action_save(self) -> None:
        await self._save()

    async def _save(self) -> bool:
        """Saves; asks first if the file has changed on disk. False if it was not saved."""
        changed = self.draft.file_status() is FileStatus.CHANGED
        if changed and not await self._resolve("overwrite it now"):
            return False
        return self._write()

    def _write(self, path: Path | None = None) -> bool:
        try:
            self._text.put(self.draft.save(self._look(), path))
        except SaveError as error:
            self._error("Not saved", error)
            return False
        self._reported = FileStatus.UNCHANGED
        self.notify(f"saved in {self.draft.path}", timeout=3)
        self._show(parse(self.text, self.draft.path))
        return True

    @work(group="dialog")
    async def action_save_as(self) -> None:
        """Saves under another name among the saved clusters, or in another file."""
        start = library.free_name(self.draft.path.stem)
        dialog = AskText("Save as", start, _name_problem, "a name, or the path of a .toml file")
        answer = await ask(self, dialog)
        path = None if answer is None else self._path_of(answer)
        if path == self.draft.path:
            await self._save()
        elif path is not None:
            self._write(path)

    def _path_of(self, answer: str) -> Path | None:
        """Returns the path of the file to save in; None, with an error, if it cannot be used."""
        try:
            path = expand_user(answer) if _is_path(answer) else library.path_of(answer)
        except TfmuxError as error:
            self._error("Not saved", error)
            return None
        # Not `Path.exists`, which fails where a directory cannot be read or a name is too long.
        if os.path.exists(path) and path != self.draft.path:
            self._error("Not saved", f"{path} already exists: choose another name")
            return None
        return path

    def leave(self) -> None:
        """Leaves; asks first about unsaved changes."""
        if self._draft is None or not self.modified:
            self.app.pop_screen()
        else:
            self._leave()

    @work(group="dialog")
    async def _leave(self) -> None:
        choices = {"s": "Save and leave", "d": "Leave without saving"}
        answer = await ask(self, Choose("Unsaved changes", choices))
        if answer == "d" or (answer == "s" and await self._save()):
            self.app.pop_screen()

    def action_test(self) -> None:
        """Checks every host, and starts nothing."""
        cluster = self._look().cluster
        if cluster is None:
            key = key_of(self, "edit.problem")
            self.notify(f"fix the problems first: {key} goes to the next one", severity="warning")
            return
        self.app.push_screen(
            PreflightScreen(
                cluster,
                self.draft.path,
                self._clients,
                self._prompts,
                self.repair,
                self.action_launch,
            )
        )

    def repair(self, repair: Repair) -> None:
        """Changes the settings that a check has found to be wrong, and checks again."""
        self.call_after_refresh(self._repair, repair)

    @work(group="dialog")
    async def _repair(self, repair: Repair) -> None:
        """Puts the values into the settings; without values opens the form of the one setting, or
        asks once for all."""
        *path, key = repair.settings[0]
        values = repair.values
        if not values and len(repair.settings) == 1:
            if await self._filled(tuple(path), str(key)):
                self.action_test()
            return
        document = self._look().document
        if document is None:
            return
        names = shown_names((str(setting[1]) for setting in repair.settings), LOCALHOST)
        if not values:
            now = line_of(document.get(*repair.settings[0]))
            dialog = AskText(f"{key} of {names}", now, about=repair.why)
            if (line := await ask(self, dialog)) is None:
                return
            values = [line] * len(repair.settings)

        def change(document: ClusterDocument) -> ClusterDocument:
            for setting, value in zip(repair.settings, values, strict=True):
                document = filled(document, setting[:-1], {str(setting[-1]): value})
            return document

        if self._edit(change):
            undo, save = key_of(self._table, "edit.undo"), key_of(self, "edit.save")
            done = f"{key} of {names}: {', '.join(dict.fromkeys(values)) or 'the default'}"
            self.notify(f"{done}; {save} saves it, {undo} in the editor undoes it", timeout=8)
            self.action_test()

    @work(group="dialog")
    async def action_launch(self) -> None:
        """Launches the file; asks first whether to save it, where it can be launched."""
        draft = self.draft
        if self.modified and self.now.cluster is not None:
            choices = {"s": "Save and launch", "l": "Launch without saving"}
            answer = await ask(self, Choose("The file is not saved", choices))
            if answer is None or (answer == "s" and not await self._save()):
                return
        text = self.text

        def begin() -> RunControl:
            base = draft.path.absolute().parent
            cluster = loads(text, str(draft.path), base, for_launch=True)
            return self._clients.launch(cluster, text, self._prompts)

        self.post_message(OpenRun(f"launching {draft.path.stem}", begin, launches=True))

    def _error(self, title: str, error: Exception | str) -> None:
        self.notify(str(error), title=title, severity="error", timeout=12)


def edit_run(
    app: App[Any],
    file: EditableFile,
    snapshot: Snapshot,
    clients: RunClients,
    prompts: PromptDialogs,
) -> None:
    """Opens the file that a run was launched from, its cursor where the trouble of the run is; in
    the editor that is open on it, if one is. Where the file has gone, what the run has of it is a
    new one."""
    place, below = place_to_edit(snapshot), app.screen
    if isinstance(below, EditorScreen) and below.edits(file.path):
        below.show_place(place)
    else:
        app.push_screen(EditorScreen(file.path, clients, prompts, file.text, place))
    app.notify(file.note, timeout=12)


_JOBS = (*USUAL_JOBS, "tensorboard")


def _added(document: ClusterDocument, hosts: tuple[str, ...], job: str) -> ClusterDocument:
    for host in hosts:
        document = document.add_task(host, job)
    return document


def _removed(
    document: ClusterDocument, hosts: tuple[str, ...], job: str, *, every: bool = False
) -> ClusterDocument:
    """Without the last task of a job on each of the hosts that have one, or without every one."""
    for host in hosts:
        count = len(document.places().get(host, {}).get(job, ()))
        for _ in range(count if every else min(1, count)):
            document = document.remove_task(host, job)
    return document


_ABOUT_HOSTS = (
    "hosts as ssh knows them, such as root@tf[1-4], gpu7; or a TF_CONFIG, --ps_hosts=… "
    "--worker_hosts=…, a host file, an mpirun command line"
)


def _understood(line: str, known: Collection[str]) -> tuple[str, str]:
    """What a text of hosts is understood as, and what is wrong with it."""
    if not line.strip():
        return _ABOUT_HOSTS, ""
    try:
        return understand(invisible(line), known).sentence, ""
    except ShorthandError as error:
        return "", str(error)


def _name_problem(answer: str) -> str:
    return "" if _is_path(answer) else name_problem(answer)


def _is_path(answer: str) -> bool:
    return "/" in answer or answer.endswith(".toml")
