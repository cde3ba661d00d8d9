"""Stacks of a run's tasks at one moment, and their groups: tasks that stand in the same place.
Where a task has started several ranks, each of these counts by itself.

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
from ..ids import TaskId, TaskRank, named_ranks
from ..quantities import counted
from .cause import Verdict
from .fields import Count, Time

_MOST_SHOWN = 3
"""Frames by which a stack is named."""
_LIBRARIES = re.compile(
    r"/(site-packages|dist-packages|lib/python[0-9.]+)/|^<frozen |/(tools|on_host)/warm\.py$"
)
"""Files of installed code, and the program that starts a task with its imports done."""
_PACKAGES = re.compile(r"/(site-packages|dist-packages)/")


_JOIN_FRAMES = 8
"""The inner frames by which it is known that a program waits for processes."""
_FEWEST_SPAWNED = 2
"""Processes that are ranks, not one that was started for something else."""
_WAITING = ("threading.py", "queue.py", "selectors.py")
_JOINS = frozenset([("join", "threading.py")])
_AWAITS = _JOINS | {("result", "_base.py"), ("wait", "_base.py"), ("wait", "pool.py")}
"""Functions, and files of Python's own, in which a thread waits for the end of another one, and of
the work of one."""
_STARTERS = re.compile(
    r"/torch/distributed/(elastic|launcher)/|/deepspeed/launcher/|/accelerate/commands/"
)
"""Files of programs that start the ranks of a host, and wait for them."""
_BOOTSTRAP = re.compile(r"/multiprocess(?:ing)?/process\.py$")
"""Files below whose `_bootstrap` a process of `multiprocessing` runs its function."""
_JOINS_PROCESSES = re.compile(
    r"/multiprocess(?:ing)?/(?:process|popen_\w+|connection|context|queues)\.py$"
    r"|/torch/multiprocessing/spawn\.py$"
)
"""Files in which a program waits for such processes, or for what they tell."""
_RANK_OF_TORCH = re.compile(r"/torch/multiprocessing/spawn\.py$")
_HELPERS = re.compile(
    r"/multiprocess(?:ing)?/(?:pool|managers|resource_tracker|resource_sharer|forkserver)\.py$"
    r"|/concurrent/futures/process\.py$|/joblib/|/loky/|/torch/utils/data/|/torch/_inductor/"
)
"""Files of processes that work for one rank: pools, managers, loaders of data."""
_SERVES = (
    (
        "join",
        re.compile(r"/tensorflow/python/(training|data/experimental/service)/server_lib\.py$"),
    ),
    ("wait_for_termination", re.compile(r"/grpc/(aio/)?_server\.py$")),
    ("serve_forever", re.compile(r"/socketserver\.py$")),
)
"""Functions, and their files, in which a program answers others until somebody ends it."""
_SERVE_FRAMES = 4
"""The inner frames by which that is known."""
_SPAWNED = "multiprocessing.spawn import spawn_main"
"""Part of the command of such a process that was not forked."""


@frozen
class StackFrame:
    """A frame of a stack. A thread that only the kernel describes has one, without a file."""

    function: str
    file: str = ""
    line: Count = 0

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
    def spot(self) -> tuple[str, str, int]:
        """Equal in the same function; in code outside of any on the same line."""
        name, file, line = self.key
        return name, file, line if name == "<module>" else 0

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
    def is_own(self) -> bool:
        """The thread runs the user's code."""
        return any(not one.in_library for one in self.frames)

    @property
    def works(self) -> bool:
        """The thread is in code that is not Python's own."""
        return self.is_own or any(one.in_framework for one in self.frames)

    @property
    def idles(self) -> bool:
        """The thread waits for another thread of its process, or for nothing but the clock."""
        return bool(self.frames) and os.path.basename(self.frames[0].file) in _WAITING


@frozen
class ProcessStack:
    """A process of a task and its threads, the first thread first. `way` is how they were found:
    `python`, `py-spy` or `proc`; `state` is what the first thread does, as the kernel says; `note`
    says why there is no better description."""

    pid: Count
    command: str
    way: str
    state: str
    threads: tuple[ThreadStack, ...]
    note: str = ""
    unlisted: Count = 0
    """Threads beyond those."""
    files: tuple[str, ...] = ()
    """Open files, where `/proc` alone has described the process."""
    rank: Count | None = None
    """Its rank, as its environment says."""
    parent: Count = 0
    """The process that has started it; 0 where that is not known."""

    @property
    def is_spawned(self) -> bool:
        """Runs a function of the user that `multiprocessing` was given, and is no helper such
        as a loader of data."""
        if self.program is None:
            return False
        frames = self.program.frames
        begins = (n for n, one in enumerate(frames) if _is_bootstrap(one))
        own = frames[: next(begins, 0)]
        works = any(not one.in_library or _RANK_OF_TORCH.search(one.file) for one in own)
        return works and not any(_HELPERS.search(one.file) for one in own)

    @property
    def is_helper(self) -> bool:
        """The process works for another one, such as a pool's or a loader of data."""
        frames = self.threads[0].frames if self.threads else ()
        return any(_HELPERS.search(frame.file) for frame in frames)

    @property
    def joins_processes(self) -> bool:
        """The process waits for those that `multiprocessing` has started for it."""
        frames = self.threads[0].frames if self.threads else ()
        return any(_JOINS_PROCESSES.search(frame.file) for frame in frames[:_JOIN_FRAMES])

    @property
    def only_serves(self) -> bool:
        """The first thread is in a server's function that never returns, and no other thread is in
        the user's code: what is left to do others ask of it."""
        first, *others = self.threads or (ThreadStack("", ()),)
        inner = first.frames[:_SERVE_FRAMES]
        serves = any(
            frame.function == function and file.search(frame.file)
            for frame in inner
            for function, file in _SERVES
        )
        return serves and not self.unlisted and not any(one.is_own for one in others)

    @property
    def program(self) -> ThreadStack | None:
        """The thread that says where the process is: the first one, or, where that waits for the
        work of another one, the only other one in the user's code, else in a framework's. Of
        several it is the only one that does not wait itself; where several work, none tells."""
        if not self.threads:
            return None
        first, *others = self.threads
        if not joins(first.frames, _AWAITS):
            return first
        found = [one for one in others if one.is_own] or [one for one in others if one.works]
        if len(found) > 1:
            found = [one for one in found if not one.idles]
        return found[0] if len(found) == 1 else first

    @property
    def starts_others(self) -> bool:
        """The process waits for those that it has started, such as the ranks of its host."""
        frames = self.threads[0].frames if self.threads else ()
        waits = any(os.path.basename(frame.file) == "subprocess.py" for frame in frames[:3])
        return waits or any(_STARTERS.search(frame.file) for frame in frames)

    @property
    def is_own(self) -> bool:
        """The process is in the user's own code now, not in a library that it calls."""
        return self.program is not None and any(
            not frame.in_library for frame in self.program.frames[:1]
        )

    @property
    def stack(self) -> tuple[StackFrame, ...]:
        """Where the process is: the frames of its program; what the kernel says where it has
        none."""
        thread = self.program
        if self.way != "proc" and thread is not None and thread.frames:
            return thread.frames
        program = os.path.basename(self.command.split(" ", 1)[0]) or "process"
        return (StackFrame(f"{program} {self.state or 'shows nothing'}"),)

    def lines(self) -> Iterator[str]:
        """The process in full."""
        rank = "" if self.rank is None else f", rank {self.rank}"
        yield f"  process {self.pid}{rank}: {self.command}"
        known = self.state if self.way == "proc" else f"{self.state}; stack by {self.way}"
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
        """The process that stands for the task: its first interpreter, or, where that has started
        others, the one of these that is in the user's own code, else the first; without
        interpreters the last process that a shell has started."""
        known = [one for one in self.processes if one.way != "proc"]
        spawned = [one for one in self._spawned.values() if one in known]
        if spawned or (known and known[0].starts_others):
            ranks = spawned or [one for one in known if not one.starts_others]
            own = (one for one in ranks if one.is_own)
            return next(own, None) or next(iter(ranks), known[0])
        return next(iter(known), self.processes[-1])

    @property
    def only_serves(self) -> bool:
        """The task has nothing to do but what others ask of it: so say its process and all that
        this has started, but for helpers."""
        parents = {one.pid: one.parent for one in self.processes}
        above, pid = set[int](), parents.get(self.main.pid, 0)
        while pid in parents and pid not in above:  # shells that wait for it
            above.add(pid)
            pid = parents[pid]
        rest = [one for one in self.processes if one.pid not in above]
        return all(one.only_serves or one.is_helper for one in rest)

    @cached_property
    def ranks(self) -> Mapping[TaskRank, ProcessStack]:
        """The processes that the task has started as ranks of the run, as torchrun, mpirun and
        `mp.spawn` do; those that a rank has started itself, such as loaders of data, have its
        number, too."""
        found: dict[int, ProcessStack] = {}
        for one in self.processes:
            if one.rank is not None and not one.starts_others:
                found.setdefault(one.rank, one)
        launched = any(one.starts_others for one in self.processes)
        if len(found) > 1 or (found and launched):
            return {TaskRank(self.task, rank, one.pid): one for rank, one in found.items()}
        return {
            TaskRank(self.task, place, one.pid, told=False): one
            for place, one in self._spawned.items()
        }

    @property
    def places(self) -> Sequence[_Place]:
        """Where the task is, or each of its ranks."""
        ranks = self.ranks.items()
        return [(rank, one.stack) for rank, one in ranks] or [(self.task, self.stack)]

    def processes_of(self, rank: TaskRank) -> tuple[ProcessStack, ...]:
        """The process of a rank, then those that it has started."""
        below = {rank.pid}
        for one in self.processes:  # those that have started others come first
            if one.parent in below:
                below.add(one.pid)
        return tuple(one for one in self.processes if one.pid in below)

    @cached_property
    def _spawned(self) -> Mapping[int, ProcessStack]:
        """The living processes of `mp.spawn` and its like, by the order in which they were started,
        which says their ranks: these stand neither in their environment nor on their command line.
        One that has ended and that nobody has waited for counts, one that is gone does not."""
        for parent in self.processes:
            if parent.way != "proc" and not parent.joins_processes:
                continue
            children = [one for one in self.processes if one.parent == parent.pid]
            if sum(one.is_spawned for one in children) < _FEWEST_SPAWNED:
                continue
            known = [one for one in children if one.is_spawned or _may_be_spawned(one, parent)]
            return {n: one for n, one in enumerate(known) if one.state != "has ended"}
        return {}

    @property
    def stack(self) -> tuple[StackFrame, ...]:
        """Where the task is: where the process is that stands for it."""
        return self.main.stack

    @property
    def key(self) -> tuple[tuple[str, str, int], ...]:
        """Equal for tasks that stand in the same place."""
        return tuple(frame.key for frame in self.stack)

    @property
    def spot(self) -> tuple[str, str, int]:
        """Equal as long as the task stays in the same function of its own code."""
        return own_frame(self.stack).spot

    def lines(self) -> Iterator[str]:
        """The task with all threads of all its processes."""
        yield f"{self.task} on {self.host}"
        for process in self.processes:
            yield from process.lines()


_Place = tuple[TaskId | TaskRank, tuple[StackFrame, ...]]


@frozen
class Unanswered:
    """A host or a task of which nothing is known, and why."""

    name: str
    reason: str


@frozen
class StackGroup:
    """Tasks, or ranks of tasks that have started several, that stand in the same place, and
    where."""

    tasks: tuple[TaskId, ...]
    """The tasks, also those of which only some ranks stand there."""
    frames: tuple[StackFrame, ...]
    ranks: tuple[TaskRank, ...] = ()
    """The ranks that stand there, of tasks that have started several."""

    @property
    def members(self) -> tuple[TaskId | TaskRank, ...]:
        """The tasks that stand there, and ranks of those that have started several."""
        parted = {one.task for one in self.ranks}
        return (*(task for task in self.tasks if task not in parted), *self.ranks)

    @property
    def names(self) -> str:
        """Their names in short."""
        return named_ranks(self.members)

    @property
    def title(self) -> str:
        """How many, and which: `11 tasks: worker:0–2, 4–11`, `1 rank: worker:1 rank 3`."""
        whole = len(self.members) - len(self.ranks)
        numbers = [counted(whole, "task")] if whole else []
        numbers += [counted(len(self.ranks), "rank")] if self.ranks else []
        return f"{', '.join(numbers)}: {self.names}"

    @property
    def where(self) -> str:
        """The place in a line, the user's own code first."""
        return described(self.frames)


@frozen
class Stacks:
    """Where the tasks of a run stood at one moment."""

    time: Time
    tasks: tuple[TaskStacks, ...]
    """In start order."""
    unanswered: tuple[Unanswered, ...] = ()
    verdict: Verdict | None = None
    """The cause of a hang, as far as it is known."""

    @cached_property
    def groups(self) -> tuple[StackGroup, ...]:
        """The groups, that of the guilty task first, then the smallest; of equal ones that whose
        first task starts first."""
        found: dict[object, list[_Place]] = {}
        for one in self.tasks:
            for member, stack in one.places:
                key = tuple(frame.key for frame in stack)
                found.setdefault(key, []).append((member, stack))
        groups = [_group([one for one, _ in same], same[0][1]) for same in found.values()]
        # Sorting is stable.
        return tuple(sorted(groups, key=lambda one: (not self.blames(one), len(one.members))))

    def blames(self, group: StackGroup) -> bool:
        """A task or a rank of the group is guilty of the hang."""
        if self.verdict is None:
            return False
        known = {one.task for one in self.verdict.ranks}
        pids = {(one.task, one.pid) for one in self.verdict.ranks}
        return any(
            one in self.verdict.tasks
            if not isinstance(one, TaskRank)
            else (one.task, one.pid) in pids
            or (one.task in self.verdict.tasks and one.task not in known)
            for one in group.members
        )

    def headline(
        self, silent: Mapping[TaskId, float] | None = None, about: Collection[TaskId] = ()
    ) -> str:
        """All groups in a sentence; empty where no task has answered. `silent` are seconds since a
        task was heard last; groups with tasks of `about` come first."""
        groups = sorted(self.groups, key=lambda group: not set(about).intersection(group.tasks))
        if not groups:
            return ""
        first, *rest = groups
        if not rest and len(first.members) > 1:
            number, _, _ = first.title.partition(":")
            return f"all {number} are in {_place(first)}"
        verb = "is" if len(first.members) == 1 else "are"
        waited = [(silent or {}).get(task, 0.0) for task in first.tasks]
        since = f" for {min(waited):.0f} s" if min(waited) >= 1 else ""
        place = _place(first)
        # Without an interpreter the place is a sentence of its own: `python is stopped`.
        text = (
            f"{first.names} {verb} in {place}"
            if first.frames[0].file
            else (f"{first.names}: {place}")
        )
        text += since
        if rest:
            last = rest[-1]
            wait = "waits" if len(last.members) == 1 else "wait"
            who = counted(len(last.members), "other")
            text += f"; {who} {wait} in {_place(last)}"
        if len(rest) > 1:
            text += f"; {len(rest) - 1} more in other places"
        return text


def _group(members: Sequence[TaskId | TaskRank], stack: tuple[StackFrame, ...]) -> StackGroup:
    ranks = tuple(one for one in members if isinstance(one, TaskRank))
    tasks = dict.fromkeys(one.task if isinstance(one, TaskRank) else one for one in members)
    return StackGroup(tuple(tasks), stack, ranks)


def _is_bootstrap(frame: StackFrame) -> bool:
    return frame.function == "_bootstrap" and _BOOTSTRAP.search(frame.file) is not None


def _may_be_spawned(one: ProcessStack, parent: ProcessStack) -> bool:
    """A child whose stack is not known, since it is stopped or has ended, may be a rank by its
    command: that of its parent, from which it was forked, or that of `multiprocessing`."""
    same = one.command == parent.command or _SPAWNED in one.command
    return one.way == "proc" and (same or one.state == "has ended")


def own_frame(stack: Sequence[StackFrame]) -> StackFrame:
    """The innermost frame in the user's own code, else the innermost of all."""
    return next((frame for frame in stack if not frame.in_library), stack[0])


def joins(frames: Sequence[StackFrame], waits: Collection[tuple[str, str]] = _JOINS) -> bool:
    """A thread waits for the end of another one."""
    inner = (frame for frame in frames[:3] if not frame.in_framework)
    return any((frame.function, os.path.basename(frame.file)) in waits for frame in inner)


@cache  # most runs are over before anybody asks
def stacks_type() -> TypeAdapter[Stacks]:
    """Stacks as JSON between launcher process and client."""
    return TypeAdapter(Stacks)


@frozen
class StacksRecord:
    """Where the tasks of a run stand: the output of `tfmux stacks --json`."""

    time: Time
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
    return str(own_frame(group.frames))


def described(frames: tuple[StackFrame, ...]) -> str:
    """A stack in a line, the user's own code first: its innermost frame, and the innermost of all
    behind an arrow; where that is the same one, the frames that have called it."""
    own = next((at for at, frame in enumerate(frames) if not frame.in_library), 0)
    if own:
        way = " → … → " if own > 1 else " → "
        return f"{frames[own]}{way}{frames[0]}"
    more = " ← …" if len(frames) > _MOST_SHOWN else ""
    return " ← ".join(map(str, frames[:_MOST_SHOWN])) + more
