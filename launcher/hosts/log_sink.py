"""Receivers of the bytes of a host's logs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ..ids import TaskId

Stored = Callable[[int], None]
"""Called, on the loop, with the number of further bytes that are on disk."""


class LogSink(Protocol):
    """Receiver of log bytes; no method waits for a disk. By itself it keeps nothing."""

    def size(self, task: TaskId) -> int:
        return 0

    def store(self, task: TaskId, offset: int, data: bytes, stored: Stored) -> None:
        return

    def forget(self, stored: Stored) -> None:
        return

    def grown(self, task: TaskId, size: int) -> None:
        return


class NoLogs(LogSink):
    """The sink of a link that follows no log."""
