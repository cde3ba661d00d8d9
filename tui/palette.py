"""Every action with a key, by name: what the palette offers and the help screen lists."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from textual.app import App
from textual.binding import Binding
from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.screen import Screen

KEY_NAMES = {
    "left_square_bracket": "[",
    "right_square_bracket": "]",
    "apostrophe": "'",
    "slash": "/",
    "ampersand": "&",
    "exclamation_mark": "!",
    "question_mark": "?",
    "colon": ":",
    "space": "Space",
    "enter": "Enter",
    "escape": "Esc",
    "pagedown": "PgDn",
    "pageup": "PgUp",
    "shift+tab": "Shift-Tab",
}

_FIRST = "help"


@dataclass(frozen=True)
class Command:
    """An action, its keys as they are bound now, and its id for the config file."""

    name: str
    keys: str
    action: str
    id: str


def key_name(key: str) -> str:
    """`ctrl+p` as people write it: `Ctrl-P`."""
    if key in KEY_NAMES:
        return KEY_NAMES[key]
    if key.startswith("ctrl+"):
        return f"Ctrl-{key[5:].upper()}"
    return key if len(key) == 1 else key.capitalize()


def commands(app: App[Any], screen: type[Screen[Any]]) -> Iterator[Command]:
    """The actions of the app and a kind of screen, with the keys in force."""
    keymap = app._keymap
    for owner in (type(app), screen):
        for binding in owner.BINDINGS:
            if not isinstance(binding, Binding) or not binding.show:
                continue
            keys = keymap.get(binding.id or "", binding.key)
            names = " ".join(key_name(key.strip()) for key in keys.split(","))
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
        """All of them, before anything is typed. A harmless one comes first: an Enter that came
        too early must not kill everything."""
        for command in sorted(self._all(), key=lambda command: command.id != _FIRST):
            text = f"{command.name}  ({command.keys})"
            yield DiscoveryHit(text, self._run(command), help=command.id or None)

    async def search(self, query: str) -> Hits:
        """Those that match what is typed."""
        matcher = self.matcher(query)
        for command in self._all():
            if (score := matcher.match(command.name)) > 0:
                text = matcher.highlight(f"{command.name}  ({command.keys})")
                yield Hit(score, text, self._run(command), help=command.id or None)
