"""Starts of threads, which fail where a user or a container has reached its limit of them."""

from __future__ import annotations

import errno
import threading
from typing import Callable


def start_thread(work: Callable[[], None], name: str) -> threading.Thread:
    """Starts a thread that does not keep the agent from ending.

    Raises:
        OSError: the limit of processes and threads is reached (`ulimit -u`, or `pids.max` of a
            container).
    """
    thread = threading.Thread(target=work, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError as error:
        text = "no more processes and threads may be started here (ulimit -u, pids.max)"
        raise OSError(errno.EAGAIN, text) from error
    return thread
