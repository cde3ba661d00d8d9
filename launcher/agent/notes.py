"""What the agent and its guardian leave in `agent.log` on the host."""

from __future__ import annotations

import traceback


def say(text: str) -> None:
    """Writes a line; on a full disk it is lost, and whoever said it goes on."""
    try:
        print(text, flush=True)
    except OSError:
        return  # agent.log lies on the disk that is full


def say_traceback() -> None:
    """Writes the exception that is being handled."""
    say(traceback.format_exc())


def reason(error: Exception) -> str:
    """An error in a few words."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)
