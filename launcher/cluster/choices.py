"""Choices of the cluster file that the rest of the program decides by: words.

`tfmux --help` imports this module, so that it imports little itself.
"""

from __future__ import annotations

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

    @property
    def success(self) -> Success:
        """The tasks that decide where the file does not say: all of those that meet, since a
        collective needs each of them; else the chief."""
        return Success.ALL if self.meets else Success.CHIEF


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
    RESTART_ALL = "restart-all"
    """All tasks of the cluster end, and begin again together."""


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


class Stop(StrEnum):
    """Processes of a task that get the stop signal when the task is ended."""

    ALL = "all"
    FIRST = "first"
    """The first one alone; the others, where they are left, when it has ended."""


class StopSignal(StrEnum):
    """Signal that asks the processes of a task to end."""

    TERM = "TERM"
    INT = "INT"
    HUP = "HUP"
    QUIT = "QUIT"
    USR1 = "USR1"
    USR2 = "USR2"
