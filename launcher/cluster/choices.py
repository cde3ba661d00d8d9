"""Choices of the cluster file that the rest of the program decides by: words, and readiness.

`tfmux --help` imports this module, so that it imports little itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Framework(StrEnum):
    """Framework of the programs: which variables say their ranks, and how they start."""

    TENSORFLOW = "tensorflow"
    TORCH = "torch"
    JAX = "jax"
    MPI_LIKE = "mpi-like"
    NONE = "none"

    @property
    def meets(self) -> bool:
        """Its tasks wait for each other by themselves, in whichever order they start."""
        return self in (Framework.TORCH, Framework.JAX, Framework.MPI_LIKE)


class HostSource(StrEnum):
    """Sources of hosts that are not in the cluster file."""

    SLURM = "slurm"
    """The job in whose shell tfmux is started."""
    HOSTFILE = "hostfile"
    OPENMPI = "openmpi"

    @property
    def variables(self) -> tuple[str, ...]:
        """Variables that name the file of a list, the first one first."""
        if self is HostSource.HOSTFILE:
            return ("PBS_NODEFILE",)
        if self is HostSource.OPENMPI:
            return ("OMPI_MCA_orte_default_hostfile", "PRTE_MCA_prte_default_hostfile")
        return ()


class Success(StrEnum):
    """Tasks whose exit with status 0 makes a run a success."""

    CHIEF = "chief"
    ALL = "all"


class OnFailure(StrEnum):
    """Effect of a task's failure on the run."""

    STOP = "stop"
    KEEP = "keep"
    RESTART = "restart"


class OnDisconnect(StrEnum):
    """Whether a host stops its tasks when its lease has ended without a launcher."""

    STOP = "stop"
    KEEP = "keep"


class OnHangup(StrEnum):
    """Effect on the run when the program that launched it disappears without detaching: its
    terminal was closed, or it was killed."""

    KILL = "kill"
    DETACH = "detach"


class Shell(StrEnum):
    """Shell through which a task is started."""

    NONE = "none"
    LOGIN = "login"


@dataclass(frozen=True)
class PortListens:
    """Ready when the task's own process tree listens on its port."""


@dataclass(frozen=True)
class ProcessStarted:
    """Ready as soon as the process has been started."""


@dataclass(frozen=True)
class LogMatches:
    """Ready when a line of the log matches the regular expression (over bytes)."""

    pattern: str


@dataclass(frozen=True)
class After:
    """Ready a number of seconds after the start."""

    seconds: float


AUTO_SECONDS = 5.0


@dataclass(frozen=True)
class Auto:
    """Ready when it listens on its port, has printed a metric line, or has lived for
    `AUTO_SECONDS`: for programs of which nothing is known."""


@dataclass(frozen=True)
class Finished:
    """Ready when it has exited with status 0. For `prepare` lines only, not in cluster files."""


Readiness = PortListens | ProcessStarted | LogMatches | After | Auto | Finished


def ready_value(ready: Readiness) -> str | dict[str, str | float]:
    """Returns a readiness as a cluster file's value."""
    match ready:
        case PortListens():
            return "listening"
        case ProcessStarted():
            return "started"
        case Auto():
            return "auto"
        case LogMatches(regex):
            return {"log": regex}
        case After(delay):
            return {"after": delay}
        case Finished():
            return "finished"
