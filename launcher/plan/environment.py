"""The environment of a task: what the file says, and what TensorFlow needs beside it.

Three traps are met here: a proxy variable of the host makes gRPC ask a proxy for the other
tasks; a ps without work for a GPU still takes all its memory; two workers of one host do so
with the same GPU.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..ids import TaskId
from .parts import TaskPlan

_NAMED = 4
"""Tasks that a note names."""

NO_GPU = "-1"
"""Hides every GPU. CUDA and TensorFlow honour the empty text too, but a variable that is
empty gets lost in wrappers that drop such."""

EXTENDED = ("PYTHONPATH", "no_proxy", "NO_PROXY", "no_grpc_proxy")
"""Variables that a plan adds to; a host's own values of them are kept in front."""


@dataclass(frozen=True)
class GpuShare:
    """The GPUs of one task, by index on its host; `shared` with another task."""

    gpus: tuple[int, ...]
    shared: bool = False

    @property
    def env(self) -> dict[str, str]:
        """The variables that make TensorFlow see these GPUs alone."""
        env = {"CUDA_VISIBLE_DEVICES": ",".join(map(str, self.gpus)) or NO_GPU}
        if self.shared:  # TensorFlow takes all memory of a GPU at once unless told to grow
            env["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"
        return env


@dataclass(frozen=True)
class GpuWish:
    """What one task asks of its host: a number of GPUs, or (None) a share of what is left."""

    task: TaskId
    count: int | None
    trains: bool
    """A chief or a worker; others get none unless they ask."""


def split_gpus(wishes: Sequence[GpuWish], supply: int) -> dict[TaskId, GpuShare]:
    """Deals a host's GPUs out: numbers asked for first, the rest evenly among who trains.

    With fewer GPUs than training tasks they are shared in turn, with growing memory. A task
    that is missing in the answer sees what the host shows it: the host has no GPU, or it is
    not known whether it has (`supply` 0).
    """
    shares: dict[TaskId, GpuShare] = {}
    used = 0
    for wish in wishes:
        if wish.count is not None:
            # A number is believed: whether the host has as many is the preflight's business.
            shares[wish.task] = GpuShare(tuple(range(used, used + wish.count)))
            used += wish.count
        elif not wish.trains:
            shares[wish.task] = GpuShare(())
    rest = range(min(used, supply), supply)
    sharers = [wish.task for wish in wishes if wish.trains and wish.count is None]
    if not supply or not sharers:
        return shares
    if not rest:
        return shares | dict.fromkeys(sharers, GpuShare(()))
    if len(rest) < len(sharers):
        turns = [rest[number % len(rest)] for number in range(len(sharers))]
        dealt = zip(sharers, turns, strict=True)
        return shares | {t: GpuShare((gpu,), shared=turns.count(gpu) > 1) for t, gpu in dealt}
    each, more = divmod(len(rest), len(sharers))
    at = 0
    for number, task in enumerate(sharers):
        size = each + (number < more)
        shares[task] = GpuShare(tuple(rest[at : at + size]))
        at += size
    return shares


def tf_config(cluster_spec: Mapping[str, Sequence[str]], task: TaskId) -> str:
    """The value of `TF_CONFIG`. It says `type` where the rest of TensorFlow says job name."""
    return json.dumps({"cluster": cluster_spec, "task": {"type": task.job, "index": task.index}})


def extended(
    env: dict[str, str], own: Mapping[str, str], trainer: str, bypass: str
) -> dict[str, str]:
    """Adds the trainer's folder to `PYTHONPATH` and the cluster's hosts, the comma-separated
    `bypass`, to `no_proxy`.

    `env` is what the file says, `own` the host's own environment (of which only `EXTENDED` is
    looked at). Both spellings of `no_proxy` get the same value: curl reads one, gRPC the other.
    """
    result = dict(env)
    python_path = [env.get("PYTHONPATH", own.get("PYTHONPATH", "")), trainer]
    if any(python_path):
        result["PYTHONPATH"] = ":".join(filter(None, python_path))
    before = [v for n in ("no_proxy", "NO_PROXY") if (v := env.get(n, own.get(n, "")))]
    for name in ("no_proxy", "NO_PROXY"):
        result[name] = _merged(*before, bypass)
    grpc = env.get("no_grpc_proxy", own.get("no_grpc_proxy"))
    if grpc is not None:  # where it is set, gRPC looks at no other
        result["no_grpc_proxy"] = _merged(grpc, bypass)
    return result


def _merged(*lists: str) -> str:
    if len(lists) == 1:
        return lists[0]
    entries = (entry.strip() for text in lists for entry in text.split(","))
    return ",".join(dict.fromkeys(filter(None, entries)))


def unset_names(
    tasks: Iterable[TaskPlan], environ: Mapping[str, str]
) -> dict[str, tuple[TaskId, ...]]:
    """The names in `env_from` that are not set in the launcher's environment, each with the tasks
    that were to get them."""
    found: dict[str, tuple[TaskId, ...]] = {}
    for task in tasks:
        for name in task.env_from:
            if name not in environ:
                found[name] = (*found.get(name, ()), task.id)
    return found


def unset_note(name: str, tasks: Sequence[TaskId]) -> str:
    """A sentence about a name in `env_from` that is not set."""
    more = f" and {len(tasks) - _NAMED} more" if len(tasks) > _NAMED else ""
    named = ", ".join(str(task) for task in tasks[:_NAMED])
    return f"{name} (env_from) is not set in the launcher's environment: {named}{more}"
