"""Who holds a port, in words; the agent's `PORTS` answer and its notes on tasks hold the facts."""

from __future__ import annotations

from ..printable import printable
from .messages import PortHolder


def holder_words(held: PortHolder | None) -> str:
    """`pid 12 of worker:0 of the run R (python -m trainer …)`; empty when nobody does."""
    if held is None:
        return ""
    if not held.pid:
        return "another user's process"
    run, _, rest = held.task.partition("/")
    by = f" of {rest.rpartition('/')[0]} of the run {run}" if run else ""
    return printable(f"pid {held.pid}{by} ({held.command})")


def holding_run(held: PortHolder) -> str:
    """The run whose task holds the port, empty where it is no run's."""
    return held.task.partition("/")[0]


def port_words(held: PortHolder) -> str:
    """The whole sentence for a port that a task needs."""
    return f"port {held.port} is in use by {holder_words(held)}"
