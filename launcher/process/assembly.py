"""Assembly of a launcher process: its parts, each with the core and with its partners.

    disk ◄─ outputs ◄─ hosts ◄─ preparation ─► allocation
                ▲        ▲
    gpus ◄─ judge ◄─ hangs      teardown ─► hosts, outputs, disk
              │        │
              └► stacks ◄┘      stats ─► gpus

An arrow leads to a part that another one is given. What is behind an optional table of the cluster
file is imported for these runs alone, and before the run begins: the loop that kills waits for no
disk.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from ..frozen import frozen
from ..hosts.auth_prompt import PromptHandler
from ..run.gpus import GpuSample
from ..run.snapshot import Metric
from ..store.logs import LogStore
from ..store.metrics import latest_metrics
from ..store.runs import RunFolder
from .core import Core
from .gpu_watch import GpuWatch
from .hang import HangWatch
from .host_links import HostLinks, HostStats, logins_of
from .judge import Judge
from .output import DiskWatch, Outputs
from .preparation import LaunchPreparation
from .release import Teardown
from .stack_collector import StackCollector

if TYPE_CHECKING:
    from .hooks import HookRunner
    from .slurm_allocation import Allocation


@frozen
class Doors:
    """What the launcher itself does for its parts."""

    prompts: PromptHandler
    record_gpus: Callable[[GpuSample], None]
    publish_metric: Callable[[Metric, float], None]
    """Gets each metric line, and when it was heard, by the clock that nobody sets."""
    crash: Callable[[str, BaseException], NoReturn]
    """Ends the launcher for what nobody expected."""
    attached: bool
    """An earlier launcher has begun the run."""
    kills: bool
    """This launcher was started to end the run."""


@dataclass(frozen=True)
class Parts:
    """The parts of one launcher process."""

    disk: DiskWatch
    outputs: Outputs
    gpus: GpuWatch
    stats: HostStats
    hosts: HostLinks
    allocation: Allocation | None
    """The nodes of an engine; None without `[slurm]`."""
    preparation: LaunchPreparation
    teardown: Teardown
    stacks: StackCollector
    judge: Judge
    hooks: HookRunner | None
    """None where the cluster file has no hooks."""
    hangs: HangWatch


def assemble(core: Core, folder: RunFolder, logs: LogStore, doors: Doors) -> Parts:
    """Makes the parts, each with its partners."""
    path, attached, crash = folder.path, doors.attached, doors.crash
    latest = latest_metrics(folder.metrics) if attached else {}
    logins = logins_of(core.data, doors.prompts)
    disk = DiskWatch(core)
    outputs = Outputs(core, logs, disk, latest, doors.publish_metric, crash)
    gpus = GpuWatch(core, doors.record_gpus)
    hosts = HostLinks(core, outputs, logins, path, crash, attached=attached, kills=doors.kills)
    allocation = _allocation(core, hosts, attached=attached)
    stacks = StackCollector(core)
    judge = Judge(core, stacks, outputs.monitor, gpus)
    hooks = _hooks(core, folder)
    stalled = None if hooks is None else hooks.stalled
    return Parts(
        disk=disk,
        outputs=outputs,
        gpus=gpus,
        stats=HostStats(core, gpus, outputs.wrote_beyond_limit),
        hosts=hosts,
        allocation=allocation,
        preparation=LaunchPreparation(core, hosts, gpus, allocation),
        teardown=Teardown(core, hosts, outputs, disk, path),
        stacks=stacks,
        judge=judge,
        hooks=hooks,
        hangs=HangWatch(core, outputs, stacks, judge, path, stalled),
    )


def _allocation(core: Core, hosts: HostLinks, *, attached: bool) -> Allocation | None:
    if core.data.cluster.slurm is None:
        return None
    from .slurm_allocation import Allocation

    return Allocation.of(core, core.data.cluster.slurm, hosts.logins, attached=attached)


def _hooks(core: Core, folder: RunFolder) -> HookRunner | None:
    if not any(command for _, command in core.data.cluster.hooks):
        return None
    from .hooks import HookRunner

    return HookRunner(core, folder.path)
