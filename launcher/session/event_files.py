"""Records of a run as programs get them: read from its files as they come."""

from __future__ import annotations

import json
import time
from typing import Any

from ..store.runs import RunFolder
from ..store.stream import LineReader, PublicEvent, printable_values
from .client import RunClient

_LATE_SECONDS = 2.0
"""What the launcher has said and is not in the files by then, the disk does not take."""
_Key = tuple[str, Any]


class EventFiles:
    """The events of one run, each once; `read` waits for the disk."""

    def __init__(self, folder: RunFolder, *, from_end: bool) -> None:
        """`from_end`: only what comes from now on."""
        make = LineReader.from_end if from_end else LineReader
        self._readers = [make(folder.events), make(folder.metrics)]
        self._since = time.time() if from_end else 0.0
        self._seen: dict[_Key, float] = {}
        """Times of the last events about each task, host and so on."""
        self._told: set[tuple[_Key, float]] = set()
        """Events that were not in the files in time, and came from the launcher."""

    def read(self, client: RunClient, *, last: bool = False) -> list[PublicEvent]:
        """The events that have come since the last call, and with `last` all that will not come
        any more: a disk that is full or does not answer keeps none from whoever follows."""
        found = [
            event
            for reader in self._readers
            for line in reader.read()
            if (event := _event(line)) is not None and self._is_new(event)
        ]
        found.sort(key=lambda event: float(event["time"]))
        until = float("inf") if last else time.time() - _LATE_SECONDS
        for event in client.records(self._since, until):
            key = _key(event)
            if event["time"] > self._seen.get(key, 0.0):
                self._seen[key] = event["time"]
                self._told.add((key, event["time"]))
                found.append(event)
        return found

    def _is_new(self, event: PublicEvent) -> bool:
        key = _key(event)
        self._seen[key] = event["time"]
        return (key, event["time"]) not in self._told


def _event(line: bytes) -> PublicEvent | None:
    """What a line says to programs; None of one that says nothing to them, or is damaged."""
    try:
        event = printable_values(json.loads(line))
    except (ValueError, RecursionError):
        return None
    if not isinstance(event, dict) or event.get("event") == "facts":
        return None
    return event if isinstance(event.get("time"), int | float) and "event" in event else None


def _key(event: PublicEvent) -> _Key:
    name = {"task": "task", "host": "host", "note": "number", "metric": "task"}
    kind = str(event["event"])
    return kind, event.get(name.get(kind, "event"))
