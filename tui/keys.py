"""Names of the keys that commands are bound to, for footers, help, dialogs and messages.

The config file can bind other keys, so a text asks here instead of naming a key itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from pkgutil import walk_packages
from typing import Any, NamedTuple

from textual.app import App
from textual.binding import BindingsMap
from textual.dom import DOMNode

_NAMES = {
    "left_square_bracket": "[",
    "right_square_bracket": "]",
    "apostrophe": "'",
    "slash": "/",
    "ampersand": "&",
    "exclamation_mark": "!",
    "question_mark": "?",
    "greater_than_sign": ">",
    "less_than_sign": "<",
    "equals_sign": "=",
    "colon": ":",
    "plus": "+",
    "minus": "-",
    "space": "Space",
    "enter": "Enter",
    "escape": "Esc",
    "pagedown": "PgDn",
    "pageup": "PgUp",
    "left": "←",
    "right": "→",
    "up": "↑",
    "down": "↓",
}


def display_name(key: str) -> str:
    """A key as people write it: `Ctrl-P` for `ctrl+p`."""
    *modifiers, last = key.split("+")
    if len(last) > 1:
        name = _NAMES.get(last, last.capitalize())
    else:
        name = last.upper() if modifiers else last
    return "-".join([*map(str.capitalize, modifiers), name])


def classes_with_keys() -> Iterator[type[DOMNode]]:
    """All screens and widgets that have bindings of their own. Imports them."""
    for package in map(import_module, ("tui.screens", "tui.widgets")):
        for module in walk_packages(package.__path__, f"{package.__name__}."):
            for value in vars(import_module(module.name)).values():
                ours = isinstance(value, type) and value.__module__ == module.name
                if ours and issubclass(value, DOMNode) and vars(value).get("BINDINGS"):
                    yield value


def bound_keys(app: App[Any], owners: Iterable[type[DOMNode]]) -> Mapping[str, Sequence[str]]:
    """The keys in force of each command id, of the app and of other classes with bindings. A key
    of a priority binding belongs to that command alone."""
    return _bound_keys(_Bindings((type(app), *owners), frozenset(app._keymap.items())))


def key_of(node: DOMNode, command: str) -> str:
    """The displayed name of the first key bound to a command of what has the focus, of `node`, its
    screen or the app; empty when none is."""
    keys = _bound_keys(_bindings_at(node)).get(command)
    return display_name(keys[0]) if keys else ""


class KeyHint(NamedTuple):
    """Displayed keys, what they do, and the first of them as it is bound."""

    keys: str
    does: str
    first: str


def key_hints(
    node: DOMNode, hints: Iterable[tuple[str, str]], *, typing: bool = False
) -> list[KeyHint]:
    """Hints from pairs of command ids (several with blanks between) and text. Commands without a
    key are left out; with `typing`, keys that type a character."""
    return list(_named(_bindings_at(node), tuple(hints), typing))


class _Bindings(NamedTuple):
    """Classes with bindings, the app first, and the keymap of the config file."""

    owners: tuple[type[DOMNode], ...]
    keymap: frozenset[tuple[str, str]]


def _bindings_at(node: DOMNode) -> _Bindings:
    """The bindings of a node and, before them, of what has the focus on its screen."""
    focused = node.screen.focused
    nodes = [*(focused.ancestors_with_self if focused else ()), *node.ancestors_with_self]
    types = dict.fromkeys(type(owner) for owner in nodes)
    owners = (base for each in types for base in each.__mro__ if "BINDINGS" in vars(base))
    return _Bindings((type(node.app), *owners), frozenset(node.app._keymap.items()))


# Both are asked up to thirty times a second, and their answers hardly ever change.
@lru_cache(maxsize=64)
def _bound_keys(of: _Bindings) -> dict[str, list[str]]:
    result: dict[str, list[str]] = {}
    taken: set[str] = set()
    for owner in of.owners:
        bindings = BindingsMap(owner.BINDINGS)
        bindings.apply_keymap(dict(of.keymap))
        priority = {key for key, binding in bindings if binding.priority}
        for key, binding in bindings:
            if binding.id and (key in priority or key not in taken):
                keys = result.setdefault(binding.id, [])
                keys += [] if key in keys else [key]
        taken |= priority
    return result


@lru_cache(maxsize=64)
def _named(of: _Bindings, hints: tuple[tuple[str, str], ...], typing: bool) -> tuple[KeyHint, ...]:
    bound = {
        command: [key for key in keys if not typing or len(display_name(key)) > 1]
        for command, keys in _bound_keys(of).items()
    }
    result = []
    for commands, text in hints:
        keys = [bound[command][0] for command in commands.split() if bound.get(command)]
        if keys:
            result.append(KeyHint(" ".join(map(display_name, keys)), text, keys[0]))
    return tuple(result)
