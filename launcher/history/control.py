"""A run as front ends see it: the protocol that living and finished runs implement."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Protocol

from ..frozen import frozen
from ..ids import TaskId
from ..run.gpus import GpuSample
from ..run.snapshot import Snapshot
from ..store.logs import LogStore
from ..store.metrics import Series

LONGEST_TEXT = 5000
"""Characters of a text that is masked; as JSON each takes twelve bytes at most."""


@frozen
class MaskedText:
    """A text without values of variables that tasks have got from the launcher process."""

    text: str
    unknown: tuple[str, ...] = ()
    """Variables whose values the launcher process does not know."""
    short: tuple[str, ...] = ()
    """Variables whose values are too short to be masked."""


if TYPE_CHECKING:
    from ..run.stack_groups import Stacks

STACKS_SECONDS = 15.0
"""Longest wait for a launcher process that takes the stacks of tasks; it gives hosts three."""


class RunControl(Protocol):
    """A run, as a front end sees it."""

    @property
    def logs(self) -> LogStore:
        """The run's logs, for reading."""

    @property
    def living(self) -> bool:
        """The run goes on, or its end is still being recorded. On a run that has ended, everything
        below `series` does nothing."""

    def snapshot(self) -> Snapshot:
        """The run as it stands: the same object until something has changed, which listeners get
        thirty times a second at most. For any thread."""

    @property
    def standstill(self) -> str:
        """A sentence on a launcher process that stands still, or has said nothing yet; empty while
        there is nothing to say. Listeners hear of it."""

    def subscribe(self, listener: Callable[[Snapshot], None]) -> None:
        """Calls `listener` when there is another snapshot, or logs have grown, on a thread that it
        must not hold up: it only hands over."""

    def series(self, task: TaskId) -> Series:
        """Figures of the task's metric lines over time."""

    def gpu_samples(self, host: str) -> Sequence[GpuSample]:
        """Load of a host's GPUs in the last minutes, the oldest first."""

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
        """Asks for the stacks of these tasks, or all; the result comes within some seconds, or a
        `TfmuxError` that says why there is none."""

    def mask_values(self, text: str) -> Future[MaskedText]:
        """Has a text of at most `LONGEST_TEXT` characters masked by the launcher process, which
        alone knows the values of variables that tasks get from there; a `TfmuxError` where there is
        none."""

    def detach(self, *, wait: bool = True) -> None:
        """Stops being a client of the run, which goes on."""

    def close(self, *, wait: bool = True) -> None:
        """Releases what was opened to look at the run. Without `wait` it returns at once, and
        whoever ends the program closes once more."""
