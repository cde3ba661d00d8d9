"""Time for which tests wait for what must come, and the waiting."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

PATIENCE = 300.0
"""Seconds. Nothing is asserted by it: a machine that is busy with something else needs them, and
whoever asserts a time measures it."""


def wait_until(condition: Callable[[], object], what: str, timeout: float = PATIENCE) -> None:
    """Waits for something that has no event of its own.

    Raises:
        AssertionError: it did not come true in time.
    """
    first = began = time.monotonic()
    while not condition():
        now = time.monotonic()
        assert now - first < timeout, f"still not so after {timeout} s: {what}"
        time.sleep(pause(now - began, 0.02, now - first))
        began = time.monotonic()


async def until(condition: Callable[[], object], what: str, timeout: float = PATIENCE) -> None:
    """The same for tests on a loop, which goes on meanwhile."""
    first = began = time.monotonic()
    while not condition():
        now = time.monotonic()
        assert now - first < timeout, f"still not so after {timeout} s: {what}"
        await asyncio.sleep(pause(now - began, 0.01, now - first))
        began = time.monotonic()


def pause(look: float, least: float, waited: float) -> float:
    """Seconds until the next look: whoever looks at all processes of a machine takes a fifth of a
    processor, and a thirtieth where that has to be waited for."""
    return min(max(least, look * min(4 + 4 * waited, 30)), 0.5)
