"""Inbox of public events: a client's thread puts them in, an asyncio loop takes them out."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from ..store.public_events import PublicEvent

_MOST_EVENTS = 100_000
"""Events that are kept until they are read."""


class EventInbox:
    """Events on their way from the client's thread to a loop."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()
        """Nothing follows any more."""
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._events: deque[PublicEvent] = deque()
        self._news = asyncio.Event()
        self._over = False
        self._lost = 0

    def call(self, function: Callable[[], object]) -> None:
        """Calls a function on the loop, unless that has ended; from any thread."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function)

    def put(self, event: PublicEvent | None) -> None:
        """Adds an event; None: it was the last. From any thread."""
        with self._lock:
            wake = not self._events
            if event is None:
                self._over = wake = True
                self.call(self.ended.set)
            elif len(self._events) < _MOST_EVENTS:
                self._events.append(event)
            else:
                self._lost += 1
        if wake:
            self.call(self._news.set)

    async def get(self) -> PublicEvent | None:
        """The next event; None at the end."""
        await self.ready()
        with self._lock:
            return self._events.popleft() if self._events else None

    async def ready(self, timeout: float | None = None) -> bool:
        """Waits, at most `timeout` seconds, until `get` returns at once; False if it does not."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while True:
                    with self._lock:
                        if self._events or self._over:
                            return True
                        self._news.clear()
                    await self._news.wait()
        return False

    def pop_lost(self) -> int:
        """The number of events that found no room, once all before them have been read."""
        with self._lock:
            if self._events:
                return 0
            lost, self._lost = self._lost, 0
            return lost
