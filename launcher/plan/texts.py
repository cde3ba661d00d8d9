"""Texts of commands and environments with parts that thousands of tasks have.

The addresses of 8,000 tasks take 110 kB, and `TF_CONFIG` of each of these holds all of them. Such a
part is kept once for all tasks, and sent to each host once.
"""

from __future__ import annotations

from collections.abc import Iterable

_SHARED_LENGTH = 1000


class SharedText(str):
    """Long part of texts of many tasks."""

    __slots__ = ()


Text = tuple[str, ...]
"""A text as its parts, in their order; some may be `SharedText`."""


def shared(text: str) -> str:
    """Marks a text as shared, where it is long enough for that."""
    return SharedText(text) if len(text) >= _SHARED_LENGTH else text


def composed(parts: Iterable[str]) -> Text:
    """Joins neighbours that are not shared."""
    found: list[str] = []
    for part in parts:
        if found and not isinstance(part, SharedText) and not isinstance(found[-1], SharedText):
            found[-1] += part
        else:
            found.append(part)
    return tuple(found)


def written(text: Text) -> str:
    """Writes a text in full."""
    return "".join(text)
