"""Lines of the agent and its watchdog in `agent.log` on the host."""

from __future__ import annotations

import queue
import time
import traceback
from contextlib import suppress

from .threads import start_thread

_MOST_WAITING = 1000

_waiting: queue.Queue[str] | None = None


def write_in_background() -> None:
    """From now on lines are written by a thread: `agent.log` may lie on a disk that hangs."""
    global _waiting
    lines: queue.Queue[str] = queue.Queue(_MOST_WAITING)

    def write() -> None:
        while True:
            _print(lines.get())
            lines.task_done()

    start_thread(write, "log writer")
    _waiting = lines


def log_line(text: str) -> None:
    """Writes a line; on a full disk it is lost, and whoever said it goes on."""
    if _waiting is None:
        _print(text)
        return
    with suppress(queue.Full):  # the disk has been hanging for long
        _waiting.put_nowait(text)


def log_traceback(patience: float = 1.0) -> None:
    """Writes the exception that is being handled, and waits a little until it is written."""
    log_line(traceback.format_exc())
    deadline = time.monotonic() + patience
    while _waiting is not None and _waiting.unfinished_tasks and time.monotonic() < deadline:
        time.sleep(0.01)


def error_text(error: Exception) -> str:
    """An error in a few words."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error) or type(error).__name__


def _print(text: str) -> None:
    with suppress(OSError):  # agent.log lies on the disk that is full
        print(text, flush=True)
