"""The editor's file: its text, the disk, saving, and launching what it says."""

from __future__ import annotations

import asyncio
from pathlib import Path

from textual import on, work
from textual.widgets import TextArea

from launcher.cluster import library
from launcher.cluster.draft import FileStatus, parse
from launcher.cluster.file import loads
from launcher.cluster.library import SaveError
from launcher.errors import TfmuxError
from tui.screens.ask import AskText, Choose
from tui.screens.editor.shown import PAUSE, ShownDraft
from tui.screens.page import OpenRun
from tui.screens.preflight import PreflightScreen


class FileActions(ShownDraft):
    """The part of the editor that works on the file as a whole."""

    # the text

    @on(TextArea.Changed)
    def _text_changed(self, event: TextArea.Changed) -> None:
        if self._draft is not None and event.text_area.text != self.draft.now.text:
            self._check_text()

    @work(exclusive=True, group="check")
    async def _check_text(self) -> None:
        await asyncio.sleep(PAUSE)
        self._take_text()

    def _take_text(self) -> None:
        area = self.query_one(TextArea)
        if area.text != self.draft.now.text:
            self.draft.edit(parse(area.text, self.draft.path), "text")
            self._show_all(file_too=False)

    # the disk

    def _look_at_disk(self) -> None:
        disk = self.draft.file_status()
        if disk is self._told_disk or not self.is_current:
            return
        self._told_disk = disk
        if disk is FileStatus.DELETED:
            self.notify("the file is gone from the disk; saving writes it anew", timeout=10)
        elif disk is FileStatus.CHANGED:
            self._ask_about_disk()

    def _ask_about_disk(self, then_save: bool = False) -> None:
        def answered(key: str | None) -> None:
            if key == "r":
                try:
                    self.draft.reload()
                except SaveError as error:
                    self.notify(str(error), severity="error")
                self._told_disk = FileStatus.UNCHANGED
                self._show_all()
            elif key == "k":
                self.draft.accept_disk()
                self._told_disk = FileStatus.UNCHANGED
                self._show_title(self.draft.now)
                if then_save:
                    self._save()

        what = "replace it when saving" if not then_save else "replace it now"
        choices = [("r", "Read it again; u brings the text from here back")]
        choices += [("k", f"Keep the text from here, and {what}")]
        self.app.push_screen(Choose("The file was changed by someone else", choices), answered)

    def action_save(self) -> None:
        """Saves; a file that someone else has changed meanwhile is asked about."""
        self._take_text()
        if self.draft.file_status() is FileStatus.CHANGED:
            self._ask_about_disk(then_save=True)
        else:
            self._save()

    def _save(self, path: Path | None = None) -> bool:
        try:
            self.draft.save(path)
        except SaveError as error:
            self.notify(str(error), title="Not saved", severity="error", timeout=12)
            return False
        self._told_disk = FileStatus.UNCHANGED
        self.notify(f"saved in {self.draft.path}", timeout=3)
        self._show_all()
        return True

    def action_save_as(self) -> None:
        """Saves under another name among the saved clusters, or in another file."""

        def named(answer: str | None) -> None:
            if answer is None:
                return
            path = Path(answer).expanduser() if _is_path(answer) else library.path_of(answer)
            if path.exists() and path != self.draft.path:
                self.notify(f"{path} is there already: choose another name", severity="error")
                return
            self._save(path)

        def wrong(answer: str) -> str:
            return "" if _is_path(answer) else library.name_problem(answer)

        start = library.free_name(self.draft.path.stem)
        dialog = AskText("Save as", start, wrong, "a name, or the path of a .toml file")
        self.app.push_screen(dialog, named)

    # leaving and launching

    def action_back(self) -> None:
        """From the text to the tables, from there home."""
        if self._page == "file":
            self._take_text()
            if self.draft.now.document is not None:
                self.action_page("hosts")
                return
        self.leave()

    def leave(self) -> None:
        """Asks about what is not saved."""
        if self._draft is None:
            self.app.pop_screen()
            return
        self._take_text()
        if not self.draft.modified:
            self.app.pop_screen()
            return

        def answered(key: str | None) -> None:
            if key == "d" or (key == "s" and self._save()):
                self.app.pop_screen()

        choices = [("s", "Save and leave"), ("d", "Leave without saving")]
        self.app.push_screen(Choose("This is not saved", choices), answered)

    def action_test(self) -> None:
        """Looks at every host, and starts nothing."""
        self._take_text()
        if self.draft.now.cluster is None:
            self.notify("first make the file right: e shows what is wrong", severity="warning")
            return
        self.app.push_screen(
            PreflightScreen(self.draft.now.cluster, self.draft.path, self.sessions, self.asker)
        )

    def action_launch(self) -> None:
        """Launches what is on the screen, saved or not."""
        self._take_text()
        text = self.draft.now.text
        try:
            base = self.draft.path.absolute().parent
            cluster = loads(text, str(self.draft.path), base, for_launch=True)
            session = self.sessions.launch(cluster, text, self.asker)
        except (TfmuxError, OSError) as error:
            self.notify(
                str(error), title="Not launched", severity="error", timeout=12, markup=False
            )
            return
        self.post_message(OpenRun(session))


def _is_path(answer: str) -> bool:
    return "/" in answer or answer.endswith(".toml")
