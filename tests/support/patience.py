"""Time for which tests wait for what must come, and the waiting."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator

PATIENCE = 300.0
"""Seconds. Nothing is asserted by it: a machine that is busy with something else needs them, and
whoever asserts a time measures it."""


def wait_until(condition: Callable[[], object], what: str, timeout: float = PATIENCE) -> None:
    """Waits for something that has no event of its own.

    Raises:
        AssertionError: it did not come true in time.
    """
    for seconds in pauses(0.02, timeout):
        if condition():
            return
        time.sleep(seconds)
    raise AssertionError(f"still not so after {timeout} s: {what}")


async def until(condition: Callable[[], object], what: str = "", timeout: float = PATIENCE) -> None:
    """Waits until a condition holds, for tests on a loop, which goes on meanwhile."""
    for seconds in pauses(0.01, timeout):
        if condition():
            return
        await asyncio.sleep(seconds)
    raise AssertionError(f"still not so after {timeout} s: {what}")


def pauses(least: float, timeout: float) -> Iterator[float]:
    """Yields at each look the seconds to sleep after it, and ends when it was the last: whoever
    looks at all processes of a machine takes a fifth of a processor, and a thirtieth where that has
    to be waited for."""
    first = began = time.monotonic()
    while (now := time.monotonic()) - first <= timeout:
        look = now - began
        seconds = min(max(least, look * min(4 + 4 * (now - first), 30)), 0.5)
        began = now + seconds
        yield seconds
