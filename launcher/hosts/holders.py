"""Who holds a port, in words; the agent's `PORTS` answer and its notes on tasks hold the facts."""

from __future__ import annotations

from typing import Any

from ..errors import printable


def holder_words(held: dict[str, Any] | None) -> str:
    """`pid 12 of worker:0 of the run R (python -m trainer …)`; empty when nobody does."""
    if not held:
        return ""
    if not held["pid"]:
        return "another user's process"
    run, _, rest = str(held.get("task") or "").partition("/")
    by = f" of {rest.rpartition('/')[0]} of the run {run}" if run else ""
    return printable(f"pid {held['pid']}{by} ({held['command']})")


def holding_run(held: dict[str, Any]) -> str:
    """The run whose task holds the port, empty where it is no run's."""
    return str(held.get("task") or "").partition("/")[0]


def port_words(held: dict[str, Any]) -> str:
    """The whole sentence for a port that a task needs."""
    return f"port {held['port']} is in use by {holder_words(held)}"
