"""Frame clock: how often the run screen looks for news, and when it leaves the processor alone."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

FRAME = 1 / 30
QUIET_FRAME = 1 / 10
QUIET_AFTER = 30
"""Frames without news after which the clock slows down."""
RESTS = 3
"""Of each second, painting logs takes at most a quarter."""
MIN_REST, MAX_REST = 0.1, 0.25
"""Seconds between two paintings of logs: nobody reads lines that scroll by faster, and what the
screen takes is missing in a training on the same machine."""


class FrameClock:
    """Thirty frames a second while anything happens, ten in quiet hours."""

    def __init__(self, frame: Callable[[], bool], is_open: Callable[[], bool]) -> None:
        """`frame` shows what is new and returns False when nothing was; `is_open` returns False
        once there is no screen to draw on."""
        self._frame = frame
        self._is_open = is_open
        self._rest_until = 0.0

    async def run(self) -> None:
        """Shows frames until the screen has gone."""
        quiet = 0
        while self._is_open():
            quiet = 0 if self._frame() else quiet + 1
            await asyncio.sleep(FRAME if quiet < QUIET_AFTER else QUIET_FRAME)

    @property
    def resting(self) -> bool:
        """Nothing is drawn yet: logs have just been painted."""
        return time.monotonic() < self._rest_until

    def rest_after(self, began: float) -> None:
        """Rests after a frame that has just been painted. One that took long, on a busy machine or
        a large screen, is followed by a longer rest: keys and tasks come first, however fast
        logs grow."""
        now = time.monotonic()
        self._rest_until = now + min(MAX_REST, max(MIN_REST, RESTS * (now - began)))
