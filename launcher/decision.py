"""Orders to end a run of which several come for one reason.

`timeout` signals its child and its whole group, `uv run` passes on what the terminal has sent
already, systemd signals every process of a service, and some wrappers send twice. What comes within
a second of an order that was acted on is the same decision.
"""

from __future__ import annotations

import math
import threading
import time

SECONDS = 1.0


class Decision:
    """The last decision, and when it was acted on; for signal handlers and threads."""

    def __init__(self) -> None:
        self._since = -math.inf
        self._deciding = threading.Lock()

    def is_new(self) -> bool:
        """Whether an order that comes now is another decision, which begins with it then."""
        # A signal may interrupt another one's handler here: both are one decision.
        if not self._deciding.acquire(blocking=False):
            return False
        try:
            now = time.monotonic()
            if now - self._since < SECONDS:
                return False
            self._since = now
            return True
        finally:
            self._deciding.release()
