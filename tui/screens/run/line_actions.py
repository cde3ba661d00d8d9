"""What the keys do to the lines of the focused pane: scroll, choose, copy, save."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from textual import on

from tui.format import thousands
from tui.log.sanitise import plain_text
from tui.log.view import LogView
from tui.screens.run.panes import Panes
from tui.widgets.log_pane import LogPane
from tui.widgets.prompt import Prompt

COPY_LIMIT = 100_000
"""Bytes; terminals drop a longer OSC 52."""


class LineActions(Panes):
    """The part of the run screen that answers keys about lines. While lines are being chosen,
    the keys that scroll move the end of the choice."""

    # scrolling

    def action_scroll(self, rows: int) -> None:
        """Scrolls the focused pane by rows, or moves the end of a choice."""
        pane = self.pane
        if pane and pane.view and pane.view.selection:
            self.move_selection(pane, rows)
        elif pane:
            pane.scroll_rows(rows)

    def action_scroll_page(self, pages: float) -> None:
        """Scrolls the focused pane by pages."""
        pane = self.pane
        if pane and pane.view and pane.view.selection:
            self.move_selection(pane, int(pane.size.height * pages))
        elif pane:
            pane.scroll_pages(pages)

    def action_first_line(self) -> None:
        """To the first line of the run."""
        pane = self.pane
        if pane and pane.view and pane.view.selection:
            self.move_selection(pane, -pane.view.lines.count)
        elif pane:
            pane.go_home()

    def action_follow(self) -> None:
        """To the end, and follows it."""
        pane = self.pane
        if pane and pane.view and pane.view.selection:
            self.move_selection(pane, pane.view.lines.count)
        elif pane:
            pane.go_end()

    # choosing, copying, saving

    @on(LogPane.Marked)
    def _lines_marked(self) -> None:
        self.notify("y copies, Ctrl-S saves, Esc leaves", timeout=3)

    @on(Prompt.Answered)
    def _path_answered(self, event: Prompt.Answered) -> None:
        if event.purpose == "save" and event.text and self.pane and self.pane.view:
            self._save(self.pane.view, Path(event.text).expanduser())

    def action_select(self) -> None:
        """Begins or ends choosing lines; the scroll keys then move the end of the choice."""
        pane = self.pane
        if pane is None or pane.view is None:
            return
        visible = pane.in_sight()
        if pane.view.selection or not visible:
            pane.view.selection = None
        else:
            pane.port.pause()
            at = pane.view.cursor if pane.view.cursor in visible else visible[-1]
            pane.view.selection = (at, at)
        pane.redraw()

    def move_selection(self, pane: LogPane, by: int) -> None:
        """Moves the end of the choice by lines."""
        assert pane.view is not None and pane.view.selection is not None
        first, last = pane.view.selection
        last = min(max(0, last + by), pane.view.lines.count - 1)
        pane.view.selection = (first, last)
        pane.port.reveal(last)
        pane.redraw()

    def action_copy(self) -> None:
        """Copies the chosen lines, or those in sight, to the terminal's clipboard."""
        pane = self.pane
        if pane is None or pane.view is None:
            return
        numbers: Sequence[int] = pane.view.chosen or pane.in_sight()
        text, count = "", 0
        for number in numbers:
            line = self._text(pane.view, number) + "\n"
            if len(text) + len(line) > COPY_LIMIT:
                break
            text += line
            count += 1
        self.app.copy_to_clipboard(text)
        cut = f" (the first of {len(numbers)})" if count < len(numbers) else ""
        where = self.control.logs.folder
        if pane.view.task:
            where = self.control.logs.open(pane.view.task).path
        self.notify(f"{count} lines copied{cut}. The whole log: {where}", timeout=6)
        pane.view.selection = None
        pane.redraw()

    def action_save(self) -> None:
        """Asks where to save the chosen lines, or all that the pane shows."""
        pane = self.pane
        if pane and pane.view:
            stem = pane.view.task.stem if pane.view.task else "merged"
            name = f"{self.snapshot.run_id}-{stem}-{time.strftime('%H%M%S')}.txt"
            self.query_one(Prompt).ask("save", "save to", name)

    def _save(self, view: LogView, path: Path) -> None:
        numbers = view.chosen or range(view.lines.count)

        def write() -> None:
            try:
                with path.open("x", encoding="utf-8") as file:
                    file.writelines(self._text(view, number) + "\n" for number in numbers)
            except (OSError, IndexError) as error:
                self.app.call_from_thread(self.notify, f"not saved: {error}", severity="error")
            else:
                text = f"{thousands(len(numbers))} lines saved to {path.resolve()}"
                self.app.call_from_thread(self.notify, text)

        self.run_worker(write, thread=True, group="save")

    @staticmethod
    def _text(view: LogView, number: int) -> str:
        line = view.lines.line(number)
        before = f"{line.task} | " if line.task else ""
        return before + plain_text(line.data)
