"""Latch: an event that is set once, also by a signal handler that interrupts its own thread."""

from __future__ import annotations

import threading


class Latch:
    """Like `threading.Event`, whose lock a thread takes once: a second signal that came while the
    handler of the first one set an event waited for itself."""

    def __init__(self) -> None:
        self._condition = threading.Condition(threading.RLock())
        self._is_set = False

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        with self._condition:
            self._is_set = True
            self._condition.notify_all()

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until the latch is set; False after `timeout`."""
        with self._condition:
            return self._condition.wait_for(self.is_set, timeout)
