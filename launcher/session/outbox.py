"""Messages to the clients of a control socket, sent as far as each client reads them."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import deque
from collections.abc import Callable
from typing import Any

_FULL_BYTES = 64 * 1024
"""A client with more unread bytes is sent nothing until it has read them. The last message that
it got may be longer: the whole state of thousands of tasks."""


class RecentEvents:
    """Lines with numbers from 0 on, kept once for all clients; the first ones go where there are
    too many bytes."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._lines: deque[bytes] = deque()
        self._bytes = 0
        self.first = 0
        """Number of the first line that is kept."""

    @property
    def end(self) -> int:
        """Number of the next line that comes."""
        return self.first + len(self._lines)

    def __getitem__(self, number: int) -> bytes:
        return self._lines[number - self.first]

    def append(self, line: bytes) -> None:
        self._lines.append(line)
        self._bytes += len(line)
        while self._bytes > self._most_bytes:
            self.forget(self.first + 1)

    def forget(self, number: int) -> None:
        """Drops the lines before this one."""
        while self.first < number:
            self._bytes -= len(self._lines.popleft())
            self.first += 1


class Outbox:
    """Messages to one client; only its system's buffers and a little more wait for it to read."""

    def __init__(self, writer: asyncio.StreamWriter, on_read: Callable[[], None]) -> None:
        """`on_read` is called when there is room again after there was none."""
        self._writer = writer
        self._on_read = on_read
        self._waiting: asyncio.Task[None] | None = None
        self.next_event = 0
        """Number of the first event that has not been sent."""
        writer.transport.set_write_buffer_limits(_FULL_BYTES)

    def has_room(self) -> bool:
        """Whether something may be sent."""
        if self._writer.transport.get_write_buffer_size() <= _FULL_BYTES:
            return True
        if self._waiting is None:
            self._waiting = asyncio.create_task(self._await_reader(), name="slow client")
        return False

    def send_events(self, events: RecentEvents) -> bool:
        """Sends those that have not been sent, as long as there is room; True if that was all."""
        while self.next_event < events.end and self.has_room():
            if lost := max(0, events.first - self.next_event):
                self._writer.write(line_of({"lost_events": lost}))
                self.next_event = events.first
            else:
                self._writer.write(events[self.next_event])
                self.next_event += 1
        return self.next_event == events.end

    async def finish(self, events: RecentEvents | None, last: bytes) -> None:
        """Sends the rest of the events, then the last message, room or not; returns when the
        client has taken all bytes, or has gone."""
        with contextlib.suppress(OSError):
            while events is not None and not self.send_events(events):
                await self._writer.drain()
            self._writer.write(last)
            self._writer.transport.set_write_buffer_limits(0)
            await self._writer.drain()

    def abort(self) -> None:
        """Closes the connection; what the client has not read is dropped."""
        if self._waiting is not None:
            self._waiting.cancel()
        self._writer.transport.abort()

    async def _await_reader(self) -> None:
        with contextlib.suppress(OSError):
            await self._writer.drain()
        self._waiting = None
        self._on_read()


def line_of(message: dict[str, Any]) -> bytes:
    """A message as it is sent."""
    return json.dumps(message).encode() + b"\n"
