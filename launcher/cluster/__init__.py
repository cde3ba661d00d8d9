"""Cluster files: what they say, what is wrong in them, and texts that become one.

The terminal side and tests import what `__all__` lists. It is loaded when it is asked for: `tfmux
--help` needs only the words of `choices`.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .addresses import LOCALHOST, AddressPart, SshDestination, TaskAddress, is_loopback
    from .choices import (
        Framework,
        HostSource,
        OnDisconnect,
        OnFailure,
        OnHangup,
        Shell,
        Stop,
        StopSignal,
        Success,
    )
    from .file_model import DEFAULT_LOG_LIMIT, TABLES, ClusterModel, HostDefaults, Slurm, node_name
    from .patterns import IgnoreRules
    from .placeholders import literal
    from .problems import NO_LOCAL_TASKS
    from .read import load, loads, read_text
    from .readiness import AUTO_SECONDS, After, LogMatches, PortListens, ProcessStarted, ready_value
    from .values import MOST_HOSTS, MOST_TASKS, name_problem, nearest, nearest_word

__all__ = [
    "AUTO_SECONDS",
    "DEFAULT_LOG_LIMIT",
    "LOCALHOST",
    "MOST_HOSTS",
    "MOST_TASKS",
    "NO_LOCAL_TASKS",
    "TABLES",
    "AddressPart",
    "After",
    "ClusterModel",
    "Framework",
    "HostDefaults",
    "HostSource",
    "IgnoreRules",
    "LogMatches",
    "OnDisconnect",
    "OnFailure",
    "OnHangup",
    "PortListens",
    "ProcessStarted",
    "Shell",
    "Slurm",
    "SshDestination",
    "Stop",
    "StopSignal",
    "Success",
    "TaskAddress",
    "is_loopback",
    "literal",
    "load",
    "loads",
    "name_problem",
    "nearest",
    "nearest_word",
    "node_name",
    "read_text",
    "ready_value",
]

# From the bottom up: a name loads its own module and those below.
_MODULES = (
    "choices", "readiness", "addresses", "patterns", "values", "file_model", "placeholders",
    "problems", "read",
)  # fmt: skip

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        for module in _MODULES if name in __all__ else ():
            found = import_module(f".{module}", __name__)
            if hasattr(found, name):
                return getattr(found, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
