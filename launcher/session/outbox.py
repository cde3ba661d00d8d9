"""Messages to the clients of a control socket, sent as far as each client reads them."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable
from typing import Any

_FULL_BYTES = 64 * 1024
"""A client with more unread bytes is sent nothing until it has read them. The last message that
it got may be longer: the whole state of thousands of tasks."""


class Outbox:
    """Messages to one client; only its system's buffers and a little more wait for it to read."""

    def __init__(self, writer: asyncio.StreamWriter, on_read: Callable[[], None]) -> None:
        """`on_read` is called when there is room again after there was none."""
        self._writer = writer
        self._on_read = on_read
        self._waiting: asyncio.Task[None] | None = None
        writer.transport.set_write_buffer_limits(_FULL_BYTES)

    def has_room(self) -> bool:
        """Whether something may be sent."""
        if self._writer.transport.get_write_buffer_size() <= _FULL_BYTES:
            return True
        if self._waiting is None:
            self._waiting = asyncio.create_task(self._await_reader(), name="slow client")
        return False

    async def finish(self, last: bytes) -> None:
        """Sends the last message, room or not; returns when the client has taken all bytes, or has
        gone."""
        with contextlib.suppress(OSError):
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
