"""Environment of a task: the variables of the file, and those that TensorFlow needs.

Three problems are avoided here: a proxy variable of the host makes gRPC connect to the other tasks
through a proxy; a ps that does not use a GPU still takes all its memory; two workers of one host do
so with the same GPU.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from ..ids import TaskId
from ..quantities import counted
from .model import TaskPlan
from .texts import Text, composed, shared, written

_MAX_LISTED = 4
"""Tasks that a note lists."""

NO_GPU = "-1"
"""Hides every GPU. The empty string does so too, but some wrapper programs drop empty variables."""

VISIBLE = "CUDA_VISIBLE_DEVICES"
_GPU = re.compile(r"[A-Za-z0-9/_:.-]{1,80}")

EXTENDED = ("PYTHONPATH", "no_proxy", "NO_PROXY", "no_grpc_proxy")
"""Variables to which a plan appends; a host's own values come first."""


@dataclass(frozen=True)
class GpuShare:
    """GPUs of one task, by index on its host; `shared` if another task has one of them as well."""

    gpus: tuple[int, ...]
    shared: bool = False

    def env(self, given: Sequence[str] = ()) -> dict[str, str]:
        """The variables with which TensorFlow sees only these GPUs; `given` are the names of the
        host's, where its environment shows only some of them."""
        names = [given[gpu] if gpu < len(given) else str(gpu) for gpu in self.gpus]
        env = {VISIBLE: ",".join(names) or NO_GPU}
        if self.shared:  # by default TensorFlow takes all memory of a GPU at once
            env["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"
        return env


def given_gpus(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The GPUs that an environment shows, such as that of a job step on a part of a node."""
    names = environ.get(VISIBLE, "").split(",")
    return tuple(names) if all(map(_GPU.fullmatch, names)) and "NoDevFiles" not in names else ()


@dataclass(frozen=True)
class GpuRequest:
    """A task's request: a number of GPUs, or (None) a share of those that are left."""

    task: TaskId
    count: int | None
    trains: bool
    """A chief or a worker; other tasks get GPUs only by a number."""


def split_gpus(requests: Sequence[GpuRequest], supply: int) -> dict[TaskId, GpuShare]:
    """Divides a host's GPUs: first the requested numbers, the rest evenly among training tasks.

    With fewer GPUs than training tasks they are shared, with growing memory. A task that is not
    in the result sees all GPUs of the host: there are none, or their number is not known
    (`supply` 0).
    """
    shares: dict[TaskId, GpuShare] = {}
    used = 0
    for request in requests:
        if request.count is not None:
            # Whether the host has that many is checked by the preflight.
            shares[request.task] = GpuShare(tuple(range(used, used + request.count)))
            used += request.count
        elif not request.trains:
            shares[request.task] = GpuShare(())
    rest = range(min(used, supply), supply)
    sharers = [request.task for request in requests if request.trains and request.count is None]
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


def gpu_shortage(host: str, ranks: int, gpus: int) -> str:
    """Writes a sentence about more ranks on a host than it has GPUs; empty if it has enough, or
    none."""
    if not 0 < gpus < ranks:
        return ""
    sentence = f"{ranks} ranks on {host}, which has {counted(gpus, 'GPU')}: not every rank has "
    return f"{sentence}a GPU of its own, as programs of this framework expect"


def tf_config(cluster_spec: str, task: TaskId) -> Text:
    """Makes the value of `TF_CONFIG`, in which the job's name is called `type`; the cluster spec,
    which is the same for thousands of tasks, comes as JSON."""
    own = json.dumps({"type": task.job, "index": task.index})
    return composed(('{"cluster": ', cluster_spec, f', "task": {own}}}'))


def with_tf_env(
    env: Mapping[str, Text], own: Mapping[str, str], trainer: str, no_proxy_hosts: str
) -> dict[str, Text]:
    """Appends the trainer's folder to `PYTHONPATH`, and the cluster's hosts, the comma-separated
    `no_proxy_hosts`, to `no_proxy`.

    `env` has the variables of the file, `own` those of the host (only `EXTENDED` are used). Both
    spellings of `no_proxy` get the same value: curl reads one, gRPC the other.
    """
    result = dict(env)
    given = {**own, **{name: written(env[name]) for name in EXTENDED if name in env}}
    python_path = [given.get("PYTHONPATH", ""), trainer]
    if any(python_path):
        result["PYTHONPATH"] = (":".join(filter(None, python_path)),)
    before = [value for name in ("no_proxy", "NO_PROXY") if (value := given.get(name, ""))]
    for name in ("no_proxy", "NO_PROXY"):
        result[name] = (_merged(*before, no_proxy_hosts),)
    grpc = given.get("no_grpc_proxy")
    if grpc is not None:  # where it is set, gRPC reads no other
        result["no_grpc_proxy"] = (_merged(grpc, no_proxy_hosts),)
    return result


@lru_cache(maxsize=64)  # tasks have few different ones, each as long as all hosts' names
def _merged(*lists: str) -> str:
    if len(lists) == 1:
        return shared(lists[0])
    entries = (entry.strip() for text in lists for entry in text.split(","))
    return shared(",".join(dict.fromkeys(filter(None, entries))))


def unset_names(
    tasks: Iterable[TaskPlan], environ: Mapping[str, str]
) -> dict[str, tuple[TaskId, ...]]:
    """Finds the names in `env_from` that are not set in the launcher's environment, with the tasks
    that need them."""
    found: dict[str, tuple[TaskId, ...]] = {}
    for task in tasks:
        for name in task.env_from:
            if name not in environ:
                found[name] = (*found.get(name, ()), task.id)
    return found


def unset_note(name: str, tasks: Sequence[TaskId]) -> str:
    """Writes a sentence about a name in `env_from` that is not set."""
    more = f" and {len(tasks) - _MAX_LISTED} more" if len(tasks) > _MAX_LISTED else ""
    named = ", ".join(str(task) for task in tasks[:_MAX_LISTED])
    return f"{name} (env_from) is not set in the launcher's environment: {named}{more}"
