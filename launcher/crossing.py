"""Crossing from a thread to an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")


def loop_caller(
    loop: asyncio.AbstractEventLoop | None = None,
) -> Callable[[Callable[[], object]], None]:
    """Returns what calls functions on a loop, by default the running one, unless that has ended;
    for any thread, and for signal handlers."""
    to = asyncio.get_running_loop() if loop is None else loop

    def call(function: Callable[[], object]) -> None:
        with suppress(RuntimeError):
            to.call_soon_threadsafe(function)

    return call


def awaited(kind: type[T] | None = None) -> tuple[asyncio.Future[T], Callable[[T], None]]:
    """Returns a future of the running loop, and what settles it from any thread; whoever comes
    second, or too late, settles nothing."""
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    call = loop_caller()

    def settle(value: T) -> None:
        call(lambda: None if future.done() else future.set_result(value))

    return future, settle
