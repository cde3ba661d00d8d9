"""Stacks of a run's tasks at one moment, and their groups: tasks that stand in the same place.

Stacks are equal when functions, lines and the names of files are: the folders of the files differ
from host to host. The smallest group comes first: where eleven tasks wait and one does not, the one
is what everybody waits for.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache, cached_property
from typing import Any

from pydantic import TypeAdapter

from ..frozen import frozen
from ..ids import TaskId, named_tasks
from ..quantities import counted
from . import fields
from .cause import Verdict

_MOST_SHOWN = 3
"""Frames by which a stack is named."""
_LIBRARIES = re.compile(r"/(site-packages|dist-packages|lib/python[0-9.]+)/|^<frozen ")
_PACKAGES = re.compile(r"/(site-packages|dist-packages)/")


@frozen
class StackFrame:
    """A frame of a stack. A thread that only the kernel describes has one, without a file."""

    function: str
    file: str = ""
    line: fields.Count = 0

    def __str__(self) -> str:
        name = os.path.basename(self.file)
        return f"{self._name} {name}:{self.line}" if self.file else self._name

    @property
    def where(self) -> str:
        """The frame in full."""
        return f"{self._name} ({self.file}:{self.line})" if self.file else self._name

    @property
    def _name(self) -> str:
        return self.function or "(no name)"

    @property
    def key(self) -> tuple[str, str, int]:
        """Equal for frames of the same code, also where hosts keep it in different folders."""
        return self.function, os.path.basename(self.file), self.line

    @property
    def in_library(self) -> bool:
        """The frame is in code that was installed, or has no code."""
        return not self.file or _LIBRARIES.search(self.file) is not None

    @property
    def in_framework(self) -> bool:
        """The frame is in code that was installed, and is not Python's own."""
        return _PACKAGES.search(self.file) is not None


@frozen
class ThreadStack:
    """A thread and its frames, the innermost first."""

    name: str
    frames: tuple[StackFrame, ...]

    @property
    def works(self) -> bool:
        """The thread is in code that is not Python's own."""
        return any(one.in_framework or not one.in_library for one in self.frames)


@frozen
class ProcessStack:
    """A process of a task and its threads, the first thread first. `way` is how they were found:
    `python`, `py-spy` or `proc`; `state` is what the first thread does, as the kernel says; `note`
    says why there is no better description."""

    pid: fields.Count
    command: str
    way: str
    state: str
    threads: tuple[ThreadStack, ...]
    note: str = ""
    unlisted: fields.Count = 0
    """Threads beyond those."""
    files: tuple[str, ...] = ()
    """Open files, where `/proc` alone has described the process."""

    def lines(self) -> Iterator[str]:
        """The process in full."""
        yield f"  process {self.pid}: {self.command}"
        known = self.state if self.way == "proc" else f"{self.state}; by {self.way}"
        yield f"    {known}{f' ({self.note})' if self.note else ''}"
        for thread in self.threads:
            yield f"    thread {thread.name}"
            for frame in thread.frames:
                yield f"      {frame.where}"
        if self.unlisted:
            yield f"    and {self.unlisted} more"
        if self.files:
            yield f"    open files: {', '.join(self.files)}"


@frozen
class TaskStacks:
    """A task's processes, its first one first."""

    task: TaskId
    host: str
    processes: tuple[ProcessStack, ...]

    @property
    def main(self) -> ProcessStack:
        """The process that stands for the task: its first interpreter, else the last one that a
        shell has started."""
        known = (one for one in self.processes if one.way != "proc")
        return next(known, self.processes[-1])

    @property
    def stack(self) -> tuple[StackFrame, ...]:
        """Where the task stands: the frames of that process's first thread, or of the one for which
        this one waits; what the kernel says where it has none."""
        process = self.main
        frames = process.threads[0].frames if process.threads else ()
        if process.way != "proc" and frames:
            others = [one.frames for one in process.threads[1:] if one.works]
            return others[0] if len(others) == 1 and joins(frames) else frames
        program = os.path.basename(process.command.split(" ", 1)[0]) or "process"
        return (StackFrame(f"{program} {process.state or 'shows nothing'}"),)

    @property
    def key(self) -> tuple[tuple[str, str, int], ...]:
        """Equal for tasks that stand in the same place."""
        return tuple(frame.key for frame in self.stack)

    def lines(self) -> Iterator[str]:
        """The task with all threads of all its processes."""
        yield f"{self.task} on {self.host}"
        for process in self.processes:
            yield from process.lines()


@frozen
class Unanswered:
    """A host or a task of which nothing is known, and why."""

    name: str
    reason: str


@frozen
class StackGroup:
    """Tasks that stand in the same place, and where."""

    tasks: tuple[TaskId, ...]
    frames: tuple[StackFrame, ...]

    @property
    def title(self) -> str:
        """How many tasks, and which: `11 tasks: worker:0–2, 4–11`."""
        return f"{counted(len(self.tasks), 'task')}: {named_tasks(self.tasks)}"

    @property
    def where(self) -> str:
        """The place in a line: the innermost frames, and the first one of the user's own code."""
        return described(self.frames)


@frozen
class Stacks:
    """Where the tasks of a run stood at one moment."""

    time: fields.Time
    tasks: tuple[TaskStacks, ...]
    """In start order."""
    unanswered: tuple[Unanswered, ...] = ()
    verdict: Verdict | None = None
    """The cause of a hang, as far as it is known."""

    @cached_property
    def groups(self) -> tuple[StackGroup, ...]:
        """The groups, that of the guilty task first, then the smallest; of equal ones that whose
        first task starts first."""
        found: dict[object, list[TaskStacks]] = {}
        for one in self.tasks:
            found.setdefault(one.key, []).append(one)
        groups = (
            StackGroup(tuple(one.task for one in same), same[0].stack) for same in found.values()
        )
        # Sorting is stable.
        return tuple(sorted(groups, key=lambda one: (not self.blames(one), len(one.tasks))))

    def blames(self, group: StackGroup) -> bool:
        """A task of the group is guilty of the hang."""
        return self.verdict is not None and not set(self.verdict.tasks).isdisjoint(group.tasks)

    def headline(
        self, silent: Mapping[TaskId, float] | None = None, about: Collection[TaskId] = ()
    ) -> str:
        """All groups in a sentence; empty where no task has answered. `silent` are seconds since a
        task was heard last; groups with tasks of `about` come first."""
        groups = sorted(self.groups, key=lambda group: not set(about).intersection(group.tasks))
        if not groups:
            return ""
        first, *rest = groups
        if not rest and len(first.tasks) > 1:
            return f"all {len(first.tasks)} tasks stand in {_place(first)}"
        verb = "stands" if len(first.tasks) == 1 else "stand"
        waited = [(silent or {}).get(task, 0.0) for task in first.tasks]
        since = f" for {min(waited):.0f} s" if min(waited) >= 1 else ""
        text = f"{named_tasks(first.tasks)} {verb} in {_place(first)}{since}"
        if rest:
            last = rest[-1]
            wait = "waits" if len(last.tasks) == 1 else "wait"
            who = counted(len(last.tasks), "other")
            text += f"; {who} {wait} in {_place(last)}"
        if len(rest) > 1:
            text += f"; {len(rest) - 1} more in other places"
        return text


def joins(frames: Sequence[StackFrame]) -> bool:
    """A thread waits for the end of another one."""
    inner = (f for f in frames[:3] if f.function == "join")
    return any(os.path.basename(frame.file) == "threading.py" for frame in inner)


@cache  # most runs are over before anybody asks
def stacks_type() -> TypeAdapter[Stacks]:
    """Stacks as JSON between launcher process and client."""
    return TypeAdapter(Stacks)


@frozen
class StacksRecord:
    """Where the tasks of a run stand: the output of `tfmux stacks --json`."""

    time: fields.Time
    """When the hosts were asked, in seconds since the epoch."""
    groups: tuple[StackGroup, ...]
    """Tasks that stand in the same place: first that of the guilty task, then the smallest."""
    tasks: tuple[TaskStacks, ...]
    """All tasks that have answered, in start order, with their processes and threads."""
    unanswered: tuple[Unanswered, ...]
    """Hosts and tasks that have not, and why."""
    verdict: Verdict | None = None
    """The cause of the hang; null where there is none, or nothing points to one."""


@cache
def _record_type() -> TypeAdapter[StacksRecord]:
    return TypeAdapter(StacksRecord)


def record(stacks: Stacks) -> dict[str, Any]:
    """The stacks as JSON for programs."""
    whole = StacksRecord(
        stacks.time, stacks.groups, stacks.tasks, stacks.unanswered, stacks.verdict
    )
    made: dict[str, Any] = _record_type().dump_python(whole, mode="json")
    return made


def schema() -> dict[str, Any]:
    """The JSON Schema of `record`."""
    return _record_type().json_schema(mode="serialization")


def _place(group: StackGroup) -> str:
    """The innermost frame in the user's own code, else the innermost of all."""
    own = (frame for frame in group.frames if not frame.in_library)
    return str(next(own, group.frames[0]))


def described(frames: tuple[StackFrame, ...]) -> str:
    """A stack in a line, the innermost frame first: a few frames, and among them the first one of
    the user's own code."""
    own = next((at for at, frame in enumerate(frames) if not frame.in_library), 0)
    shown = sorted({*range(min(_MOST_SHOWN, len(frames))), own})
    if own >= _MOST_SHOWN:
        shown.remove(_MOST_SHOWN - 1)
    words, before = [], -1
    for at in shown:
        if at > before + 1:
            words.append("…")
        words.append(str(frames[at]))
        before = at
    if before < len(frames) - 1:
        words.append("…")
    return " ← ".join(words)
