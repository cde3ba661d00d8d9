"""The file as text, with its problems below."""

from __future__ import annotations

import asyncio
import re

from rich.text import Text
from textual import events, on, work
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.message import Message
from textual.widgets import Static, TextArea

from launcher.printable import escaped
from tui.screens.editor.state import EditorState
from tui.screens.editor.table import PAUSE
from tui.widgets.colours import theme_colour

_MOST_PROBLEMS = 8
_LINE_END = re.compile("\r(?!\n)|[\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
"""What ends a line in a text area, and not in TOML."""


class FileText(TextArea):
    """A text area in which Tab indents and Escape leads back, as everywhere in the editor.

    The stock one moves the focus on Escape, which on a page of one widget does nothing.
    """

    def __init__(self) -> None:
        super().__init__(show_line_numbers=True, tab_behavior="indent")

    async def on_key(self, event: events.Key) -> None:
        if event.key == "escape":
            event.stop()
            event.prevent_default()
            await self.run_action("screen.back")
        elif self.read_only and event.is_printable:
            event.stop()  # else what is typed would be commands of the screen


class FilePane(Vertical):
    """Shows and edits the text of the draft."""

    DEFAULT_CSS = """
    FilePane { height: 1fr; }
    FilePane #problems { height: auto; max-height: 8; padding: 0 1; background: $surface; }
    """

    class Changed(Message):
        """The draft's text was edited here."""

    def __init__(self, state: EditorState) -> None:
        super().__init__(id="file")
        self._area = FileText()
        self._problems = Static(id="problems", markup=False)
        self._state = state
        self._loaded = ""
        """The draft's text that is in the area."""
        self._unedited = ""
        """The area's text when it was loaded or committed; another one if it was split
        differently."""

    def compose(self) -> ComposeResult:
        yield self._area
        yield self._problems

    def focus_text(self) -> None:
        """Moves the focus to the text."""
        self.screen.set_focus(self._area)

    def go_to(self, line: int) -> None:
        """Moves the cursor to a line, counted from 1."""
        self._area.move_cursor((line - 1, 0), center=True)

    def show(self) -> None:
        """Shows the draft; the text only if it is another one."""
        area, text = self._area, self._state.draft.now.text
        current = text == self._loaded and area.text == self._unedited
        if not current and self._state.trial is None:
            at = area.cursor_location
            area.load_text(text)
            area.move_cursor(at)
            self._loaded, self._unedited = text, area.text
            area.read_only = self._unedited != text
        self.show_problems()

    def show_problems(self) -> None:
        """Shows what is wrong with the text."""
        shown = self._state.displayed
        colour = theme_colour(self.app, "status-bad")
        text = Text()
        if self._area.read_only:
            text.append(f"read-only here: {_read_only_reason(self._loaded)}\n", "bold")
        for problem in shown.problems[:_MOST_PROBLEMS]:
            line = f"line {problem.line}: " if problem.line else ""
            text.append(f"! {line}{problem}\n", colour)
        if shown.document is None:
            text.append("not valid TOML: fix it before saving\n", "bold")
        self._problems.update(text)

    def commit(self) -> None:
        """Makes the text in the area that of the draft, at once."""
        text = self._area.text
        if text == self._unedited:
            return
        self._loaded = self._unedited = text
        if self._state.set_text(text):
            self.post_message(self.Changed())

    @on(TextArea.Changed)
    def _changed(self, event: TextArea.Changed) -> None:
        event.stop()
        if event.text_area.text != self._unedited:
            self._commit_soon()

    @work(exclusive=True, group="check")
    async def _commit_soon(self) -> None:
        await asyncio.sleep(PAUSE)
        self.commit()


def _read_only_reason(text: str) -> str:
    """Says why the area cannot keep a text as it is, and what to do."""
    if found := _LINE_END.search(text):
        line = text.count("\n", 0, found.start()) + 1
        return f"line {line} has {escaped(found[0])}: replace it in another editor"
    return "the file has both LF and CRLF line ends: use one of them"
