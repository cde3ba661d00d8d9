"""Commands on the editor's file: save, reload, leave, check, launch."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from textual.screen import Screen
from textual.widgets import Input, TextArea

from launcher.cluster import library, loads, name_problem
from launcher.cluster.draft import FileStatus
from launcher.cluster.saved_file import SaveError
from launcher.errors import TfmuxError
from launcher.paths import expand_user
from launcher.session.control import RunControl
from tui.run_clients import RunClients
from tui.screens.dialogs import AskText, Choose, ask
from tui.screens.editor.state import EditorState
from tui.screens.prompts import PromptDialogs


class FileActions:
    """File commands of one editor; dialogs are awaited, so they run in Textual workers."""

    def __init__(
        self, screen: Screen[None], state: EditorState, changed: Callable[[], None]
    ) -> None:
        """`changed` shows the draft after it was saved or reloaded."""
        self._screen = screen
        self._state = state
        self._changed = changed

    async def check_disk(self) -> None:
        """Tells, once, that the file was deleted or changed on disk."""
        disk = self._state.draft.file_status()
        if disk is self._state.reported_disk:
            return
        self._state.reported_disk = disk
        if disk is FileStatus.DELETED:
            self._screen.notify("the file was deleted; saving creates it again", timeout=10)
        elif disk is FileStatus.CHANGED and isinstance(self._screen.focused, Input | TextArea):
            # The next letter typed would answer the question.
            text = "the file has changed on disk; saving asks whether to overwrite it"
            self._screen.notify(text, severity="warning", timeout=10)
        elif disk is FileStatus.CHANGED:
            await self._resolve("overwrite the file when saving")

    async def _resolve(self, keep: str) -> bool:
        """Asks whether the text on disk or the one here is to be kept; True if the one here."""
        choices = {
            "r": "Reload the file; undo restores the text from here",
            "k": f"Keep the text from here, and {keep}",
        }
        dialog = Choose("The file has changed on disk", choices)
        answer = await ask(self._screen, dialog)
        draft = self._state.draft
        if answer == "r":
            try:
                draft.reload()
            except SaveError as error:
                self._error("Not reloaded", error)
        elif answer == "k":
            draft.accept_disk()
        else:
            return False
        self._state.reported_disk = FileStatus.UNCHANGED
        self._changed()
        return answer == "k"

    async def save(self) -> bool:
        """Saves; asks first if the file has changed on disk. False if it was not saved."""
        changed = self._state.draft.file_status() is FileStatus.CHANGED
        if changed and not await self._resolve("overwrite it now"):
            return False
        return self._write()

    def _write(self, path: Path | None = None) -> bool:
        try:
            self._state.draft.save(path)
        except SaveError as error:
            self._error("Not saved", error)
            return False
        self._state.reported_disk = FileStatus.UNCHANGED
        self._screen.notify(f"saved in {self._state.draft.path}", timeout=3)
        self._changed()
        return True

    async def save_as(self) -> None:
        """Saves under another name among the saved clusters, or in another file."""
        start = library.free_name(self._state.draft.path.stem)
        dialog = AskText("Save as", start, _name_problem, "a name, or the path of a .toml file")
        answer = await ask(self._screen, dialog)
        path = None if answer is None else self._path_of(answer)
        if path == self._state.draft.path:
            await self.save()
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
        if os.path.exists(path) and path != self._state.draft.path:
            self._error("Not saved", f"{path} already exists: choose another name")
            return None
        return path

    async def leave(self) -> None:
        """Leaves the editor; asks first what to do with unsaved changes."""
        answer = "d"
        if self._state.draft.modified:
            choices = {"s": "Save and leave", "d": "Leave without saving"}
            answer = await ask(self._screen, Choose("Unsaved changes", choices)) or ""
        if answer == "d" or (answer == "s" and await self.save()):
            self._screen.app.pop_screen()

    def launch(self, clients: RunClients, prompts: PromptDialogs) -> RunControl | None:
        """Launches the draft, saved or not; None if it cannot be launched."""
        draft = self._state.draft
        try:
            base = draft.path.absolute().parent
            cluster = loads(draft.now.text, str(draft.path), base, for_launch=True)
            return clients.launch(cluster, draft.now.text, prompts)
        except (TfmuxError, OSError) as error:
            self._error("Not launched", error)
            return None

    def _error(self, title: str, error: Exception | str) -> None:
        self._screen.notify(str(error), title=title, severity="error", timeout=12)


def _name_problem(answer: str) -> str:
    return "" if _is_path(answer) else name_problem(answer)


def _is_path(answer: str) -> bool:
    return "/" in answer or answer.endswith(".toml")
