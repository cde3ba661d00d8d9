"""Story of a run: the last events that its state machine has handled, as lines for people.

It is written when a launcher process crashes. What hosts say of their environment, and what tasks
have printed, is left out: only how much of it there was.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from ..ids import TaskId
from ..plan.facts import HostFacts
from ..printable import printable
from .events import Event

MOST_EVENTS = 200
LONGEST_LINE = 300
_MOST_ITEMS = 8
_UNTOLD = frozenset({"tail", "environ", "evidence"})
"""Fields of which only the length is told."""


def story(events: Iterable[Event]) -> Iterator[str]:
    """The events, oldest first, one a line."""
    for event in events:
        clock = time.strftime("%H:%M:%S", time.localtime(event.time))
        text = f"{clock}.{int(event.time * 1000) % 1000:03} {_told(event)}"
        yield printable(text, LONGEST_LINE)


def _told(value: Any) -> str:
    if isinstance(value, HostFacts):
        return "…"
    if is_dataclass(value) and not isinstance(value, type):
        parts = (_field(value, field.name) for field in fields(value) if field.name != "time")
        return f"{type(value).__name__}({', '.join(filter(None, parts))})"
    if isinstance(value, Mapping):
        items = [f"{_told(key)}: {_told(value[key])}" for key in list(value)[:_MOST_ITEMS]]
        return f"{{{', '.join([*items, *_rest(len(value))])}}}"
    if isinstance(value, tuple) and not isinstance(value, TaskId):
        return f"({', '.join([*map(_told, value[:_MOST_ITEMS]), *_rest(len(value))])})"
    return str(value)[:LONGEST_LINE]


def _field(value: Any, name: str) -> str:
    found = getattr(value, name)
    if found in (None, "", (), False):
        return ""
    return f"{name}={f'{len(found)} left out' if name in _UNTOLD else _told(found)}"


def _rest(count: int) -> list[str]:
    return [f"and {count - _MOST_ITEMS} more"] if count > _MOST_ITEMS else []
