"""Cause of a failure or of a hang: which task is guilty, and why. `verdict` finds it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum

from ..frozen import frozen
from ..ids import TaskId, TaskRank, named_ranks


class Kind(StrEnum):
    """Kind of a cause."""

    RAISED = "raised"
    """A task has ended, or is ending, with an exception of its own."""
    OUT_OF_MEMORY = "out-of-memory"
    """The kernel has killed a task for want of memory."""
    KILLED = "killed"
    """A signal from outside the run has ended a task."""
    FAILED = "failed"
    """A task has ended with a status, and has said nothing that is a victim's."""
    GPU = "gpu"
    """A GPU of a task has failed: its host is to blame."""
    HOST_LOST = "host-lost"
    """The host of a task was lost."""
    STOPPED = "stopped"
    """A process of a task is stopped, or waits in the kernel."""
    LEFT_EARLY = "left-early"
    """A task has left with 0, or is leaving, while others waited for it."""
    STUCK = "stuck"
    """A task is somewhere else than all others, which wait."""
    NAMED = "named"
    """Others have lost their connection to a task."""
    ALIKE = "alike"
    """All tasks fail in the same way."""


@frozen
class Evidence:
    """What points to a guilty task: what one task has said or does."""

    task: TaskId
    """The task that it is about."""
    text: str
    """The evidence, in words."""
    in_log: bool = False
    """A line of the task's log holds it; else its processes or its stack show it."""
    rank: TaskRank | None = None
    """The rank of the task that it is about, where the task has started several."""

    @property
    def subject(self) -> TaskId | TaskRank:
        """Whom it is about."""
        return self.rank or self.task

    def __str__(self) -> str:
        return f"{named_ranks([self.subject])}: {self.text}"


@frozen
class Verdict:
    """The cause of a failure or of a hang."""

    tasks: tuple[TaskId, ...]
    """The guilty ones; all of them where they fail alike."""
    kind: Kind
    """Kind of the cause."""
    sure: bool
    """Else the sentence says "probably"."""
    text: str
    """Who is guilty, and why, in a sentence."""
    evidence: tuple[Evidence, ...] = ()
    """What points to them."""
    ranks: tuple[TaskRank, ...] = ()
    """The guilty ranks of those tasks that have started several, as far as they are known."""

    def doubted(self) -> Verdict:
        """Returns this verdict as one that is not sure."""
        text = f"probably {self.text}" if self.sure else self.text
        return replace(self, sure=False, text=text)


def grouped(evidence: Sequence[Evidence]) -> list[tuple[Evidence, ...]]:
    """The evidence, that of tasks in the same place together: where they are is one line."""
    groups: dict[object, list[Evidence]] = {}
    for number, one in enumerate(evidence):
        groups.setdefault(number if one.in_log else one.text, []).append(one)
    return list(map(tuple, groups.values()))
