"""Changes of single values in a parsed TOML document, with as few changed lines as possible."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import tomlkit
from tomlkit.items import AbstractTable, Array, InlineTable

from .key_lines import KeyPath

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_WIDE = 90
"""Characters of an array from which on it is written on several lines."""


def put(document: Any, path: KeyPath, value: Any, *, whole: bool) -> None:
    """Changes as little as possible; with `whole`, replaces the whole value."""
    table = document
    for depth, key in enumerate(path[:-1]):
        if key not in table:
            if value is None:
                return
            inline = isinstance(table, InlineTable)
            # [hosts] above [hosts.tf1] needs no header of its own.
            above = depth == 0 and len(path) > 2
            table[key] = (
                tomlkit.inline_table() if inline else tomlkit.table(is_super_table=above or None)
            )
        table = table[key]
    key = path[-1]
    if value is None:
        if key in table:
            del table[key]
        return
    old = table.get(key)
    if (
        not whole
        and isinstance(old, Array)
        and isinstance(value, list)
        and _keeps_lines(old, value)
    ):
        _change_list(old, value)
    elif not whole and isinstance(old, AbstractTable | InlineTable) and isinstance(value, dict):
        for name in [name for name in old if name not in value]:
            del old[name]
        for name, inner in value.items():
            if name not in old or old[name] != inner:
                old[name] = item(inner)
    elif isinstance(value, dict) and len(path) <= 2 and not isinstance(table, InlineTable):
        table[key] = filled(tomlkit.table(), value)
    else:
        _assign(table, key, value)


def appended(document: tomlkit.TOMLDocument, path: KeyPath, value: Any) -> str:
    """Appends a table to the text, for files whose tables have no headers."""
    if not isinstance(value, dict):
        raise TypeError("only a table can be appended")
    name = ".".join(quoted(str(key)) for key in path)
    pairs = (f"{quoted(key)} = {item(inner).as_string()}" for key, inner in value.items())
    return "\n".join([tomlkit.dumps(document).rstrip("\n"), "", f"[{name}]", *pairs, ""])


def _assign(table: Any, key: Any, value: Any) -> None:
    old = table.get(key)
    new = item(value)
    trivia = getattr(old, "trivia", None)
    if trivia is not None and hasattr(new, "trivia"):
        new.trivia.comment_ws, new.trivia.comment = trivia.comment_ws, trivia.comment
    table[key] = new


def item(value: Any) -> Any:
    if isinstance(value, dict):
        return filled(tomlkit.inline_table(), value)
    if isinstance(value, list):
        array = tomlkit.array()
        for inner in value:
            array.append(item(inner))
        if len(array.as_string()) > _WIDE and all(isinstance(v, str) for v in value):
            return _lines_of(value)
        return array
    return tomlkit.item(value)


def filled(table: Any, values: Mapping[str, Any]) -> Any:
    for name, inner in values.items():
        table[name] = item(inner)
    return table


def _lines_of(words: list[str]) -> Any:
    """Makes a long list of strings on several lines."""
    rows: list[list[str]] = [[]]
    for word in words:
        text = tomlkit.item(word).as_string()
        if rows[-1] and sum(len(t) + 2 for t in rows[-1]) + len(text) > _WIDE:
            rows.append([])
        rows[-1].append(text)
    inside = ",\n    ".join(", ".join(row) for row in rows)
    return tomlkit.parse(f"a = [\n    {inside},\n]\n")["a"]


def _change_list(array: Array, values: list[Any]) -> None:
    """Replaces only the elements between the equal ones at both ends."""
    old = [item.unwrap() if hasattr(item, "unwrap") else item for item in array]
    start = 0
    while start < min(len(old), len(values)) and _same(old[start], values[start]):
        start += 1
    end = 0
    while end < min(len(old), len(values)) - start and _same(old[-1 - end], values[-1 - end]):
        end += 1
    fresh = values[start : len(values) - end]
    gone = len(old) - end - start
    for offset, value in enumerate(fresh[:gone]):
        array[start + offset] = item(value)
    for offset, value in enumerate(fresh[gone:]):
        array.insert(start + gone + offset, item(value))
    for _ in range(gone - len(fresh)):
        del array[start + len(fresh)]


def _keeps_lines(old: Array, values: list[Any]) -> bool:
    """Whether the list has several lines already, or will fit on one."""
    return "\n" in old.as_string() or len(json.dumps(values, ensure_ascii=False)) <= _WIDE


def _same(one: object, other: object) -> bool:
    return type(one) is type(other) and one == other


def quoted(name: str) -> str:
    return name if _BARE.fullmatch(name) else tomlkit.item(name).as_string()
