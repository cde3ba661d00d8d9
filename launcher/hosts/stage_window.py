"""Room for staged contents: as many bytes as an agent keeps for its disk are on their way at once.

So an agent whose disk stands still can go on to read its channel: beats and kills come through.
"""

from __future__ import annotations

import asyncio

from ..agent import wire
from ..errors import AgentError

_STORE_SECONDS = 600.0


class StageWindow:
    """Staged contents of one connection: what was sent, and what the agent of `host` has stored."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._sent = 0
        self._stored = 0
        self._error = ""
        self._changed = asyncio.Event()

    def begin(self) -> None:
        """Forgets why earlier contents could not be stored."""
        self._error = ""

    def stored(self, up_to: int) -> None:
        """The agent has stored so many bytes in all."""
        self._stored = up_to
        self._changed.set()

    def fail(self, error: str) -> None:
        """Ends the wait for room with an error: contents cannot be stored, or are lost."""
        self._error = error
        self._changed.set()

    async def take(self, size: int) -> None:
        """Waits until `size` bytes more may be sent.

        Raises:
            AgentError: the host cannot be reached, has no room for them, or stores nothing.
        """
        while not self._error and self._sent + size - self._stored > wire.STAGE_WINDOW:
            self._changed.clear()
            try:
                async with asyncio.timeout(_STORE_SECONDS):
                    await self._changed.wait()
            except TimeoutError:
                self._error = f"it has not stored anything for {_STORE_SECONDS:.0f} s"
        if self._error:
            raise AgentError(self._host, self._error)
        self._sent += size
