"""Roles of tasks in a run, and the names of jobs that have one: the only place that knows them.

Order, readiness, ranks, chief, success rule, GPUs and screens ask this table; no other module
compares a job's name. A job of any other name has tasks that train, like `worker`.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from enum import StrEnum
from types import MappingProxyType


class Role(StrEnum):
    """Role of a task in the run."""

    PS = "ps"
    """A server of the others. It never ends by itself, and the run needs it."""
    CHIEF = "chief"
    """Its end decides, unless all must end well. One task: that of a job that is called so, else
    task 0 of the workers."""
    WORKER = "worker"
    EVALUATOR = "evaluator"
    """Watches the checkpoints of the others; it is not in the cluster spec."""
    HELPER = "helper"
    """A task of a job with `in_cluster = false`."""
    PREPARE = "prepare"
    """The `prepare` lines of one host; they run first, and the run fails if they fail."""

    @property
    def in_cluster(self) -> bool:
        """Its failure is one of the training: `restart-all` starts all such tasks again."""
        return self in (Role.PS, Role.CHIEF, Role.WORKER)

    @property
    def trains(self) -> bool:
        """Whether a task of this role has a rank, and its end counts for the success of the run."""
        return self in (Role.CHIEF, Role.WORKER)


ROLES: Mapping[str, Role] = MappingProxyType(
    {
        "ps": Role.PS,
        "chief": Role.CHIEF,
        "master": Role.CHIEF,  # TensorFlow 1, TFJob and PyTorchJob
        "worker": Role.WORKER,
        "workers": Role.WORKER,
        "evaluator": Role.EVALUATOR,
    }
)
"""Roles by the names of jobs."""
JOB_WORDS: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("ps", "pserver", "pservers", "psserver", "ps_server", "ps_servers"), "ps"),
        **dict.fromkeys(("parameter_server", "parameter_servers", "param_servers"), "ps"),
        **dict.fromkeys(("worker", "workers"), "worker"),
        **dict.fromkeys(("chief", "chiefs"), "chief"),
        **dict.fromkeys(("evaluator", "evaluators"), "evaluator"),
        **dict.fromkeys(("master", "masters"), "master"),
    }
)
"""Names of jobs by the words that other programs have for them."""
ADDRESS_LISTS: Mapping[str, Role] = MappingProxyType(
    {"ps_hosts": Role.PS, "worker_hosts": Role.WORKER}
)
"""Placeholders for the addresses of a role's tasks, as TensorFlow's flags are called."""
USUAL_JOBS = ("ps", "worker", "chief", "evaluator")
"""The names that are offered for new jobs."""


def jobs_with(role: Role, jobs: Container[str]) -> list[str]:
    """Lists the names of a role that are among `jobs`, the usual name first."""
    return [job for job, named in ROLES.items() if named is role and job in jobs]


def plural(job: str, count: int) -> str:
    """The name of a job with so many tasks, in a sentence: `3 workers`, `2 ps`, `2 data`."""
    countable = ROLES.get(job, Role.PS) is not Role.PS and not job.endswith("s")
    return f"{job}s" if count > 1 and countable else job
