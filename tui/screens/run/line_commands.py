"""Commands about the lines of the focused pane: scroll, select, copy, save."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from launcher.errors import TfmuxError
from launcher.paths import expand_user
from launcher.quantities import counted
from launcher.store.logs import LogStore
from tui.log.sanitise import plain_text
from tui.log.view import LogView
from tui.log.viewport import Viewport
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
        self._move(lambda port: rows, lambda port: port.scroll(rows))

    def scroll_pages(self, pages: float) -> None:
        """Scrolls by pages or halves of one."""
        self._move(lambda port: int(port.height * pages), lambda port: port.page(pages))

    def go_home(self) -> None:
        """To the first line of the run."""
        self._move(lambda port: -port.count, Viewport.home)

    def go_end(self) -> None:
        """To the end, and follows it."""
        self._move(lambda port: port.count, Viewport.follow)

    def _move(self, by: Callable[[Viewport], int], scroll: Callable[[Viewport], None]) -> None:
        """Moves the end of the selection by lines and folds, or scrolls where nothing is
        selected."""
        pane = self._pane()
        if pane is None:
            return
        if pane.view is None or not pane.view.selection:
            pane.move(scroll)
            return
        first, last = pane.view.selection
        port = pane.port
        last = port.items_from(last, by(port))
        pane.view.selection = (first, last)
        port.reveal(last)
        pane.redraw()

    # selecting

    def _focused(self) -> tuple[LogPane, LogView] | None:
        pane = self._pane()
        return None if pane is None or pane.view is None else (pane, pane.view)

    def toggle_selection(self) -> None:
        """Begins selecting at the last hit in sight or the last line, or ends it."""
        if focused := self._focused():
            pane, view = focused
            visible = pane.in_sight()
            if view.selection or not visible:
                view.selection = None
            else:
                pane.port.pause()
                at = view.cursor if view.cursor in visible else visible[-1]
                view.selection = (at, at)
            pane.redraw()

    def leave_selection(self) -> bool:
        """Selects no line any more; False when none was."""
        focused = self._focused()
        if not focused or not focused[1].selection:
            return False
        focused[1].selection = None
        focused[0].redraw()
        return True

    def leave_hit(self) -> bool:
        """Marks no line as the last hit any more; False when none was."""
        focused = self._focused()
        if not focused or focused[1].cursor is None:
            return False
        focused[1].cursor = None
        focused[0].redraw()
        return True

    def show_keys(self) -> None:
        """Says what can be done with lines selected by mouse."""
        commands = {"log.copy": "copies", "log.save": "saves", "back": "leaves"}
        keys = (f"{self._interaction.key(name)} {text}" for name, text in commands.items())
        self._interaction.notify(", ".join(keys), timeout=3)

    # copying and saving

    def copy(self) -> None:
        """Copies the selected lines, or those in sight, to the terminal's clipboard."""
        if not (focused := self._focused()):
            return
        pane, view = focused
        numbers: Sequence[int] = view.selected_lines or pane.in_sight()
        text, count = "", 0
        for number in numbers:
            line = _text(view, number) + "\n"
            if len(text) + len(line) > COPY_LIMIT:
                break
            text += line
            count += 1
        self._interaction.copy(text)
        cut = f" (the first of {len(numbers)})" if count < len(numbers) else ""
        where = self._logs.open(view.task).path if view.task else self._logs.folder
        copied = counted(count, "line")
        self._interaction.notify(f"{copied} copied{cut}. The whole log: {where}", timeout=6)
        view.selection = None
        pane.redraw()

    def copy_selected(self) -> bool:
        """Copies the selected lines; False when there are none."""
        focused = self._focused()
        if not focused or not focused[1].selection:
            return False
        self.copy()
        return True

    async def save(self, run_id: str) -> None:
        """Asks for a file and saves the selected lines, or all that the pane shows."""
        if not (focused := self._focused()):
            return
        task = focused[1].task
        name = f"{run_id}-{task.stem if task else 'merged'}-{time.strftime('%H%M%S')}.txt"
        answer = await self._interaction.ask("save to", name)
        if not answer or not (focused := self._focused()):
            return
        view = focused[1]
        numbers = view.selected_lines or range(view.lines.count)
        try:
            path = await asyncio.to_thread(_write, answer, view, numbers)
        except (TfmuxError, OSError, IndexError, ValueError) as error:
            self._interaction.notify(f"not saved: {error}", severity="error")
        else:
            self._interaction.notify(f"{counted(len(numbers), 'line')} saved to {path}")


def _text(view: LogView, number: int) -> str:
    line = view.lines.line(number)
    before = f"{line.task} | " if line.task else ""
    return before + plain_text(line.data)


def _write(name: str, view: LogView, numbers: Sequence[int]) -> Path:
    """Writes lines to a new file."""
    path = Path(os.path.realpath(expand_user(name)))
    with path.open("x", encoding="utf-8") as file:
        file.writelines(_text(view, number) + "\n" for number in numbers)
    return path
