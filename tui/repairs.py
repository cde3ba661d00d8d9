"""Repairs of Textual 8.2: each names the failure that it prevents, and goes when Textual has it."""

from __future__ import annotations

from typing import Any, Literal

from textual.await_complete import AwaitComplete
from textual.command import CommandList, CommandPalette
from textual.screen import Screen
from textual.widgets import OptionList
from textual.worker import Worker

_move_page = OptionList._move_page
_dismiss = Screen.dismiss
_gather_commands = CommandPalette._gather_commands
_select_or_command = CommandPalette._select_or_command


def _move_page_when_laid_out(self: OptionList, direction: Literal[-1, 1]) -> None:
    """A page up or down in a list that has options and has not been laid out yet: KeyError."""
    if (self.highlighted or 0) in self._index_to_line:
        _move_page(self, direction)


def _dismiss_itself(self: Screen[Any], result: Any = None) -> AwaitComplete:
    """Two Enters at once answer a dialog twice: the second closed the screen below it, or raised
    InvalidStateError. A dialog under another one closed that one in its stead."""
    stack = self.app._screen_stack
    if self not in stack:
        return AwaitComplete()
    if stack[-1] is self:
        return _dismiss(self, result)
    if self._result_callbacks:
        self._result_callbacks[-1](result)
    stack.remove(self)
    self._pop_result_callback()

    async def remove() -> None:
        await self.app._replace_screen(self)

    return AwaitComplete(remove()).call_next(self.app)


def _gather_from_nothing(self: CommandPalette, search_value: str) -> Worker[None]:
    """Enter right behind the last letter took the first command of the list for what had been
    typed before that letter: `Kill all`, for who had typed `theme`."""
    self.query_one(CommandList).clear_options()
    return _gather_commands(self, search_value)


def _select_while_open(self: CommandPalette, event: Any = None) -> None:
    """Each Enter that came while the palette was closing ran its command once more."""
    if self in self.app._screen_stack:
        _select_or_command(self, event)


def repair() -> None:
    """Makes the repairs; a second time changes nothing."""
    CommandPalette._select_or_command = _select_while_open  # type: ignore[method-assign]
    for handlers in CommandPalette._decorated_handlers.values():
        handlers[:] = [
            (_select_while_open if handler is _select_or_command else handler, selectors)
            for handler, selectors in handlers
        ]
    OptionList._move_page = _move_page_when_laid_out  # type: ignore[method-assign]
    Screen.dismiss = _dismiss_itself  # type: ignore[method-assign]
    CommandPalette._gather_commands = _gather_from_nothing  # type: ignore[method-assign]
