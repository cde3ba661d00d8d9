"""Reference of the keys, from the bindings of the app, its screens and its widgets."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator
from itertools import groupby

from textual.binding import BindingsMap
from textual.dom import DOMNode

from docs.markdown import table
from tui.app import TfmuxApp
from tui.keys import classes_with_keys, display_name
from tui.widgets.table import Table

_TITLES: dict[type[DOMNode], str] = {TfmuxApp: "Everywhere", Table: "Tables"}
_FEW = 3
"""Keys of a class that has no section of its own."""


def owners() -> list[type[DOMNode]]:
    """Every class of ours with keys: the app, then what can be rebound, then the rest."""
    return sorted({TfmuxApp, *classes_with_keys()}, key=_place)


def _place(owner: type[DOMNode]) -> tuple[bool, bool, str]:
    fixed = not any(command for _, command, _ in keys_of(owner))
    return owner is not TfmuxApp, fixed, owner.__name__


def keys_of(owner: type[DOMNode]) -> list[tuple[tuple[str, ...], str, str]]:
    """The displayed keys of each command of a class, the command's id (may be empty), and what it
    does."""
    rows: dict[tuple[str, str], list[str]] = {}
    for key, binding in BindingsMap(vars(owner).get("BINDINGS", ())):
        rows.setdefault((binding.id or "", binding.description), []).append(display_name(key))
    return [(tuple(keys), command, about) for (command, about), keys in rows.items()]


def all_keys() -> set[str]:
    """The displayed names of all keys that are bound."""
    return {key for owner in owners() for keys, _, _ in keys_of(owner) for key in keys}


def all_commands() -> set[str]:
    """The ids of all commands with keys."""
    return {command for owner in owners() for _, command, _ in keys_of(owner) if command}


def markdown() -> Iterator[str]:
    """A section for each class with more than a few keys, and one for all others."""
    few = [owner for owner in owners() if len(keys_of(owner)) <= _FEW]
    for owner in owners():
        if owner not in few:
            yield from (f"## {_title(owner)}", "")
            yield from (*table(("key", "id", "does"), _rows(owner)), "")
    yield from ("## Dialogs, and screens with few keys", "")
    rows = ((_title(owner), *row) for owner in few for row in _rows(owner))
    yield from (*table(("on", "key", "id", "does"), rows), "")


def _rows(owner: type[DOMNode]) -> Iterator[tuple[str, ...]]:
    return _joined(
        (" ".join(map(_kbd, keys)), f"`{command}`" if command else "", text)
        for keys, command, text in keys_of(owner)
    )


def _joined(rows: Iterable[tuple[str, str, str]]) -> Iterator[tuple[str, ...]]:
    """One row for rows that differ in their numbers alone, as those of pane 1 to pane 9 do."""
    for _, alike in groupby(rows, key=lambda row: re.sub(r"\d", "", " ".join(row))):
        first, *others = alike
        if others:
            yield tuple(f"{begin} … {end}" for begin, end in zip(first, others[-1], strict=True))
        else:
            yield first


def _kbd(key: str) -> str:
    return f"<kbd>{html.escape(key, quote=False)}</kbd>"


def _title(owner: type[DOMNode]) -> str:
    if owner in _TITLES:
        return _TITLES[owner]
    return re.sub(r"(?<!^)(?=[A-Z])", " ", owner.__name__).capitalize()
