"""Evidence about tasks, from what is known of them, their last lines and looks at their stacks; and
what it says of a failure or a hang.

Only the reader imports this: the loop that beats and kills runs no expression over text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import re2

from ..frozen import frozen
from ..ids import TaskId, TaskRank
from ..run.cause import Verdict
from ..run.gpus import GpuView, holders
from ..run.last_words import last_exception
from ..run.stack_groups import StackFrame, Stacks, TaskStacks, own_frame
from ..run.states import Halt
from ..run.verdict import TaskEvidence, judge, judge_waiting
from ..store.figures import figures_of
from ..store.logs import tail_lines
from .looks import TaskReport

_LINES = 120
_ENDED = "has ended"
"""What the kernel says of a process that waits to be reaped."""
_ONE_MOMENT = 10.0
"""Seconds between two looks that are about the same trouble."""
_RUNS = "runs"
"""What a host says of a process in state R, which computes or waits for a processor."""
_IDLE = 0.05
"""Processors that a task takes at most that does nothing."""
_STILL = ("is stopped", Halt.WAITING)
"""Beginnings of what the kernel says of a process that does nothing by itself."""
_RANKS = re2.compile(r"(?:^|\s)--?nproc[-_]per[-_]node[= ](\d{1,4})(?:\s|$)")


@frozen
class _Sighting:
    """A task as it was found, and whether more than one look has found it so."""

    stacks: TaskStacks
    seen_twice: bool
    ranks: Mapping[TaskRank, _RankSighting]
    """Ranks that the task has started."""


@frozen
class _RankSighting:
    """A rank below a task's launcher, as it was found."""

    stack: tuple[StackFrame, ...]
    stopped: str
    seen_twice: bool


def cause_of_failure(
    reports: Sequence[TaskReport], looks: Sequence[Stacks], *, cut: bool
) -> Verdict | None:
    """Judges a failure, by the look that found most tasks at work; `cut`: stacks may be shorter
    than they were."""
    sightings = _best_look(looks, {one.task: one.started for one in reports})
    return judge([_evidence(one, _tail(one), sightings.get(one.task), cut=cut) for one in reports])


def cause_of_hang(
    reports: Sequence[TaskReport], looks: Sequence[Stacks], *, cut: bool
) -> Verdict | None:
    """Judges a hang."""
    return judge(_facts(reports, looks, cut=cut))


def cause_of_waiting(
    reports: Sequence[TaskReport], looks: Sequence[Stacks], *, cut: bool
) -> Verdict | None:
    """Judges a run of which nothing says that it hangs. After one look each task may be where it
    stays."""
    facts = _facts(reports, looks, cut=cut)
    if len(looks) == 1:
        facts = [replace(one, seen_twice=True) for one in facts]
    return judge_waiting(facts)


def exceptions_in(logs: Mapping[TaskId, bytes]) -> dict[TaskId, str]:
    """The exceptions of tasks whose last words are a traceback."""
    raised = {}
    for task, log in logs.items():
        exception, rest = last_exception(tail_lines(log, _LINES))
        if exception and not _has_figures(rest):
            raised[task] = exception
    return raised


def gpu_sentences(
    host: str, gpus: Sequence[GpuView], given: frozenset[str], *, at_work: bool
) -> list[str]:
    """Sentences about a host's GPUs: which fail, and who holds those that are given to tasks."""
    said = [f"{host}: {gpu.fault}" for gpu in gpus if gpu.fault]
    parts = [part for gpu in gpus for part in gpu.parts if any(map(part.is_named, given))]
    if at_work:
        parts = [replace(part, processes=part.foreign, memory_used=None) for part in parts]
    if text := holders([part for part in parts if part.held], None):
        said.append(f"{host}: {text}")
    return said


def _facts(
    reports: Sequence[TaskReport], looks: Sequence[Stacks], *, cut: bool
) -> list[TaskEvidence]:
    """What is known of living tasks by these looks."""
    found = [{one.task: one for one in look.tasks} for look in looks]
    sightings = {task: _sighting(task, found) for look in found for task in look}
    facts = []
    for one in reports:
        tail = _tail(one)
        if one.lives:
            tail = _since_last_figures(tail)
        seen = (look[one.task] for look in found if one.task in look)
        busy = any(process.state == _RUNS for stacks in seen for process in stacks.processes)
        facts.append(
            replace(
                _evidence(one, tail, sightings.get(one.task), cut=cut),
                hangs_for=one.hangs_for,
                moves=one.moves,
                wrote=one.wrote,
                idle=one.busy is not None and one.busy < _IDLE and not busy,
            )
        )
    return facts


def _tail(report: TaskReport) -> tuple[str, ...]:
    return tail_lines(report.log, _LINES) if report.log else ()


def _best_look(
    looks: Sequence[Stacks], started: Mapping[TaskId, float]
) -> Mapping[TaskId, _Sighting]:
    """The look of this attempt that found most tasks at work, the newest of equal ones, and what
    those around it say: after a failure some have ended already, and wait to be reaped."""
    seen = []
    for look in looks:
        found = {
            one.task: one
            for one in look.tasks
            if one.main.state != _ENDED and look.time >= started.get(one.task, 0.0)
        }
        seen.append((look.time, found))
    if not seen:
        return {}
    time_of_best, best = max(seen, key=lambda look: (len(look[1]), look[0]))
    near = [found for at, found in seen if abs(at - time_of_best) < _ONE_MOMENT]
    return {task: _sighting(task, near) for task in best}


def _evidence(
    report: TaskReport, tail: tuple[str, ...], sighting: _Sighting | None, *, cut: bool
) -> TaskEvidence:
    """What is known of a task; `cut`: its stack may be shorter than it was."""
    stack: tuple[StackFrame, ...] = ()
    state = ""
    if sighting is not None:
        state = _still(sighting.stacks)
        stack = () if state else sighting.stacks.stack
        if cut and stack:
            stack = (*stack, StackFrame("…"))
    one = TaskEvidence(
        report.task,
        report.host,
        report.rank,
        report.names,
        report.status,
        report.signal,
        report.by_us,
        report.ended,
        tail,
        stack,
        state,
        sighting is not None and sighting.seen_twice,
        lost_at=report.lost_at,
        out_of_memory=report.out_of_memory,
        full_disk=next(iter(report.full_disks), ""),
        serves=report.serves,
        gpu_fault=next((gpu.fault for gpu in report.gpus if gpu.fault), ""),
        gpu_holders=holders(report.gpus, report.task),
        started=_started(report.argv),
        not_started=report.not_started,
    )
    if sighting is None or not sighting.ranks:
        return one
    parts = [
        replace(one, part=rank, stack=seen.stack, stopped=seen.stopped, seen_twice=seen.seen_twice)
        for rank, seen in sorted(sighting.ranks.items(), key=lambda found: found[0].rank)
    ]
    return replace(one, ranks=tuple(parts))


def _still(stacks: TaskStacks) -> str:
    """What the kernel says of a process that does nothing by itself; empty where there is none."""
    return next((p.state for p in stacks.processes if p.state.startswith(_STILL)), "")


def _sighting(task: TaskId, looks: Sequence[Mapping[TaskId, TaskStacks]]) -> _Sighting:
    """Where a task was at these looks, the newest last: still only where each of them says so, for
    who reads and writes much, or is ending, waits in the kernel now and then."""
    seen = [look[task] for look in looks if task in look]
    ranks = {}
    for rank in seen[-1].ranks:
        processes = [one.ranks[rank] for one in seen if rank in one.ranks]
        processes = [one for one in processes if not one.state.startswith(_STILL)] or processes
        last = processes[-1]
        spot = own_frame(last.stack).spot
        twice = sum(own_frame(one.stack).spot == spot for one in processes) > 1
        still = last.state if last.state.startswith(_STILL) else ""
        ranks[rank] = _RankSighting(() if still else last.stack, still, twice)
    seen = [one for one in seen if not _still(one)] or seen
    newest = seen[-1]
    return _Sighting(newest, sum(one.spot == newest.spot for one in seen) > 1, ranks)


def _started(argv: Sequence[str]) -> int:
    """How many ranks a command starts on its host; 0 where it does not say."""
    found = _RANKS.search(" ".join(argv)[:4096])
    return 0 if found is None else int(found[1])


def _since_last_figures(tail: tuple[str, ...]) -> tuple[str, ...]:
    """The lines behind the last step of a task that lives: what it said of its peers before that is
    over."""
    for number in reversed(range(len(tail))):
        if _has_figures(tail[number : number + 1]):
            return tail[number + 1 :]
    return tail


def _has_figures(lines: Sequence[str]) -> bool:
    found = (figures_of(line.encode(errors="replace")) for line in lines)
    return any(figures is not None and figures.step is not None for figures in found)
