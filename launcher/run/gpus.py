"""GPUs of a host by the word of its agent, the processes on them, and records of their load."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import field, replace
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from ..agent.wire import MOST_GPU_PROCESSES, MOST_GPUS
from ..frozen import frozen
from ..ids import TaskId
from ..printable import printable
from ..quantities import counted, size
from .fields import Code, Count, Figure, GpuId, Line, Pid, Time

IDLE_SECONDS = 60.0
"""A GPU that a running task holds, and that does nothing for so long, is worth a warning."""
HOT = 87.0
"""Degrees Celsius near which NVIDIA's GPUs begin to slow down."""
_MUCH = 1 << 30
"""Bytes that no listed process holds: less is the driver's own."""
_HELD = 256 << 20
"""Bytes of a GPU's memory that are worth a word: a desktop takes less."""
_COMMAND = 60
_MOST_NAMED = 3
_FATAL_XIDS = {
    46: "the GPU has stopped processing",
    48: "memory error that cannot be corrected (ECC)",
    62: "its controller has halted",
    64: "a page of memory or a row could not be retired",
    74: "NVLink error",
    79: "the GPU has fallen off the bus",
    94: "memory error, contained to one program (ECC)",
    95: "memory error, contained to no program (ECC)",
    119: "its controller (GSP) does not answer",
    120: "its controller (GSP) has failed",
    140: "memory error that could not be recovered (ECC)",
    149: "NVLink error",
}
"""Xid errors for which the hardware is to blame, as NVIDIA's catalogue has them; others (13, 31,
43, 45, …) are most often a program's."""


class Throttle(StrEnum):
    """Reason for which a GPU runs slower than it could."""

    POWER_CAP = "power-cap"
    """The GPU draws all the power that it may: usual under full load."""
    THERMAL = "thermal"
    """The GPU is too hot."""
    POWER_BRAKE = "power-brake"
    """The machine's power supply has asked for it."""
    HARDWARE = "hardware"
    """The hardware slows it down, most often for its supply of power."""


@frozen
class GpuProcess:
    """A process on a GPU: of a task of the run, or somebody else's."""

    pid: Pid
    """Id of the process on the host, or in its container if it is in another one."""
    task: TaskId | None = None
    """The task of this run to which the process belongs; absent if there is none."""
    user: Line = ""
    """The owner of the process, if it does not belong to a task."""
    command: Line = ""
    """Its command line, printable; empty where it is not known."""
    memory: Count | None = None
    """Bytes of the GPU's memory that it holds."""
    elsewhere: bool = False
    """The process is in another container: its id names no process of the host."""
    instance: GpuId = ""
    """The id of the MIG instance on which it is; empty where the GPU is not divided."""

    @property
    def text(self) -> str:
        """`root's pid 455 (python3 busy.py), 2.1 GiB`."""
        held = "" if self.memory is None else f", {size(self.memory)}"
        if self.task is not None:
            return f"{self.task}{held}"
        if self.elsewhere:
            return f"a process in another container (pid {self.pid} there){held}"
        whose = f"{printable(self.user)}'s pid" if self.user else "pid"
        command = f" ({printable(self.command, _COMMAND)})" if self.command else ""
        return f"{whose} {self.pid}{command}{held}"


@frozen
class GpuInstance:
    """A MIG instance of a GPU."""

    name: Code
    """Its profile, such as `1g.10gb`."""
    uuid: GpuId
    """Its id, by which a task may be given it."""
    memory_used: Count | None = None
    """Bytes of its memory in use."""
    memory_total: Count | None = None
    """Bytes of its memory."""


@frozen
class GpuView:
    """A GPU of a host. What `nvidia-smi` does not tell is absent."""

    index: Annotated[int, Field(ge=0, lt=1 << 16)]
    """Its number by `nvidia-smi`."""
    name: Line
    """Its model, such as `NVIDIA H200`."""
    uuid: GpuId = ""
    """Its id, the same on every host and in every container."""
    utilisation: Annotated[float, Field(ge=0, le=10)] | None = None
    """Share of the time in which a program ran on it, 1.0 for all."""
    memory_used: Count | None = None
    """Bytes of its memory in use."""
    memory_total: Count | None = None
    """Bytes of its memory."""
    temperature: Figure | None = None
    """Degrees Celsius."""
    power: Figure | None = None
    """Watts that it draws."""
    power_limit: Figure | None = None
    """Watts that it may draw."""
    throttled: Annotated[tuple[Throttle, ...], Field(max_length=len(Throttle))] = ()
    """Why it runs slower than it could; `power-cap` is usual under full load."""
    ecc_errors: Count | None = None
    """Errors of its memory that could not be corrected, since the driver was loaded."""
    new_ecc_errors: Count = 0
    """Number of these errors that have come since the run began."""
    xids: Annotated[tuple[Count, ...], Field(max_length=100)] = ()
    """Numbers of the Xid errors that the kernel has reported of it since the run began."""
    mode: Code = ""
    """Its compute mode in `nvidia-smi`'s words: `Default`, `Exclusive_Process`, `Prohibited`."""
    problem: Line = ""
    """Why it cannot be used, in `nvidia-smi`'s words, such as `GPU is lost`."""
    instances: Annotated[tuple[GpuInstance, ...], Field(max_length=MOST_GPUS)] = ()
    """Its MIG instances, where it is divided."""
    processes: Annotated[tuple[GpuProcess, ...], Field(max_length=MOST_GPU_PROCESSES)] = ()
    """The processes on it, those of the run first, 32 at most."""
    unlisted: Count = 0
    """Processes beyond those in `processes`."""
    idle_since: Time | None = None
    """When a program last ran on it, if a task of the run holds it and it is idle."""

    def is_named(self, name: str) -> bool:
        """Whether a name in `CUDA_VISIBLE_DEVICES` means it, or one of its instances: a number, or
        the beginning of an id."""
        if name.isdecimal():
            return int(name) == self.index
        ids = (self.uuid, *(instance.uuid for instance in self.instances))
        return bool(name) and any(each.startswith(name) for each in ids)

    def is_of(self, task: TaskId, given: Collection[str]) -> bool:
        """The task has a process on it, or the plan has given it the GPU: `given` are the names of
        those."""
        return any(one.task == task for one in self.processes) or any(map(self.is_named, given))

    @property
    def parts(self) -> tuple[GpuView, ...]:
        """Its MIG instances as GPUs, each with the processes on it; itself where it has none."""
        return tuple(
            replace(
                self,
                name=f"MIG {one.name}",
                uuid=one.uuid,
                utilisation=None,
                memory_used=one.memory_used,
                memory_total=one.memory_total,
                instances=(),
                processes=tuple(each for each in self.processes if each.instance == one.uuid),
                unlisted=0,
            )
            for one in self.instances
        ) or (self,)

    @property
    def place(self) -> str:
        """`GPU 0`, or `MIG 1g.18gb of GPU 0`."""
        gpu = f"GPU {self.index}"
        return f"{self.name} of {gpu}" if self.is_instance else gpu

    @property
    def is_instance(self) -> bool:
        """Whether it is a MIG instance."""
        return self.uuid.startswith("MIG-")

    @property
    def held(self) -> bool:
        """Somebody holds memory of it that is worth a word."""
        much = any(one.memory is None or one.memory >= _HELD for one in self.processes)
        return much or self.unlisted_memory > 0

    @property
    def memory(self) -> float | None:
        """Share of its memory that is in use."""
        used, total = self.memory_used, self.memory_total
        return used / total if used is not None and total else None

    @property
    def slowed(self) -> tuple[Throttle, ...]:
        """Reasons to run slower that are no usual ones."""
        return tuple(reason for reason in self.throttled if reason is not Throttle.POWER_CAP)

    @property
    def fault(self) -> str:
        """Why it is to blame for what fails on it, in a sentence; empty where it is not."""
        place = f"GPU {self.index}"
        fatal = [number for number in self.xids if number in _FATAL_XIDS]
        if fatal:
            also = "" if not self.problem else f"; nvidia-smi says: {self.problem}"
            return f"{place} has reported Xid {fatal[-1]} ({_FATAL_XIDS[fatal[-1]]}){also}"
        if self.problem:
            return f"{place} cannot be used: {self.problem}"
        if self.new_ecc_errors:
            errors = counted(self.new_ecc_errors, "error")
            return f"{place} has had {errors} of its memory that could not be corrected (ECC)"
        return ""

    @property
    def hot(self) -> bool:
        """So hot that it slows down, or is about to."""
        if Throttle.THERMAL in self.throttled:
            return True
        return self.temperature is not None and self.temperature >= HOT

    @property
    def foreign(self) -> tuple[GpuProcess, ...]:
        """Processes on it that are no task's of this run."""
        return tuple(process for process in self.processes if process.task is None)

    @property
    def unlisted_memory(self) -> int:
        """Bytes in use that none of the listed processes holds, where they are many: those of
        graphics, or of another container. Within a container none is listed, not even a task's."""
        held = [process.memory for process in self.processes]
        if self.memory_used is None or self.unlisted or None in held:
            return 0
        rest = self.memory_used - sum(memory or 0 for memory in held)
        return rest if rest >= _MUCH else 0

    def idle_for(self, now: float) -> float:
        """Seconds for which it has done nothing while a task holds it; 0 where they are too few to
        be worth a warning."""
        passed = 0.0 if self.idle_since is None else now - self.idle_since
        return passed if passed >= IDLE_SECONDS else 0.0


def holders(gpus: Sequence[GpuView], task: TaskId | None) -> str:
    """A sentence about who holds memory of GPUs beside a task, those with most first; empty where
    nobody is known."""
    told = []
    for gpu in gpus:
        others = [each for each in gpu.processes if task is None or each.task != task]
        others.sort(key=lambda each: -(each.memory or 0))
        names = [each.text for each in others[:_MOST_NAMED]]
        if (rest := len(others) - len(names) + gpu.unlisted) > 0:
            names.append(f"{rest} more")
        mine = task is not None and any(each.task == task for each in gpu.processes)
        if gpu.unlisted_memory and (mine or others):
            names.append(f"{size(gpu.unlisted_memory)} by processes that nvidia-smi does not list")
        elif gpu.unlisted_memory:
            names.append(f"processes that nvidia-smi does not list, {size(gpu.unlisted_memory)}")
        if names:
            told.append(f"{gpu.place} is held by {', '.join(names)}")
    return "; ".join(told[:_MOST_NAMED])


@frozen
class GpuFigures:
    """Load of one GPU at one moment."""

    index: Count
    """Its number by `nvidia-smi`."""
    utilisation: float | None = None
    """Share of the time in which a program ran on it, 1.0 for all."""
    memory_used: Count | None = None
    """Bytes of its memory in use."""
    temperature: float | None = None
    """Degrees Celsius."""
    power: float | None = None
    """Watts that it draws."""


@frozen
class GpuSample:
    """The load of a host's GPUs, every five seconds."""

    host: str
    """The host of the cluster file."""
    gpus: Annotated[tuple[GpuFigures, ...], Field(max_length=1000)]
    """One for each GPU."""
    tasks: Mapping[TaskId, Count] = field(default_factory=dict)
    """Bytes of GPU memory that each task holds, on all of the host's GPUs together."""
    time: Time = field(default=0.0, compare=False)
    """When this was recorded, in seconds since the epoch."""
    event: Literal["gpus"] = "gpus"


def gpu_memory(gpus: tuple[GpuView, ...]) -> dict[TaskId, int]:
    """Bytes of GPU memory that each task holds, where they are known."""
    held: dict[TaskId, int] = {}
    for gpu in gpus:
        for process in gpu.processes:
            if process.task is not None and process.memory is not None:
                held[process.task] = held.get(process.task, 0) + process.memory
    return held


def gpu_sample(host: str, gpus: tuple[GpuView, ...], now: float) -> GpuSample:
    """The load of a host's GPUs for the record."""
    figures = (
        GpuFigures(gpu.index, gpu.utilisation, gpu.memory_used, gpu.temperature, gpu.power)
        for gpu in gpus
    )
    return GpuSample(host, tuple(figures), gpu_memory(gpus), time=now)
