"""Commands with a key, as the palette offers them and the help screen lists them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from textual.app import App
from textual.binding import Binding
from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.screen import Screen

from tui.keys import bound_keys, display_name

_FIRST = "help"


@dataclass(frozen=True)
class Command:
    """A name, the keys in force, the action, and the id for the config file."""

    name: str
    keys: str
    action: str
    id: str


def commands(app: App[Any], screen: type[Screen[Any]]) -> Iterator[Command]:
    """The commands of the app and a kind of screen, with the keys in force."""
    bound = bound_keys(app, [screen])
    for owner in (type(app), screen):
        for binding in owner.BINDINGS:
            if isinstance(binding, Binding) and binding.show:
                keys = bound.get(binding.id, []) if binding.id else binding.key.split(",")
                names = " ".join(display_name(key.strip()) for key in keys)
                yield Command(binding.description, names, binding.action, binding.id or "")


class Palette(Provider):
    """The commands, for the palette."""

    def _all(self) -> Iterator[Command]:
        seen: set[str] = set()
        for command in commands(self.app, type(self.screen)):
            if command.action not in seen:
                seen.add(command.action)
                yield command

    def _run(self, command: Command) -> Callable[[], Awaitable[object]]:
        of_app = any(
            isinstance(binding, Binding) and binding.action == command.action
            for binding in type(self.app).BINDINGS
        )
        if of_app:
            return partial(self.app.run_action, command.action)
        return partial(self.screen.run_action, command.action)

    async def discover(self) -> Hits:
        """Lists all commands before anything is typed. A harmless one comes first: an Enter that
        came too early must not kill everything."""
        for command in sorted(self._all(), key=lambda command: command.id != _FIRST):
            text = f"{command.name}  ({command.keys})"
            yield DiscoveryHit(text, self._run(command), help=command.id or None)

    async def search(self, query: str) -> Hits:
        """Lists the commands that match the query."""
        matcher = self.matcher(query)
        for command in self._all():
            if (score := matcher.match(command.name)) > 0:
                text = matcher.highlight(f"{command.name}  ({command.keys})")
                yield Hit(score, text, self._run(command), help=command.id or None)
