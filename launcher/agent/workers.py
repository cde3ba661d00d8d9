"""Threads that do what may hang (a disk, a name server), so that the agent's loop never does."""

from __future__ import annotations

import queue
import threading
from typing import Callable, Generic, TypeVar

from .log import log_line

_Item = TypeVar("_Item")


class Worker:
    """Does one piece of work after the other, in the order in which they were given."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._work: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def do(self, work: Callable[[], None]) -> None:
        """Does it when all that was given before is done."""
        if self._thread is None:  # most agents need some of them never
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        self._work.put(work)

    def _run(self) -> None:
        while True:
            work = self._work.get()
            try:
                work()
            except Exception as error:  # its thread must go on; whoever waits has a deadline
                log_line(f"{self._name}: {type(error).__name__}: {error}")


class Newest(Generic[_Item]):
    """Writes the newest of what it is given; what came while one was being written is skipped."""

    def __init__(self, name: str, write: Callable[[_Item], None]) -> None:
        self._write = write
        self._worker = Worker(name)
        self._lock = threading.Lock()
        self._newest: _Item | None = None

    def put(self, item: _Item) -> None:
        """Has it written, unless there is a newer one until then."""
        with self._lock:
            due = self._newest is None
            self._newest = item
        if due:
            self._worker.do(self._write_newest)

    def _write_newest(self) -> None:
        with self._lock:
            item, self._newest = self._newest, None
        if item is not None:
            self._write(item)
