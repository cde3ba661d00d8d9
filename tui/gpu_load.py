"""GPUs for people: what is wrong with one, whose processes it has, and the load of hosts and GPUs
over the last minutes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from rich.text import Text

from launcher.ids import TaskId, named_tasks
from launcher.printable import printable
from launcher.quantities import age, counted, size
from launcher.run.gpus import GpuSample, GpuView
from launcher.run.snapshot import HostView, Snapshot, TaskView
from launcher.run.states import RunPhase
from tui.curves import sparkline
from tui.format import StatusColor

_MOST_RANGES = 2
_SAMPLES, _APART = 90, 2.0
"""Samples of a host's load that are kept, and seconds between two of them: three minutes."""
_WHOLE = (0.0, 1.0)


class Ill(IntEnum):
    """What is wrong with a GPU, the worst first."""

    BROKEN = 0
    HOT = 1
    SLOWED = 2
    IDLE = 3


class GpuWarning(NamedTuple):
    """What is wrong with a task's GPU, in words; of an idle one also for how many seconds."""

    kind: Ill
    brief: str
    reason: str = ""
    seconds: float = 0.0

    @property
    def text(self) -> str:
        """`throttled (power-brake)`."""
        return f"{self.brief} ({self.reason})" if self.reason else self.brief

    @property
    def title(self) -> str:
        """`GPU idle 75 s`, where there is little room."""
        return f"GPU {self.brief}"

    @property
    def whole(self) -> str:
        """`GPU throttled (power-brake)`."""
        return f"GPU {self.text}"

    @property
    def color(self) -> StatusColor:
        """How serious it is."""
        return StatusColor.BAD if self.kind in (Ill.BROKEN, Ill.HOT) else StatusColor.BUSY


def ills(gpu: GpuView, now: float) -> list[GpuWarning]:
    """What is wrong with a GPU, the worst first; `idle` only where a running task has it."""
    found: list[GpuWarning] = []
    if gpu.idle_since is None and not (gpu.xids or gpu.problem or gpu.new_ecc_errors):
        if not gpu.slowed and not gpu.hot:
            return found  # nearly all of thousands, each second
    if gpu.fault:
        found.append(GpuWarning(Ill.BROKEN, printable(gpu.fault.removeprefix(f"GPU {gpu.index} "))))
    if gpu.hot:
        degrees = "" if gpu.temperature is None else f" {gpu.temperature:.0f} C"
        found.append(GpuWarning(Ill.HOT, f"hot{degrees}"))
    slowed = [reason for reason in gpu.slowed if not (gpu.hot and reason == "thermal")]
    if slowed:
        found.append(GpuWarning(Ill.SLOWED, "throttled", ", ".join(slowed)))
    if idle := gpu.idle_for(now):
        found.append(GpuWarning(Ill.IDLE, f"idle {age(idle)}", seconds=idle))
    return found


def is_bad(gpu: GpuView) -> bool:
    """A GPU that has failed, or is hot."""
    return gpu.hot or bool(gpu.fault)


def _first(warning: GpuWarning) -> tuple[Ill, float]:
    """The worst first; of idle ones that which holds of all of them."""
    return warning.kind, warning.seconds


def task_warnings(snapshot: Snapshot, now: float) -> Mapping[TaskId, GpuWarning]:
    """The worst that is wrong with a GPU of each task that runs."""
    found: dict[TaskId, GpuWarning] = {}
    if snapshot.state is RunPhase.ENDED:
        return found
    ill = {
        host.name: bad
        for host in snapshot.hosts
        if (bad := [(gpu, wrong) for gpu in host.gpus if (wrong := ills(gpu, now))])
    }
    for task in snapshot.tasks if ill else ():
        if task.state.up:
            own = [
                wrong[0] for gpu, wrong in ill.get(task.host, ()) if gpu.is_of(task.id, task.gpus)
            ]
            if own:
                found[task.id] = min(own, key=_first)
    return found


def alert(warnings: Mapping[TaskId, GpuWarning]) -> str:
    """`! worker:0–3: GPU idle 60 s`: the worst of the warnings, and the tasks that have it; empty
    where there are none."""
    if not warnings:
        return ""
    worst = min(warnings.values(), key=_first)
    tasks = (
        task
        for task, warning in warnings.items()
        if warning.kind is worst.kind
        and (warning.brief == worst.brief or warning.kind is not Ill.BROKEN)
    )
    return f"! {named_tasks(tasks, _MOST_RANGES)}: {worst.whole}"


def users(gpu: GpuView, tasks: Iterable[TaskView], foreign: str) -> Text:
    """Whose a GPU is: tasks with the memory that they hold there, or without any where the plan
    alone has given it to them, then others in the style `foreign`."""
    text = Text(no_wrap=True)

    def add(words: str, style: str = "") -> None:
        text.append("  " if text else "").append(words, style)

    if gpu.is_instance:
        add(gpu.name, "dim")
    held: dict[TaskId, int | None] = {}
    for process in gpu.processes:
        if process.task is not None:
            known = held.get(process.task)
            more = None if process.memory is None else process.memory + (known or 0)
            held[process.task] = known if more is None else more
    for name, memory in held.items():
        add(f"{name}{'' if memory is None else f' {size(memory)}'}")
    for task in tasks:
        if task.id not in held and any(map(gpu.is_named, task.gpus)):
            add(str(task.id), "dim")
    for process in gpu.foreign:
        add(process.text, foreign)
    if gpu.unlisted:
        add(f"and {counted(gpu.unlisted, 'more process', 'more processes')}", foreign)
    if rest := gpu.unlisted_memory:
        add(f"{size(rest)} unlisted", foreign if gpu.processes else "dim")
    return text


class HostSample(NamedTuple):
    """Load of a host at one moment; shares, None where they are not known."""

    cpu: float | None
    memory: float | None


class LoadHistory:
    """Load of a run's hosts since the screen was opened, for sparklines; `take` is called once a
    second."""

    def __init__(self) -> None:
        self._hosts: dict[str, deque[HostSample]] = {}
        self._heard: dict[str, float] = {}

    def take(self, snapshot: Snapshot) -> None:
        """Adds what the hosts have said since."""
        if snapshot.state is RunPhase.ENDED:
            return
        for host in snapshot.hosts:
            heard = host.last_heard or 0.0
            if host.cpu is None or 0 <= heard - self._heard.get(host.name, -_APART) < _APART:
                continue
            self._heard[host.name] = heard
            samples = self._hosts.setdefault(host.name, deque(maxlen=_SAMPLES))
            samples.append(HostSample(host.cpu, memory_share(host)))

    def cpu(self, host: str, cells: int) -> str:
        """Sparkline of the share of its processors in use."""
        return line((one.cpu for one in self._of(host)), cells)

    def memory(self, host: str, cells: int) -> str:
        """Sparkline of the share of its memory in use."""
        return line((one.memory for one in self._of(host)), cells)

    def _of(self, host: str) -> Sequence[HostSample]:
        return tuple(self._hosts.get(host, ()))


class GpuHistory:
    """Load of a host's GPUs in the last minutes, from the record of the run."""

    def __init__(self, samples: Sequence[GpuSample]) -> None:
        self.samples = samples
        loads = [{gpu.index: gpu.utilisation for gpu in one.gpus} for one in samples]
        self._loads = loads[-_SAMPLES:]

    def all(self, cells: int) -> str:
        """Sparkline of the mean load of all."""
        return line((mean(loads.values()) for loads in self._loads), cells)

    def one(self, index: int, cells: int) -> str:
        """Sparkline of the load of one GPU."""
        return line((loads.get(index) for loads in self._loads), cells)


def line(shares: Iterable[float | None], cells: int) -> str:
    """Sparkline of the shares that are known, between none and all."""
    return sparkline([share for share in shares if share is not None], cells, _WHOLE)


def memory_share(host: HostView) -> float | None:
    """Share of a host's memory that is used."""
    used, total = host.memory_used, host.memory_total
    return used / total if used is not None and total else None


def mean(loads: Iterable[float | None]) -> float | None:
    """Mean of the loads that are known."""
    known = [load for load in loads if load is not None]
    return sum(known) / len(known) if known else None
