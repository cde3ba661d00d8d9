"""Interface of a run for front ends: look, listen, and say what shall happen.

`client.RunClient` implements it for a run that has a launcher process, `history.FinishedRun` for
one that has ended. Every method returns at once and is safe from any thread: kill-all must never
wait for a screen, nor a screen for the network.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Protocol

from ..ids import TaskId
from ..run.snapshot import Snapshot
from ..run.stacks import Stacks
from ..store.logs import LogStore
from ..store.metrics import Series


class RunControl(Protocol):
    """A run, as a front end sees it."""

    @property
    def logs(self) -> LogStore:
        """The run's logs, for reading."""

    @property
    def living(self) -> bool:
        """The run goes on, or its end is still being recorded. Of a run that has ended, everything
        below `series` does nothing."""

    def snapshot(self) -> Snapshot:
        """The run as it stands: the same object until something has changed, which is told
        thirty times a second at most. In any thread."""

    def series(self, task: TaskId) -> Series:
        """Figures of the task's metric lines over time."""

    def kill_all(self, *, by_person: bool = True, force: bool = False) -> None:
        """TERM to everything on all hosts at once, KILL after the grace, however often it is
        called; KILL at once with `force`, which waits for no results either. Ends in a receipt."""

    def press_kill(self) -> None:
        """A person has pressed the kill key: `kill_all`, with `force` where a person has asked for
        that before, or the run has ended: then results and hooks are still under way."""

    def restart(self, task: TaskId, *, hard: bool = False) -> None:
        """Ends the task (with the grace, or at once) and starts it again."""

    def signal(self, task: TaskId, name: str) -> None:
        """`TERM` (KILL after the grace) or `KILL` to one task."""

    def request_stacks(self, tasks: Sequence[TaskId] | None = None) -> Future[Stacks]:
        """Has it looked where these tasks stand, or all; the result comes within some seconds, or a
        `TfmuxError` that says why there is none."""

    def detach(self) -> None:
        """Stops being a client of the run, which goes on."""

    def close(self) -> None:
        """Releases what was opened to look at the run."""
