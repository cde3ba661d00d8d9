"""Verdict on a run that failed or hangs: which task is guilty, and why.

Pure: what is known of each task goes in, a sentence comes out. In a job of many ranks most failures
are victims': they waited for a peer that had raised, was killed, left, stands still, or whose host
is gone. So what counts is, strongest first: a GPU that has failed; an exception that is no
victim's, or a signal from elsewhere, unless a host was lost before and may be its cause; a host
that was lost; a process that is stopped; who has left while others waited; whom the victims name,
followed from victim to victim to one that is none; who is not where all others wait. Nobody is
named where nothing points to one.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property

import re2

from ..agent.wire import MOST_FRAMES
from ..frozen import frozen
from ..ids import TaskId, TaskRank, named_ranks, named_tasks
from ..quantities import age, counted
from .cause import Evidence, Kind, Verdict
from .last_words import LONGEST, Words, read
from .stack_groups import StackFrame, joins, own_frame
from .states import Halt


@frozen
class TaskEvidence:
    """What is known of one task."""

    task: TaskId
    host: str = ""
    rank: int | None = None
    names: tuple[str, ...] = ()
    """By which others call it: host names and addresses, with or without its port."""
    status: int | None = None
    """Exit code of its own."""
    signal: str | None = None
    """Signal that ended it, such as `KILL`."""
    by_us: bool = False
    """Our side asked it to end before it did."""
    ended_at: float | None = None
    """When it ended, by its host's clock."""
    tail: tuple[str, ...] = ()
    """Its last lines as they are shown."""
    stack: tuple[StackFrame, ...] = ()
    """Where it is, the innermost frame first."""
    stopped: str = ""
    """`is stopped`, or `waits in the kernel`: what its process does as the kernel says."""
    seen_twice: bool = False
    """Two looks, some time apart, have found it so, or where its stack is: one look alone may catch
    a moment that means nothing, and makes nothing sure."""
    wrote: bool = False
    """Whether it has written something between two looks."""
    idle: bool = False
    """Whether its processes take no processor, as far as the host says."""
    lost_at: float | None = None
    """When its host was heard last, where that is lost, or was until its agent ended the task."""
    out_of_memory: bool = False
    """The kernel has killed it for lack of memory."""
    full_disk: str = ""
    """A directory of its host whose disk was full when it had failed, and how."""
    serves: bool = False
    """The task waits for requests of others, as a parameter server does: where it is tells
    nothing."""
    gpu_fault: str = ""
    """Why one of its GPUs is to blame, as its host tells: `GPU 3 has reported Xid 79 (…)`."""
    gpu_holders: str = ""
    """Processes of others that hold memory of its GPUs, in words."""
    moves: bool = False
    """The task lives, and its metric lines come as usual."""
    hangs_for: float = 0.0
    """Seconds for which it has seemed to hang; 0 where it does not."""
    started: int = 0
    """Ranks that its command starts, as torchrun does; 0 where it does not say."""
    ranks: tuple[TaskEvidence, ...] = ()
    """Ranks that the task has started, each where it was seen."""
    not_started: str = ""
    """The program that it could not start, and why, as its host has found it."""
    part: TaskRank | None = None
    """Which rank of the task is meant."""

    @property
    def is_in_kernel(self) -> bool:
        return self.stopped.startswith(Halt.WAITING)

    @property
    def ended(self) -> bool:
        return self.status is not None or self.signal is not None

    @cached_property
    def words(self) -> Words:
        """What its last lines say. An exception that was raised here is no lost peer's."""
        words = read(self.tail)
        if words.unclear and words.raised_on == str(self.task):
            return replace(words, victim="", peers=(), unclear=False)
        return words

    @property
    def left_rank(self) -> str:
        """The rank that has left with 0, by what the task's launcher says of all others: they have
        failed, or it has ended them. Empty where there is none, or not exactly one."""
        failed = dict(self.words.failed)
        number = self.started or max(failed, default=-1) + 1
        missing = [local for local in range(number) if local not in failed]
        if not failed or len(missing) != 1 + self.words.dismissed:
            return ""
        if len(missing) > 1:
            return "a rank"
        local, rank = next(iter(failed.items()))
        return f"rank {rank - local + missing[0]}"

    @property
    def place(self) -> str:
        name = f"{self.part.name} of {self.task}" if self.part else str(self.task)
        return f"{name} on {self.host}" if self.host else name


_GPU_MEMORY = re2.compile(
    r"(?i)CUDA.{0,60}out of memory|Status: out of memory|CUDA_ERROR_OUT_OF_MEMORY"
    r"|cudaErrorMemoryAllocation|cudaMalloc failed|STATUS_ALLOC_FAILED|OutOfMemoryError"
    r"|Resource_?Exhausted.*(?:memory|alloc)|OOM when allocating|Dst tensor is not initialized"
    r"|Failed to allocate \d+ bytes for new constant"
    r"|devices?(?:\(s\))? (?:is|are|is/are) busy or unavailable"
)
"""What is raised where a GPU has no memory left, or is another's alone."""
_CPU_MEMORY = re2.compile(r"device:CPU")
"""In such an exception of TensorFlow: the memory is the host's."""
_GPU_FAULT = re2.compile(
    r"(?i)uncorrectable (?:ECC|NVLink) error|ECC_?UNCORRECTABLE|GPU is lost|has fallen off the bus"
    r"|GPU requires reset|hardware stack error"
)
"""What is raised where a GPU has failed."""
_ON_GPU = re2.compile(
    r"(?i)\bCUDA|\bCUDNN|\bCUBLAS|NCCL|\bXLA|\bGPU|nvidia|AcceleratorError|JaxRuntimeError"
    r"|errors_impl\.InternalError"
)
"""What is raised by programs of which a GPU may be the cause."""

_WAITS = re2.compile(
    r"(?i)all_?reduce|all_?gather|all_?to_?all|reduce_scatter|broadcast|barrier|synchroni[sz]e"
    r"|recv|wait|quick_execute|poll|select|acquire|join|backward|shutdown|collective|c10d|nccl"
    r"|allgather|psum|block_until_ready|rendezvous|sendrecv|mpi_"
)
"""Functions in which one waits for others."""
_INNER = 6
"""Frames by which it is known that a task waits."""
_PROGRAM = re2.compile(r"^(?:<module>|_run_module_as_main|_run_code|_bootstrap)$")
"""The outermost functions of a program that has not come to its end: when the interpreter ends, it
calls `threading._shutdown` and what `atexit` knows below none of them."""
_SHUTDOWN = re2.compile(r"^(?:_?shutdown|clean_up|destroy_process_group|_exitfunc|finalize)$")
"""Functions of frameworks that end their part of a program."""
_ONE_LOSS = 10.0
"""Seconds within which hosts are lost together: each is found so by its own beats."""
_SIGNALS = {
    "KILL": "was killed by SIGKILL, not by tfmux: most often the kernel, when memory is full",
    "SEGV": "crashed (SIGSEGV)",
    "BUS": "crashed (SIGBUS): a file in memory, or /dev/shm, became too short",
    "ABRT": "aborted (SIGABRT)",
    "ILL": "crashed (SIGILL): the processor lacks an instruction",
    "FPE": "crashed (SIGFPE)",
}


_WAITED_FOR = (Kind.STOPPED, Kind.STUCK, Kind.LEFT_EARLY, Kind.HOST_LOST, Kind.RAISED)
"""Kinds of causes for which others wait."""
_MOST_PLACES = 50
"""Tasks that wait, with their places, among the evidence."""


def is_ending(stack: Sequence[StackFrame]) -> bool:
    """The interpreter of a task is ending, or a framework is being shut down."""
    if not stack or not stack[-1].file:
        return False
    # A stack that is as long as may be may have lost its outermost frames.
    if len(stack) < MOST_FRAMES and not _PROGRAM.search(stack[-1].function):
        return True
    return any(_SHUTDOWN.search(f.function) and f.in_framework for f in stack)


def judge(facts: Sequence[TaskEvidence]) -> Verdict | None:
    """The verdict on these tasks; None where nothing points to one."""
    case = _Case(tuple(facts))
    for rule in (
        case.by_gpus,
        case.by_double,
        case.by_its_own_end,
        case.by_lost_hosts,
        case.by_process_states,
        case.by_early_ends,
        case.by_sequence,
        case.by_pace,
        case.by_stacks,
        case.by_unclear_answers,
        case.by_votes,
        case.by_silence,
        case.by_a_moment,
    ):
        verdict = rule()
        if verdict is not None:
            return verdict
    return None


def judge_waiting(facts: Sequence[TaskEvidence]) -> Verdict | None:
    """The cause for which the others wait, in a run of which nothing says that it hangs: a lost
    host, a process that is stopped, or a task that is elsewhere while the others wait in a
    framework; never for sure a task that computes. Servers that wait for requests, in code of their
    own or of Python, wait for nobody."""
    case = _Case(tuple(facts))
    if any(one.moves for one in case.tasks):
        return None
    verdict = case.by_lost_hosts() or case.by_process_states()
    if verdict is None and case.waits_in_framework:
        verdict = case.by_early_ends() or case.by_stacks()
    at_work = [one for one in case.tasks if not (one.ended or one.idle or one in case.lost)]
    if verdict is not None and any(one.task in verdict.tasks for one in at_work):
        return verdict.doubted()
    return verdict


@frozen
class _Case:
    """The tasks of a run, and what follows from all of them."""

    tasks: tuple[TaskEvidence, ...]

    @cached_property
    def victims(self) -> tuple[TaskEvidence, ...]:
        """Tasks that have missed a peer; one that has left with 0 by itself is through, whatever it
        said last."""
        return tuple(one for one in self.tasks if one.words.victim and not _is_through(one))

    @cached_property
    def ranks(self) -> tuple[TaskEvidence, ...]:
        """Tasks that compute, or all where none does: servers stay though all ranks fail alike."""
        return tuple(one for one in self.tasks if not one.serves) or self.tasks

    @cached_property
    def spots(self) -> tuple[TaskEvidence, ...]:
        """The tasks, and in place of one that has started ranks of its own these."""
        return tuple(part for one in self.tasks for part in one.ranks or (one,))

    @cached_property
    def clear_victims(self) -> tuple[TaskEvidence, ...]:
        """Victims that have missed a peer for sure."""
        return tuple(one for one in self.victims if not one.words.unclear)

    @property
    def early(self) -> list[TaskEvidence]:
        """Tasks that have left with 0 by themselves."""
        return [one for one in self.tasks if _is_through(one)]

    @property
    def hanging(self) -> list[TaskEvidence]:
        """Tasks that seem to hang."""
        return [one for one in self.tasks if one.hangs_for]

    @cached_property
    def waiting(self) -> tuple[TaskEvidence, ...]:
        """Living tasks in the function in which most others are."""
        places = Counter(_function(one) for one in self.placed if not one.stopped)
        if not places:
            return ()
        (place, number), *_ = places.most_common(1)
        if number < 2 or 2 * number <= len(self.placed):
            return ()
        return tuple(one for one in self.placed if _function(one) == place)

    @property
    def waits_in_framework(self) -> bool:
        """Most tasks wait in a function of a framework."""
        inner = self.waiting[0].stack[:_INNER] if self.waiting else ()
        return any(one.in_framework and _WAITS.search(one.function) for one in inner)

    @cached_property
    def placed(self) -> tuple[TaskEvidence, ...]:
        """Tasks whose stacks are known and tell something. A thread that waits for threads of its
        own tells something only where all other tasks stand in one place."""
        known = tuple(
            one
            for one in self.spots
            if any(frame.file for frame in one.stack) and not (one.serves or one.moves)
        )
        certain = tuple(one for one in known if not _is_elsewhere(one))
        return certain if len(set(map(_function, certain))) > 1 else known

    @cached_property
    def votes(self) -> dict[TaskId, set[TaskId]]:
        """The victims that lead to each task that is none: those that name it, and those that name
        one of these."""
        accusers = self._accusers
        misled = {one.task for one in self.tasks if one.words.victim}
        victims = {one.task for one in self.victims}
        found: dict[TaskId, set[TaskId]] = {}
        for end in [one for one in accusers if one not in misled]:
            before, reached = [end], set[TaskId]()
            while before:
                fresh = accusers.get(before.pop(), set()) - reached
                reached |= fresh
                before += fresh
            if voters := reached & victims:
                found[end] = voters
        return found

    @cached_property
    def _accusers(self) -> dict[TaskId, set[TaskId]]:
        """The victims that name each task by a name that nobody else has."""
        called: dict[str, set[TaskId]] = {}
        for one in self.tasks:
            for name in (str(one.task), f"rank {one.rank}", *one.names):
                called.setdefault(name, set()).add(one.task)
        accusers: dict[TaskId, set[TaskId]] = {}
        for one in self.tasks:
            for peer in one.words.peers if one.words.victim else ():
                named = called.get(peer, set()) - {one.task}
                if len(named) == 1:  # no address of several tasks
                    accusers.setdefault(named.pop(), set()).add(one.task)
        return accusers

    @cached_property
    def named(self) -> list[TaskEvidence]:
        """Whom most victims name: the only one, or a few that the same victims name."""
        most = max(map(len, self.votes.values()), default=0)
        best = [one for one in self.tasks if len(self.votes.get(one.task, ())) == most > 0]
        alike = len({frozenset(self.votes[one.task]) for one in best}) == 1
        return best if alike and len(best) <= len(self.tasks) // 2 else []

    @property
    def lost(self) -> list[TaskEvidence]:
        """Tasks whose hosts were lost."""
        return [one for one in self.tasks if one.lost_at is not None]

    def _goes_on(self, one: TaskEvidence) -> bool:
        """A process of the task has ended with an exception of its own, and no other one was told:
        those that need it wait for it."""
        raised = one.words.goes_on and one.words.exception and not one.words.victim
        return bool(raised and not one.ended and (one.hangs_for or self.waiting))

    def _lost_before(self, one: TaskEvidence) -> bool:
        """A host was lost before this task ended, so that its end may have that cause."""
        return any(_loss(lost) < _end(one) for lost in self.lost)

    # --- the rules ------------------------------------------------------------------------

    def by_gpus(self) -> Verdict | None:
        """GPUs that have failed, unless a task has raised what no GPU is the cause of."""
        if any(_own_end(one) and not one.by_us and _is_programs(one) for one in self.tasks):
            return None
        faulty = [one for one in self.tasks if _gpu_fault(one) and one.status != 0]
        if not faulty:
            return None
        faulty.sort(key=lambda one: (not _own_end(one), _end(one)))
        first = faulty[0]
        alike = [one for one in faulty if _gpu_fault(one) == _gpu_fault(first)]
        guilty = [one for one in alike if one.host == first.host]
        missed = _own_end(first) or bool(self.victims or self.hanging or first.stopped)
        text = f"{first.host}: {_gpu_fault(first)}" if first.host else _gpu_fault(first)
        text += f" ({named_tasks([one.task for one in guilty])})"
        return self._verdict(guilty, Kind.GPU, missed, text, whole=True)

    def by_double(self) -> Verdict | None:
        """A task whose server asks for the port of another task, and not for its own: it has been
        given that one's flags, or does not know its own."""
        ports = {one.task: _port(one) for one in self.tasks}
        for one in self.tasks:
            if not one.words.asks_for or ports[one.task] in (None, *one.words.asks_for):
                continue
            asked = [other for other in self.tasks if ports[other.task] in one.words.asks_for]
            alike = [other for other in asked if other.task.job == one.task.job] or asked
            if len(alike) == 1 and (one.hangs_for or one.by_us or one.status):
                how = f"runs as {alike[0].task}: its server asks for port {ports[alike[0].task]}, "
                how += f"not for its own, {ports[one.task]}; does the program know its flags?"
                return self._verdict([one], Kind.FAILED, False, how)
        return None

    def by_its_own_end(self) -> Verdict | None:
        """Exceptions that are no victims', signals from outside, and failures without a word."""
        found = [one for one in self.tasks if _own_end(one)]
        found = found or [one for one in self.tasks if self._goes_on(one)]
        silent = [one for one in found if _kind_of(one) is Kind.FAILED]
        if len(silent) < len(found):  # a status without a word counts where there is nothing better
            found = [one for one in found if one not in silent]
        if not found:
            return None
        alike = Counter(_likeness(one) for one in found)
        (likeness, number), *_ = alike.most_common(1)
        same = [one for one in found if _likeness(one) == likeness]
        if likeness and number >= 2 and all(one in same for one in self.ranks):
            return self._alike(same)
        found.sort(key=_end)
        lost = self._lost_before(found[0])
        if lost:
            found = [one for one in found if not _may_follow_a_loss(one)]
        if not found:
            return None
        first = found[0]
        same = [one for one in self.ranks if _raises_like(one, first)]
        if len(same) == len(self.ranks) > 1:  # some were ended by us before they had left
            return self._alike(same)
        sure = len(found) == 1 or first in self.named
        if not sure and first.ended_at is not None and found[1].ended_at is not None:
            sure = found[1].ended_at - first.ended_at > 1.0
        if _kind_of(first) is Kind.FAILED and not sure:
            return None
        seen = first.seen_twice and (not first.words.goes_on or self.waits_in_framework)
        sure = sure and not lost and (first.ended or seen)
        return self._verdict([first], _kind_of(first), sure, _how(first))

    def by_lost_hosts(self) -> Verdict | None:
        """Hosts that were lost while others needed them, and before another task failed; of several
        those that were lost first."""
        others = [one for one in self.tasks if one not in self.lost]
        failed = [one for one in others if _own_end(one) or one in self.victims]
        if not self.lost or not others or not all(map(self._lost_before, failed)):
            return None
        began = min(map(_loss, self.lost))
        lost = [one for one in self.lost if _loss(one) - began < _ONE_LOSS]
        hosts = sorted({one.host for one in lost})
        what = "host was lost" if len(hosts) == 1 else "hosts were lost"
        how = f"{', '.join(hosts)}: the {what} ({named_tasks([one.task for one in lost])})"
        missed = self.hanging or [one for one in self.victims if one in others]
        later = sorted(filter(_own_end, others), key=_end)
        waits = all(_is_held(one) for one in others if not (one.ended or one.serves))
        if later:
            when = "" if (at := later[0].ended_at) is None else f"{age(at - began)} later "
            how += f"; {when}{later[0].place} {_how(later[0])}"
        sure = bool(missed) or (waits and not any(one.ended for one in later))
        return self._verdict(lost, Kind.HOST_LOST, sure, how, whole=True)

    def by_process_states(self) -> Verdict | None:
        """Processes that are stopped, or wait in the kernel, while others wait for them."""
        stopped = [one for one in self.spots if one.stopped]
        below = {one.task for one in stopped}
        stopped += [one for one in self.tasks if one.stopped and one.task not in below]
        stopped = [one for one in stopped if one.seen_twice or not one.is_in_kernel]
        twice = all(one.seen_twice for one in stopped)
        if not stopped:
            return None
        if len(stopped) == len(self.spots) > 1:
            names = named_ranks(one.part or one.task for one in stopped)
            what = "ranks" if any(one.part for one in stopped) else "tasks"
            how = f"all {len(stopped)} {what}: each {stopped[0].stopped} ({names})"
            return self._verdict(stopped, Kind.STOPPED, twice, how, whole=True)
        # One that has raised, or has missed a peer, waits in the kernel as it ends: it gives back
        # memory, or writes a core.
        stopped = [one for one in stopped if not (one.is_in_kernel and _has_missed(one))]
        stopped = [one for one in stopped if not one.words.exception] or stopped
        if not stopped:
            return None
        others = bool(self.victims or self.waiting) or len(stopped) == 1
        return self._verdict(stopped, Kind.STOPPED, others and twice, stopped[0].stopped)

    def by_a_moment(self) -> Verdict | None:
        """The only process that was seen to wait in the kernel once, where nothing better is
        known."""
        stopped = [one for one in self.tasks if one.stopped and not _has_missed(one)]
        if len(stopped) != 1 or len(self.tasks) < 2:
            return None
        return self._verdict(stopped, Kind.STOPPED, False, stopped[0].stopped)

    def by_early_ends(self) -> Verdict | None:
        """Tasks, or ranks of one, that have left with 0 while others missed them."""
        early = self.early
        left = [one for one in self.tasks if one.left_rank and one in self.victims]
        if len(left) == 1 and not early:
            how = f"{left[0].left_rank} of {left[0].place} left with exit code 0"
            return self._verdict(left, Kind.LEFT_EARLY, left[0].started > 0, how, whole=True)
        missed = list(self.clear_victims) or [one for one in self.waiting if one not in early]
        if not early or not missed or len(early) + len(missed) < 2:
            return None
        named = [one for one in early if one.task in self.votes]
        if len(early) > 1 and not named and len(early) >= len(missed):
            return None  # the usual end: most are through
        guilty = named or early
        guilty.sort(key=_end)
        how = f"left with exit code 0{_when(guilty[0])}"
        return self._verdict(guilty[:1], Kind.LEFT_EARLY, bool(named) or len(early) == 1, how)

    def by_sequence(self) -> Verdict | None:
        """The odd one of the tasks that NCCL's watchdog has ended: the one that is behind, or in
        another operation than all others."""
        lagging = Counter(rank for one in self.tasks for rank in set(one.words.behind))
        (rank, reports), *others = [*lagging.most_common(2), (0, 0)]
        named = [one for one in self.tasks if one.rank == rank] if reports else []
        if len(named) == 1 and reports > others[0][1]:
            how = "is behind all others in the collectives"
            return self._verdict(named, Kind.STUCK, len(lagging) == 1, how)
        begun = {one: one.words.enqueued for one in self.tasks if one.words.enqueued is not None}
        numbers = Counter(begun.values())
        if len(begun) > 2 and len(numbers) == 2 and numbers[min(numbers)] == 1:
            (behind,) = [one for one, number in begun.items() if number == min(numbers)]
            how = f"has begun {min(numbers)} operations of NCCL, all others {max(numbers)}"
            return self._verdict([behind], Kind.STUCK, True, how)
        for one in self.tasks:  # the ranks of a launcher, whose lines stand in one log
            counts = Counter(number for _, number in one.words.begun)
            if len(one.words.begun) > 2 and len(counts) == 2 and counts[min(counts)] == 1:
                late = next(rank for rank, number in one.words.begun if number == min(counts))
                how = f"rank {late} of {one.place} has begun {min(counts)} operations of NCCL, all "
                how += f"others {max(counts)}"
                return self._verdict([one], Kind.STUCK, True, how, whole=True)
        kinds = Counter(one.words.operation for one in self.tasks if one.words.operation)
        (most, number), *rest = [*kinds.most_common(2), ("", 0)]
        if number > 1 and rest and rest[0][1] == 1:
            (odd,) = [one for one in self.tasks if one.words.operation == rest[0][0]]
            how = f"was in {rest[0][0]}, all others in {most}"
            return self._verdict([odd], Kind.STUCK, number > 2, how)
        return None

    def by_pace(self) -> Verdict | None:
        """The only task that hangs while others go on."""
        moving, hanging = [one for one in self.tasks if one.moves], self.hanging
        if not moving or len(hanging) != 1:
            return None
        where = f", in {own_frame(hanging[0].stack)}" if hanging[0].stack else ""
        others = counted(len(moving), "other goes", "others go")
        how = f"has made no step for {age(hanging[0].hangs_for)}{where}; {others} on"
        sure = not hanging[0].stack or _stays_elsewhere(hanging[0])
        return self._verdict(hanging, Kind.STUCK, sure, how)

    def by_silence(self) -> Verdict | None:
        """The only task that hangs, where no other one is known to be waited for."""
        hanging = self.hanging
        if len(hanging) != 1 or not hanging[0].stack or len(self.tasks) < 2:
            return None
        if _is_elsewhere(hanging[0]):
            return None
        if _waits(hanging[0]) and self.early:
            when = _when(self.early[0]) if len(self.early) == 1 else ""
            how = f"left with exit code 0{when}; "
            how += f"{hanging[0].task} is in {own_frame(hanging[0].stack)}"
            return self._verdict(self.early, Kind.LEFT_EARLY, False, how)
        how = f"is in {own_frame(hanging[0].stack)}"
        return self._verdict(hanging, Kind.STUCK, _stays_elsewhere(hanging[0]), how)

    def by_stacks(self) -> Verdict | None:
        """Tasks that are not where all others wait."""
        waiting = self.waiting
        place = _function(waiting[0]) if waiting else None
        odd = [one for one in self.placed if _function(one) != place]
        if not odd or len(odd) >= len(waiting):
            return None
        if len(odd) > 1 and len(named := [one for one in odd if not one.words.victim]) == 1:
            odd = named
        here = waiting[0].stack
        known = any(_WAITS.search(f"{frame.function} {frame.file}") for frame in here[:_INNER])
        alone, first = len(odd) == 1, odd[0]
        if first.part is not None and not first.part.told:  # they may be no ranks at all
            known = self.waits_in_framework
        if is_ending(first.stack):
            how = f"is at its end, in {own_frame(first.stack)}"
            sure = known and alone and first.seen_twice
            return self._verdict(odd, Kind.LEFT_EARLY, sure, how)
        sure = known and alone and _stays_elsewhere(first)
        return self._verdict(odd, Kind.STUCK, sure, f"is in {own_frame(first.stack)}")

    def by_unclear_answers(self) -> Verdict | None:
        """The first exception whose status is a lost connection's, or an error of the other task,
        where nobody has missed a peer for sure."""
        unclear = [one for one in self.victims if one.words.unclear and one.status]
        if not unclear or self.clear_victims:
            return None
        first = min(unclear, key=_end)
        return self._verdict([first], Kind.RAISED, False, _how(first))

    def by_votes(self) -> Verdict | None:
        """Whom the victims name; else the one that is no victim among many. Where that one is in a
        function in which one waits for nobody, it is stuck there."""
        kind = Kind.NAMED
        if self.votes:
            guilty = self.named
            missed = len(self.votes[guilty[0].task]) if guilty else 0
            what = "is the peer" if len(guilty) == 1 else "are the peers"
            how = f"{what} that {counted(missed, 'task has', 'tasks have')} lost"
        else:
            quiet = [one for one in self.tasks if not (one.words.victim or one.serves or one.moves)]
            waiting = [one for one in quiet if _waits(one)] if len(quiet) > 1 else []
            guilty = [one for one in quiet if not (waiting and _waits(one))]
            missed = len(self.victims) + len(waiting)
            if not self.victims or missed < 2 or len(guilty) != 1:
                return None
            kind, how = Kind.STUCK, f"has not reached the operation in which {missed} others waited"
        stack = guilty[0].stack if len(guilty) == 1 else ()
        if not stack or _waits(guilty[0]) or joins(stack):
            return self._verdict(guilty, kind, False, how) if guilty else None
        how = f"was in {own_frame(stack)} while {missed} others waited for it"
        return self._verdict(guilty, Kind.STUCK, missed > 2 and guilty[0].seen_twice, how)

    # --- sentences ------------------------------------------------------------------------

    def _alike(self, tasks: Sequence[TaskEvidence]) -> Verdict:
        how = _how(tasks[0])
        text = f"all {len(tasks)} tasks fail alike: {how}"
        names = tuple(one.task for one in tasks)
        return Verdict(names, Kind.ALIKE, True, text[:LONGEST], tuple(self._evidence(tasks)))

    def _verdict(
        self,
        guilty: Sequence[TaskEvidence],
        kind: Kind,
        sure: bool,
        how: str,
        *,
        whole: bool = False,
    ) -> Verdict:
        names = tuple(dict.fromkeys(one.task for one in guilty))
        if whole:
            text = how
        elif len(guilty) == 1:
            speaker = guilty[0].words.speaker if kind is Kind.RAISED else ""
            text = f"{f'{speaker} of ' if speaker else ''}{guilty[0].place} {how}"
        else:
            text = f"{named_ranks(one.part or one.task for one in guilty)} {how}"
        others = [one for one in self.waiting if one not in guilty and not one.ended]
        if kind is Kind.RAISED:
            others = [one for one in others if any(_WAITS.search(f.function) for f in one.stack)]
        if others and kind in _WAITED_FOR and kind is not Kind.HOST_LOST:
            text += f"; {counted(len(others), 'other waits', 'others wait')} in "
            text += _wait(others[0].stack)
        elif kind in (Kind.STOPPED, Kind.LEFT_EARLY, Kind.HOST_LOST):
            missed = sum(1 for one in self.victims if one.task not in names)
            text += f"; {counted(missed, 'other', 'others')} waited for it" if missed else ""
        if not sure:
            text = f"probably {text}"
        evidence = [*self._evidence(guilty)]
        if kind in _WAITED_FOR:
            evidence += self._places(guilty)
        ranks = tuple(one.part for one in guilty if one.part is not None)
        return Verdict(names, kind, sure, text[:LONGEST], tuple(evidence), ranks)

    def _places(self, guilty: Sequence[TaskEvidence]) -> Iterable[Evidence]:
        """Where the living tasks are that are not guilty."""
        others = [one for one in self.placed if one not in guilty and not one.ended]
        for one in others[:_MOST_PLACES]:
            waits = "waits in" if one in self.waiting or _waits(one) else "in"
            yield Evidence(one.task, f"{waits} {_wait(one.stack)}", rank=one.part)

    def _evidence(self, guilty: Sequence[TaskEvidence]) -> Iterable[Evidence]:
        for one in guilty[:10]:
            if one.words.exception:
                said = one.words.message or one.words.exception
                yield Evidence(one.task, said, in_log=True)
            if _lacks_gpu_memory(one):
                yield Evidence(one.task, one.gpu_holders)
            if one.stopped:
                yield Evidence(one.task, f"its process {one.stopped}", rank=one.part)
            elif one.stack:
                yield Evidence(one.task, f"in {own_frame(one.stack)}", rank=one.part)
        for one in self.victims[:10]:
            if one not in guilty:
                yield Evidence(one.task, one.words.victim, in_log=True)


def _end(one: TaskEvidence) -> float:
    """When a task ended; those of which it is not known come last."""
    return float("inf") if one.ended_at is None else one.ended_at


def _when(one: TaskEvidence) -> str:
    """When a task ended, as a clock of this machine shows it."""
    at = one.ended_at
    return "" if at is None else time.strftime(" at %H:%M:%S", time.localtime(at))


def _loss(one: TaskEvidence) -> float:
    """When a task's host was heard last; one that is not lost comes last."""
    return float("inf") if one.lost_at is None else one.lost_at


def _port(one: TaskEvidence) -> int | None:
    """The port at which others find a task."""
    ports = (name.rpartition(":")[2] for name in one.names if ":" in name)
    return next((int(port) for port in ports if port.isdecimal()), None)


def _is_through(one: TaskEvidence) -> bool:
    """The task has left with 0 by itself."""
    return one.status == 0 and not one.by_us


def _own_end(one: TaskEvidence) -> bool:
    """The task has an end of its own making, or of somebody outside: no victim's."""
    if one.words.victim:
        return False
    if one.by_us:
        # It had raised before: a rank that hangs in its exit until it is ended.
        left = one.signal is not None and not one.serves
        return bool(one.words.exception) and (left or is_ending(one.stack))
    if one.ended:
        return one.status != 0
    return bool(one.words.exception) and is_ending(one.stack)


def _may_follow_a_loss(one: TaskEvidence) -> bool:
    """The end is such as the loss of a peer may bring about in a framework: a crash, a status
    without a word, an exception of installed code that is in no table of victims'."""
    kind = _kind_of(one)
    if kind is Kind.RAISED:
        return one.words.in_library
    return kind is Kind.FAILED or (
        kind is Kind.KILLED and _signal(one) in _SIGNALS.keys() - {"KILL"}
    )


def _kind_of(one: TaskEvidence) -> Kind:
    if one.words.exception:
        return Kind.RAISED
    if one.out_of_memory:
        return Kind.OUT_OF_MEMORY
    return Kind.KILLED if _signal(one) else Kind.FAILED


def _signal(one: TaskEvidence) -> str | None:
    """The signal that has ended the task, or the process whose end it reports."""
    return one.signal or one.words.child_signal


def _is_programs(one: TaskEvidence) -> bool:
    """The task has raised what no GPU is the cause of."""
    text = one.words.exception
    return bool(text) and not (_ON_GPU.search(text) or _GPU_FAULT.search(text))


def _gpu_fault(one: TaskEvidence) -> str:
    """Why a GPU of the task is to blame: by the word of its host, else by its own."""
    if one.gpu_fault:
        return one.gpu_fault
    if _GPU_FAULT.search(one.words.exception):
        return f"a GPU has failed: {one.words.exception}"
    return ""


def _lacks_gpu_memory(one: TaskEvidence) -> bool:
    """The task found its GPU full, and it is known who else holds it."""
    here = one.words.raised_on in ("", str(one.task))
    text = one.words.sentence if one.gpu_holders and here else ""
    return bool(_GPU_MEMORY.search(text)) and not _CPU_MEMORY.search(text)


def _how(one: TaskEvidence) -> str:
    how = _end_of(one)
    return f"{how}, while a disk there was full ({one.full_disk})" if one.full_disk else how


def _end_of(one: TaskEvidence) -> str:
    if one.not_started:
        return f"ended with exit code {one.status}: {one.not_started}"
    if one.words.exception:
        at = f" ({one.words.at})" if one.words.at else ""
        if _lacks_gpu_memory(one):
            first = one.words.sentence.partition(". ")[0]
            return f"raised {first[:120]}{at}; {one.gpu_holders}"
        left = "" if one.ended or one.words.goes_on else ", and hangs in its exit"
        return f"raised {_sentence(one)}{at}{left}"
    if one.out_of_memory:
        return "was killed by the kernel: out of memory"
    whose = "" if one.signal or not one.words.child else f"lost {one.words.child}, which "
    if signal := _signal(one):
        return whose + _SIGNALS.get(signal, f"was ended by SIG{signal}, not by tfmux")
    if whose:
        return f"{whose}ended with exit code {one.words.child_status}"
    last = next((line.strip() for line in reversed(one.tail) if line.strip()), "")
    said = f': "{last[:120]}"' if last else ""
    return f"ended with exit code {one.status}{said}"


def _sentence(one: TaskEvidence) -> str:
    """The exception of a task, and where it was raised if not in the task itself."""
    where = one.words.raised_on
    elsewhere = f", on {where}" if where and where != str(one.task) else ""
    return f"{one.words.sentence[: LONGEST - len(elsewhere)]}{elsewhere}"


def _likeness(one: TaskEvidence) -> str:
    """Equal for tasks that fail alike: numbers and addresses differ."""
    if one.not_started:
        return one.not_started
    if one.words.exception:
        return re.sub(r"\d+|0x[0-9a-f]+", "0", one.words.sentence) + f" ({one.words.at})"
    return f"signal {_signal(one)}" if _signal(one) else f"status {one.status}"


def _raises_like(one: TaskEvidence, other: TaskEvidence) -> bool:
    """Both have raised the same exception in the same line, which is no victim's."""
    words, others = one.words, other.words
    raised = bool(words.exception and others.exception) and not (words.victim or others.victim)
    return raised and _likeness(one) == _likeness(other)


def _waits(one: TaskEvidence) -> bool:
    """The task is in a function in which one waits for others. What Python's own functions wait
    for says their caller: `queue.get` of a loader waits for no other task."""
    callers = (frame for frame in one.stack if frame.in_framework or not frame.in_library)
    frame = next(callers, one.stack[0] if one.stack else None)
    return frame is not None and _WAITS.search(frame.function) is not None


def _is_held(one: TaskEvidence) -> bool:
    """Two looks have found that the task does nothing, or says of itself that it waits."""
    silent = not one.wrote and (one.idle or _waits(one))
    return one.seen_twice and (silent or one.words.waits or _own_end(one))


def _has_missed(one: TaskEvidence) -> bool:
    """The task has said that it raises, or that another one is at fault."""
    return bool(one.words.exception or one.words.victim)


def _stays_elsewhere(one: TaskEvidence) -> bool:
    """Two looks have found the task in a function in which one waits for nobody."""
    return one.seen_twice and not (_waits(one) or joins(one.stack))


def _function(one: TaskEvidence) -> tuple[str, str, int]:
    return one.stack[0].spot


def _wait(stack: Sequence[StackFrame]) -> str:
    """Where a task waits: the function of a framework, and where the user's own code calls it."""
    own = own_frame(stack)
    waits = (one for one in stack if _WAITS.search(one.function) and one.function[0] != "_")
    found = next(waits, own)
    if found == own or not own.file:
        return str(own)
    return f"{found.function} ({own.file.rpartition('/')[2]}:{own.line})"


def _is_elsewhere(one: TaskEvidence) -> bool:
    """Whether a task's first thread waits for threads of its own, several of which work: where it
    stands says nothing of them."""
    return joins(one.stack) and not is_ending(one.stack)
