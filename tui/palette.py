"""Commands with a key, as the palette offers them and the help screen lists them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from textual import on, work
from textual.await_complete import AwaitComplete
from textual.binding import Binding
from textual.command import CommandList, CommandPalette, DiscoveryHit, Hit, Hits, Provider
from textual.css.query import NoMatches
from textual.dom import DOMNode
from textual.screen import Screen
from textual.widgets import Input
from textual.worker import WorkerError

from launcher.frozen import frozen
from tui.keys import display_name

_FIRST = "help"
_NOT_OFFERED = ("kill_all", "palette")
"""An Enter that comes too early must not kill everything; its key works in the palette, too."""


@frozen
class Command:
    """A binding in force, the part of the screen that owns it, and the displayed keys."""

    owner: DOMNode
    binding: Binding
    keys: tuple[str, ...]

    @property
    def sentence(self) -> str | None:
        """What the command does, where its name does not say all."""
        return self.binding.tooltip or None


def commands(screen: Screen[Any]) -> Sequence[Command]:
    """The commands that mean something now: those of what has the focus, of the screen, and of the
    app."""
    found: dict[tuple[DOMNode, str], Command] = {}
    for key, (owner, binding, enabled, _) in screen.active_bindings.items():
        if binding.show and enabled:
            before = found.get((owner, binding.action))
            keys = (*(before.keys if before else ()), display_name(key))
            found[owner, binding.action] = Command(owner, binding, keys)
    return list(found.values())


class Palette(Provider):
    """The commands, for the palette; of keys that are numbers, none."""

    def _all(self) -> list[tuple[str, Command]]:
        return [
            (f"{command.binding.description}  ({' '.join(command.keys)})", command)
            for command in commands(self.screen)
            if not (command.binding.group and command.binding.group.compact)
            and command.binding.id not in _NOT_OFFERED
        ]

    def _run(self, command: Command) -> Callable[[], Awaitable[object]]:
        return partial(self.app.run_action, command.binding.action, command.owner)

    def _place(self, offered: tuple[str, Command]) -> tuple[bool, bool, bool]:
        """Help, then what works everywhere, then the rest; last what needs no sentence, such as to
        scroll by a line: nobody looks that up to run it."""
        command = offered[1]
        return command.binding.id != _FIRST, command.owner is not self.app, not command.sentence

    async def discover(self) -> Hits:
        """Lists all commands before anything is typed. A harmless one comes first: an Enter that
        came too early must not kill everything."""
        for text, command in sorted(self._all(), key=self._place):
            yield DiscoveryHit(text, self._run(command), help=command.sentence)

    async def search(self, query: str) -> Hits:
        """Lists the commands that match the query."""
        matcher = self.matcher(query)
        for text, command in self._all():
            if (score := matcher.match(command.binding.description)) > 0:
                highlit = matcher.highlight(text)
                yield Hit(score, highlit, self._run(command), help=command.sentence)


class CommandMenu(CommandPalette):
    """Textual's palette, in which Enter means the command that was typed, however fast."""

    def dismiss(self, result: object = None) -> AwaitComplete:
        """Closes the palette, once: a second Enter would close the screen below."""
        return super().dismiss(None) if self.app.screen is self else AwaitComplete()

    @work(exclusive=True, group=CommandPalette._GATHER_COMMANDS_GROUP)
    async def _gather_commands(self, search_value: str) -> None:
        """Looks from an empty list on: Enter right behind the last letter would take the first
        command of the list for the letters before it."""
        gather = CommandPalette._gather_commands.__wrapped__  # type: ignore[attr-defined]
        try:
            self.query_one(CommandList).clear_options()
            await gather(self, search_value)
        except NoMatches:  # the palette was closed meanwhile
            if self in self.app.screen_stack:
                raise

    @on(Input.Submitted)
    async def _submit(self, event: Input.Submitted) -> None:
        """Waits for the list of what has been typed."""
        event.prevent_default()
        event.stop()
        for search in [worker for worker in self.app.workers if worker.node is self]:
            with suppress(WorkerError):
                await search.wait()
        if self.app.screen is self:
            self._select_or_command()

    def _action_command_list(self, action: str) -> None:
        """A page up or down may come before the list has been laid out."""
        with suppress(KeyError):
            super()._action_command_list(action)
