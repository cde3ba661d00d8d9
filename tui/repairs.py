"""Repairs of Textual 8.2: each names the failure that it prevents, and goes when Textual has it."""

from __future__ import annotations

import asyncio
from codecs import IncrementalDecoder, getincrementaldecoder
from collections import deque
from contextlib import suppress
from functools import partial
from itertools import takewhile
from typing import Any, Literal
from weakref import WeakKeyDictionary

from textual import work
from textual.app import App
from textual.await_complete import AwaitComplete
from textual.command import CommandList, CommandPalette
from textual.css.query import NoMatches
from textual.drivers import linux_driver, web_driver
from textual.events import Event, Key, Paste
from textual.message_pump import MessagePump
from textual.screen import Screen
from textual.widgets import OptionList
from textual.worker import WorkerError

_on_event = App.on_event
_move_page = OptionList._move_page
_dismiss = Screen.dismiss
_gather_commands = CommandPalette._gather_commands.__wrapped__  # type: ignore[attr-defined]
_select_or_command = CommandPalette._select_or_command
_waiting: WeakKeyDictionary[App[Any], deque[Key | Paste]] = WeakKeyDictionary()
"""Keys that wait until the one before them has been handled; without an entry, none is."""


def _lenient_decoder(encoding: str) -> partial[IncrementalDecoder]:
    """A byte that is no UTF-8, as terminals with another character set send it, ended the app."""
    return partial(getincrementaldecoder(encoding), errors="replace")


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


@work(exclusive=True, group=CommandPalette._GATHER_COMMANDS_GROUP)
async def _gather_from_nothing(self: CommandPalette, search_value: str) -> None:
    """Enter right behind the last letter took the first command of the list for what had been
    typed before that letter: `Kill all`, for who had typed `theme`. A letter typed while the
    palette closed looked for commands whose list was gone: NoMatches, and the app ended."""
    try:
        self.query_one(CommandList).clear_options()
        await _gather_commands(self, search_value)
    except NoMatches:
        if self in self.app._screen_stack:
            raise


def _select_while_open(self: CommandPalette, event: Any = None) -> None:
    """Each Enter that came while the palette was closing ran its command once more."""
    if self in self.app._screen_stack:
        _select_or_command(self, event)


async def _on_event_in_order(self: App[Any], event: Event) -> None:
    """Letters right behind a key that opens a screen or moves the focus went to the screen or the
    field before it, or were lost: of `:ansi` `i` was left, which stands for `Kill all`. A key
    waits for the one before it; those that have priority in the app, such as F9, do not."""
    if not isinstance(event, Key | Paste) or event.is_forwarded or not self._screen_stack:
        await _on_event(self, event)
    elif _goes_first(self, event):
        await _on_event(self, event)
    elif self not in _waiting:
        _waiting[self] = deque([event])
        await _next_key(self)
    else:
        _waiting[self].append(event)


def _goes_first(self: App[Any], event: Key | Paste) -> bool:
    """The app's own bindings of priority; a screen's, such as for saving, overtake no letter."""
    bindings = dict(self._screen_stack[-1]._binding_chain).get(self)
    found = bindings.key_to_bindings.get(_key(event), ()) if bindings else ()
    return any(binding.priority for binding in found)


async def _next_key(self: App[Any]) -> None:
    """Handles the next key, in the screen that the one before has led to."""
    waiting = _waiting[self]
    if not waiting or not self._screen_stack:
        del _waiting[self]
        return
    screen = self._screen_stack[-1]
    if not screen.is_mounted and screen.call_later(self.call_later, _next_key, self):
        return
    event = waiting.popleft()
    target = screen.focused or screen
    await _on_event(self, event)
    repeated = list(takewhile(lambda each: _key(each) == _key(event) != "", waiting))
    if len(repeated) > 1:  # it is held down, and must not scroll on when it has been let go
        for again in repeated:
            waiting.popleft()
            await _on_event(self, again)
    # Twice: the key itself, and the messages to which it has led.
    _follow(self, deque([*target.ancestors_with_self] * 2))


def _key(event: Key | Paste) -> str:
    return event.key if isinstance(event, Key) else ""


def _follow(self: App[Any], nodes: deque[MessagePump]) -> None:
    """Goes the way of a key: when a node runs this callback, it has handled the key."""
    while nodes:
        if nodes.popleft().call_later(_follow, self, nodes):
            return

    async def turn() -> None:
        await asyncio.sleep(0)  # a worker that the key has started takes its first step
        await _next_key(self)

    self.call_later(turn)


async def _submit_what_was_typed(self: CommandPalette, event: Any) -> None:
    """Enter that came before the list of what had been typed was lost, and the palette stayed."""
    for search in [worker for worker in self.app.workers if worker.node is self]:
        with suppress(WorkerError):
            await search.wait()
    _select_while_open(self, event)


def repair() -> None:
    """Makes the repairs; a second time changes nothing."""
    for driver in (linux_driver, web_driver):
        driver.getincrementaldecoder = _lenient_decoder  # type: ignore[attr-defined]
    CommandPalette._select_or_command = _select_while_open  # type: ignore[method-assign]
    for handlers in CommandPalette._decorated_handlers.values():
        handlers[:] = [
            (_submit_what_was_typed if handler is _select_or_command else handler, selectors)
            for handler, selectors in handlers
        ]
    App.on_event = _on_event_in_order  # type: ignore[method-assign]
    OptionList._move_page = _move_page_when_laid_out  # type: ignore[method-assign]
    Screen.dismiss = _dismiss_itself  # type: ignore[method-assign]
    CommandPalette._gather_commands = _gather_from_nothing  # type: ignore[method-assign]
