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
    deadline = time.monotonic() + timeout
    began = time.monotonic()
    while not condition():
        assert time.monotonic() < deadline, f"still not so after {timeout} s: {what}"
        time.sleep(pause(time.monotonic() - began, 0.02))
        began = time.monotonic()


async def until(condition: Callable[[], object], what: str, timeout: float = PATIENCE) -> None:
    """The same for tests on a loop, which goes on meanwhile."""
    deadline = time.monotonic() + timeout
    began = time.monotonic()
    while not condition():
        assert time.monotonic() < deadline, f"still not so after {timeout} s: {what}"
        await asyncio.sleep(pause(time.monotonic() - began, 0.01))
        began = time.monotonic()


def pause(look: float, least: float) -> float:
    """Seconds until the next look: whoever looks at all processes of a busy machine takes a part of
    a processor only."""
    return min(max(least, 4 * look), 0.5)
