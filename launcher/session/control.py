"""What a front end holds of a run: look, listen, and say what shall happen.

`session.Session` runs the launcher's own loop in a thread and implements this; a past run
opened from disk (`history`) implements it too. Every method returns at once and is safe from
any thread: kill-all must never wait for a screen, nor a screen for the network.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ..ids import TaskId
from ..run.snapshot import Snapshot
from ..store.logs import LogStore
from ..store.metrics import Series


class RunControl(Protocol):
    """A run, as a front end sees it."""

    @property
    def logs(self) -> LogStore:
        """The run's logs."""

    @property
    def living(self) -> bool:
        """False for a run of the past: everything below `series` then does nothing."""

    def snapshot(self) -> Snapshot:
        """The run as it stands."""

    def subscribe(self, listener: Callable[[Snapshot], None]) -> None:
        """Calls `listener` with each new snapshot, on the launcher's thread: it must only
        hand it over. Bursts are collapsed to about 30 a second."""

    def series(self, task: TaskId) -> Series:
        """What the task's metric lines said over time."""

    def kill_all(self) -> None:
        """TERM to everything on all hosts at once, KILL after the grace; a second call kills
        at once. Ends in a receipt."""

    def restart(self, task: TaskId, *, hard: bool = False) -> None:
        """Ends the task (with the grace, or at once) and starts it again."""

    def signal(self, task: TaskId, name: str) -> None:
        """`TERM` (KILL after the grace) or `KILL` to one task."""

    def detach(self) -> None:
        """Leaves the run to a launcher without a screen."""

    def close(self) -> None:
        """Nobody looks at it here any more; a run that goes on goes on. What was opened only to
        look is closed."""
