"""Everything between a cluster file and dead processes.

The data goes one way: a cluster file becomes a `ClusterModel` (`cluster`), a `Plan` (`plan`), and
the pure `RunStateMachine` (`run`), which is fed events by the links to each host's agent and
answers with instructions. Log bytes go beside it: agent → link → `logs` (disk first) → whoever
shows them. The terminal and TensorFlow are unknown here.

Programs use what is listed in `__all__` (`docs/python-api.md`). It is imported when it is asked
for: `tfmux --help` and the first frame of the UI need none of it.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # `typing` is a tenth of what `tfmux --help` takes
if TYPE_CHECKING:
    from .api import Cluster, Run, collect
    from .errors import (
        ClusterFileError,
        LauncherError,
        RunEndedError,
        RunNotFoundError,
        TaskNotFoundError,
        TfmuxError,
    )
    from .ids import TaskId
    from .run.gpus import GpuProcess, GpuView
    from .run.snapshot import HostView, KeptResults, Receipt, Snapshot, TaskView
    from .run.stack_groups import Stacks
    from .run.states import HostState, Outcome, RunPhase, TaskState
    from .store.stream import LogEvent, PublicEvent

__all__ = [
    "Cluster",
    "ClusterFileError",
    "GpuProcess",
    "GpuView",
    "HostState",
    "HostView",
    "KeptResults",
    "LauncherError",
    "LogEvent",
    "Outcome",
    "PublicEvent",
    "Receipt",
    "Run",
    "RunEndedError",
    "RunNotFoundError",
    "RunPhase",
    "Snapshot",
    "Stacks",
    "TaskId",
    "TaskNotFoundError",
    "TaskState",
    "TaskView",
    "TfmuxError",
    "collect",
]

_MODULES = {
    "api": ("Cluster", "Run", "collect"),
    "ids": ("TaskId",),
    "run.gpus": ("GpuProcess", "GpuView"),
    "run.snapshot": ("HostView", "KeptResults", "Receipt", "Snapshot", "TaskView"),
    "run.stack_groups": ("Stacks",),
    "run.states": ("HostState", "Outcome", "RunPhase", "TaskState"),
    "store.stream": ("LogEvent", "PublicEvent"),
}
"""Modules of the names above; the others are errors."""


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = next((module for module, names in _MODULES.items() if name in names), "errors")
    return getattr(import_module(f".{module}", __name__), name)
