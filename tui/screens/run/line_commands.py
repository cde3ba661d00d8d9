"""Commands about the lines of the focused pane: scroll, select, copy, save."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from launcher.quantities import thousands
from launcher.store.logs import LogStore
from tui.log.sanitise import plain_text
from tui.log.view import LogView
from tui.screens.run.interaction import Interaction
from tui.widgets.log_pane import LogPane

COPY_LIMIT = 100_000
"""Bytes; terminals drop a longer OSC 52."""


class LineCommands:
    """While lines are selected, the commands that scroll move the end of the selection."""

    def __init__(
        self, pane: Callable[[], LogPane | None], logs: LogStore, interaction: Interaction
    ) -> None:
        """`pane` gives the focused pane."""
        self._pane = pane
        self._logs = logs
        self._interaction = interaction

    # scrolling

    def scroll(self, rows: int) -> None:
        """Scrolls by rows."""
        self._move(lambda pane: rows, lambda pane: pane.scroll_rows(rows))

    def scroll_pages(self, pages: float) -> None:
        """Scrolls by pages or halves of one."""
        self._move(
            lambda pane: int(pane.size.height * pages), lambda pane: pane.scroll_pages(pages)
        )

    def go_home(self) -> None:
        """To the first line of the run."""
        self._move(lambda pane: -_count(pane), LogPane.go_home)

    def go_end(self) -> None:
        """To the end, and follows it."""
        self._move(_count, LogPane.go_end)

    # selecting

    def toggle_selection(self) -> None:
        """Begins selecting at the last hit in sight or the last line, or ends it."""
        pane = self._pane()
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

    def leave_selection(self) -> bool:
        """Selects no line any more; False when none was."""
        pane = self._pane()
        if pane is None or pane.view is None or not pane.view.selection:
            return False
        pane.view.selection = None
        pane.redraw()
        return True

    def leave_hit(self) -> bool:
        """Marks no line as the last hit any more; False when none was."""
        pane = self._pane()
        if pane is None or pane.view is None or pane.view.cursor is None:
            return False
        pane.view.cursor = None
        pane.redraw()
        return True

    def show_keys(self) -> None:
        """Says what can be done with lines selected by mouse."""
        keys = [
            f"{self._interaction.key(command)} {text}"
            for command, text in (("log.copy", "copies"), ("log.save", "saves"), ("back", "leaves"))
        ]
        self._interaction.notify(", ".join(keys), timeout=3)

    # copying and saving

    def copy(self) -> None:
        """Copies the selected lines, or those in sight, to the terminal's clipboard."""
        pane = self._pane()
        if pane is None or pane.view is None:
            return
        numbers: Sequence[int] = pane.view.selected_lines or pane.in_sight()
        text, count = "", 0
        for number in numbers:
            line = _text(pane.view, number) + "\n"
            if len(text) + len(line) > COPY_LIMIT:
                break
            text += line
            count += 1
        self._interaction.copy(text)
        cut = f" (the first of {len(numbers)})" if count < len(numbers) else ""
        task = pane.view.task
        where = self._logs.open(task).path if task else self._logs.folder
        self._interaction.notify(f"{count} lines copied{cut}. The whole log: {where}", timeout=6)
        pane.view.selection = None
        pane.redraw()

    async def save(self, run_id: str) -> None:
        """Asks for a file and saves the selected lines, or all that the pane shows."""
        pane = self._pane()
        if pane is None or pane.view is None:
            return
        stem = pane.view.task.stem if pane.view.task else "merged"
        name = f"{run_id}-{stem}-{time.strftime('%H%M%S')}.txt"
        answer = await self._interaction.ask("save to", name)
        pane = self._pane()
        if not answer or pane is None or pane.view is None:
            return
        numbers = pane.view.selected_lines or range(pane.view.lines.count)
        try:
            path = await asyncio.to_thread(_write, answer, pane.view, numbers)
        except (OSError, IndexError) as error:
            self._interaction.notify(f"not saved: {error}", severity="error")
        else:
            count = thousands(len(numbers))
            self._interaction.notify(f"{count} lines saved to {path}")

    def _move(self, by: Callable[[LogPane], int], scroll: Callable[[LogPane], None]) -> None:
        """Moves the end of the selection by lines, or scrolls where nothing is selected."""
        pane = self._pane()
        if pane is None:
            return
        if pane.view is None or not pane.view.selection:
            scroll(pane)
            return
        first, last = pane.view.selection
        last = min(max(0, last + by(pane)), pane.view.lines.count - 1)
        pane.view.selection = (first, last)
        pane.port.reveal(last)
        pane.redraw()


def _count(pane: LogPane) -> int:
    return pane.view.lines.count if pane.view else 0


def _text(view: LogView, number: int) -> str:
    line = view.lines.line(number)
    before = f"{line.task} | " if line.task else ""
    return before + plain_text(line.data)


def _write(name: str, view: LogView, numbers: Sequence[int]) -> Path:
    """Writes lines to a new file."""
    path = Path(name).expanduser().resolve()
    with path.open("x", encoding="utf-8") as file:
        file.writelines(_text(view, number) + "\n" for number in numbers)
    return path
