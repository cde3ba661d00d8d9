"""Environment of a task: the variables of the file, and those that its framework needs.

Three problems are avoided here: a proxy variable of the host makes gRPC connect to the other tasks
through a proxy; a ps that does not use a GPU still takes all its memory; two workers of one host do
so with the same GPU.

`torch` and `mpi-like` programs choose a GPU by their local rank among all that they see, so each of
their tasks sees all GPUs that the tasks of its host have together; the others see their own ones.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Container, Mapping, Sequence
from functools import lru_cache

from ..cluster.addresses import bracketed
from ..cluster.choices import Framework
from ..cluster.ranks import Rank
from ..frozen import frozen
from ..ids import TaskId
from ..quantities import counted

Text = tuple[str, ...]
"""Text as its parts. Those that many tasks have in common, such as the addresses of all of them,
are one object in all their texts: written in full the plan of 2,000 tasks takes 300 MB."""


def written(text: Text) -> str:
    """Writes a text in full."""
    return "".join(text)


NO_GPU = "-1"
"""Hides every GPU. The empty string does so too, but some wrapper programs drop empty variables."""

VISIBLE = "CUDA_VISIBLE_DEVICES"
_GPU = re.compile(r"[A-Za-z0-9/_:.-]{1,80}")

STACKS = "TFMUX_STACKS"
"""Variable whose value `0` leaves the interpreters of a task alone: `tfmux stacks` then knows less
of them."""
STACKS_FOLDER = "stacks"
"""Folder of the scripts for hosts which makes interpreters answer (`on_host/stacks`)."""

PROXIES = tuple(
    spelled
    for name in ("grpc_proxy", "https_proxy", "http_proxy", "all_proxy")
    for spelled in (name, name.upper())
)
"""Variables that name a proxy."""
NO_PROXY_HOSTS = "TFMUX_NO_PROXY"
"""Variable with the cluster's hosts, for a shell that may set a proxy (`plan.shell`)."""

EXTENDED = ("PYTHONPATH", "no_proxy", "NO_PROXY", "no_grpc_proxy")
"""Variables to which a plan appends; a host's own values come first."""
JAX_MEMORY = "XLA_PYTHON_CLIENT_MEM_FRACTION"
_JAX_MEMORY_KEYS = (
    *(JAX_MEMORY, "XLA_CLIENT_MEM_FRACTION"),
    *("XLA_PYTHON_CLIENT_PREALLOCATE", "XLA_PYTHON_CLIENT_ALLOCATOR"),
)
"""Variables by which people say themselves how much of a GPU's memory JAX takes. JAX refuses to
start where both names of the fraction are set."""
_JAX_SHARE = 0.9
"""Share of a GPU's memory that JAX programs may take together; the rest is CUDA's own."""
GROWTH = "TF_FORCE_GPU_ALLOW_GROWTH"
ORDER = "CUDA_DEVICE_ORDER"
SHARING = (ORDER, GROWTH, *_JAX_MEMORY_KEYS)
"""Variables that say how GPUs are counted, and how tasks share a GPU's memory."""
ASKED = (*EXTENDED, VISIBLE, *SHARING, *PROXIES)
"""Variables of a host that its agent is asked for."""


@frozen
class GpuShare:
    """GPUs of one task, by index on its host or by name; `sharers` tasks, itself among them, have
    the one that most tasks have."""

    gpus: tuple[int | str, ...]
    sharers: int = 1

    def names(self, given: Sequence[str] = ()) -> tuple[str, ...]:
        """The GPUs as `CUDA_VISIBLE_DEVICES` names them; `given` are the names of the host's, where
        its environment shows only some of them."""
        return tuple(
            given[gpu] if isinstance(gpu, int) and gpu < len(given) else str(gpu)
            for gpu in self.gpus
        )

    def env(self, given: Sequence[str] = ()) -> dict[str, str]:
        """The variables with which TensorFlow sees only these GPUs, of those that are `given`."""
        return {VISIBLE: ",".join(self.names(given)) or NO_GPU}

    def order_env(self, given: Sequence[str], written: Container[str]) -> dict[str, str]:
        """The variable by which CUDA counts GPUs as nvidia-smi does, where they are named by
        numbers: by default it begins with the fastest. People may have `written` it themselves."""
        numbered = any(name.isdecimal() for name in self.names(given))
        return {ORDER: "PCI_BUS_ID"} if numbered and ORDER not in written else {}

    def memory_env(self, framework: Framework, written: Container[str]) -> dict[str, str]:
        """The variables by which programs that share a GPU leave each other memory: by default
        TensorFlow takes all of it at once, and JAX three quarters. People may have `written` some
        themselves."""
        env: dict[str, str] = {}
        if self.sharers > 1 and GROWTH not in written:
            env[GROWTH] = "true"
        jax = framework in (Framework.JAX, Framework.MPI_LIKE, Framework.NONE)
        if self.sharers > 1 and jax and not any(key in written for key in _JAX_MEMORY_KEYS):
            env[JAX_MEMORY] = f"{max(1, int(100 * _JAX_SHARE / self.sharers)) / 100:.2f}"
        return env


def given_gpus(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The GPUs that an environment shows, such as that of a job step on a part of a node."""
    names = environ.get(VISIBLE, "").split(",")
    return tuple(names) if all(map(_GPU.fullmatch, names)) and "NoDevFiles" not in names else ()


@frozen
class GpuRequest:
    """A task's request: a number of GPUs, GPUs by their names, which it divides with the other
    tasks of its job on the host, or (None) a share of those that are left."""

    task: TaskId
    wanted: int | tuple[str, ...] | None
    trains: bool
    """A chief or a worker; other tasks get GPUs only where they ask for them."""


def split_gpus(
    requests: Sequence[GpuRequest], supply: int, given: Sequence[str] = ()
) -> dict[TaskId, GpuShare]:
    """Divides a host's GPUs, which are `given` by names where not all are there: first those that
    are requested by name, then the requested numbers, the rest evenly among training tasks.

    With fewer GPUs than training tasks they are shared. A task that is not in the result sees all
    GPUs of the host: there are none, or their number is not known (`supply` 0).
    """
    shares: dict[TaskId, GpuShare] = {}
    named: dict[tuple[str, tuple[str, ...]], list[TaskId]] = {}
    for request in requests:
        if isinstance(request.wanted, tuple):
            named.setdefault((request.task.job, request.wanted), []).append(request.task)
    for (_, names), tasks in named.items():
        shares |= _divided(names, tasks)
    taken = {name for _, names in named for name in names}
    free = (n for n in itertools.count() if (given[n] if n < len(given) else str(n)) not in taken)
    for request in requests:
        if isinstance(request.wanted, int):
            # Whether the host has that many is checked by the preflight.
            numbers = tuple(itertools.islice(free, request.wanted))
            shares[request.task] = GpuShare(numbers)
        elif request.wanted is None and not request.trains:
            shares[request.task] = GpuShare(())
    sharers = [request.task for request in requests if request.trains and request.wanted is None]
    if not supply or not sharers:
        return shares
    rest = tuple(itertools.takewhile(lambda number: number < supply, free))
    return shares | _divided(rest, sharers)


def _divided(gpus: Sequence[int | str], tasks: Sequence[TaskId]) -> dict[TaskId, GpuShare]:
    """Gives tasks GPUs, as evenly as they go; of more tasks than GPUs some share one."""
    if not gpus:
        return dict.fromkeys(tasks, GpuShare(()))
    if len(gpus) < len(tasks):
        turns = [gpus[number % len(gpus)] for number in range(len(tasks))]
        dealt = zip(tasks, turns, strict=True)
        return {task: GpuShare((gpu,), sharers=turns.count(gpu)) for task, gpu in dealt}
    shares = {}
    each, more = divmod(len(gpus), len(tasks))
    at = 0
    for number, task in enumerate(tasks):
        size = each + (number < more)
        shares[task] = GpuShare(tuple(gpus[at : at + size]))
        at += size
    return shares


def gpu_shortage(host: str, ranks: int, gpus: int, framework: Framework) -> str:
    """Writes a sentence about more ranks on a host than it has GPUs; empty if it has enough, or
    none."""
    if not 0 < gpus < ranks:
        return ""
    sentence = f"{ranks} ranks on {host}, which has {counted(gpus, 'GPU')}: not every rank has "
    sentence += "a GPU of its own, as programs of this framework expect"
    if framework is Framework.TORCH:
        sentence += (
            '; NCCL refuses two ranks on one GPU ("Duplicate GPU detected"), gloo does not, and '
            "torch.cuda.set_per_process_memory_fraction() keeps one from taking all memory"
        )
    return sentence


def tf_config(cluster_spec: str, task: TaskId) -> Text:
    """Makes the value of `TF_CONFIG`, in which the job's name is called `type`; the cluster spec,
    which all tasks share, comes as JSON."""
    own = json.dumps({"type": task.job, "index": task.index})
    return ('{"cluster": ', cluster_spec, f', "task": {own}}}')


def with_tf_env(
    env: Mapping[str, Text],
    own: Mapping[str, str],
    hook: str,
    trainer: str,
    no_proxy_hosts: str,
    *,
    proxied: bool,
    by_shell: bool,
) -> dict[str, Text]:
    """Puts `hook`, where there is one, first on `PYTHONPATH`, and the trainer's folder last;
    where there is a proxy, appends the cluster's hosts, the comma-separated `no_proxy_hosts`, to
    `no_proxy`.

    `env` has the variables of the file, `own` those of the host (only `EXTENDED` are used). Both
    spellings of `no_proxy` get the same value: curl reads one, gRPC the other. Without a proxy they
    are left alone: JAX warns at each start of any variable that ends in `_proxy`. A task that is
    started `by_shell` may get a proxy there: the shell appends the hosts then.
    """
    result = dict(env)
    given = {**own, **{name: written(env[name]) for name in EXTENDED if name in env}}
    python_path = [hook, given.get("PYTHONPATH", ""), trainer]
    if any(python_path):
        result["PYTHONPATH"] = (":".join(filter(None, python_path)),)
    if not proxied:
        return result | ({NO_PROXY_HOSTS: (no_proxy_hosts,)} if by_shell else {})
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
        return lists[0]
    entries = (entry.strip() for text in lists for entry in text.split(","))
    return ",".join(dict.fromkeys(filter(None, entries)))


_BY_LOCAL_RANK = (Framework.TORCH, Framework.MPI_LIKE)


def rank_variables(
    framework: Framework, rank: Rank, address: str, port: str, share: GpuShare | None
) -> dict[str, str]:
    """Makes the variables of a task; `address` and `port` are those of rank 0."""
    number, size = str(rank.rank), str(rank.world_size)
    local, local_size = str(rank.local_rank), str(rank.local_world_size)
    match framework:
        case Framework.TORCH:
            return {
                "MASTER_ADDR": address,
                "MASTER_PORT": port,
                "RANK": number,
                "WORLD_SIZE": size,
                "LOCAL_RANK": local,
                "LOCAL_WORLD_SIZE": local_size,
                "GROUP_RANK": str(rank.node_rank),
                "NODE_RANK": str(rank.node_rank),
            }
        case Framework.MPI_LIKE:
            return _open_mpi(number, size, local, local_size) | {
                "PMI_RANK": number,
                "PMI_SIZE": size,
            }
        case Framework.JAX:
            return {
                "JAX_COORDINATOR_ADDRESS": f"{bracketed(address)}:{port}",
                "JAX_NUM_PROCESSES": size,
                "JAX_PROCESS_ID": number,
                # jax.distributed.initialize() takes the number of processes and its own from no
                # variable of JAX's, only from an environment that it recognises: Open MPI's,
                # which is the first that it looks for, and which this variable stands for.
                "OMPI_MCA_orte_hnp_uri": f"0.0;tcp://{bracketed(address)}:{port}",
                **_open_mpi(number, size, local, local_size),
                **_local_devices(share),
            }
        case _:
            return {}


def elastic_variables(attempt: int, max_restarts: int) -> dict[str, str]:
    """Makes the variables by which torchrun says how often all ranks were started again."""
    return {
        "TORCHELASTIC_RESTART_COUNT": str(attempt - 1),
        "TORCHELASTIC_MAX_RESTARTS": str(max_restarts),
    }


def pooled(
    framework: Framework, shares: Mapping[TaskId, GpuShare], ranked: Sequence[TaskId]
) -> dict[TaskId, GpuShare]:
    """Gives each of the tasks with ranks on one host the GPUs of all of them, where the framework
    chooses among these by local rank."""
    known = [task for task in ranked if task in shares and framework in _BY_LOCAL_RANK]
    gpus = {gpu: None for task in known for gpu in shares[task].gpus}
    numbers = sorted(gpu for gpu in gpus if isinstance(gpu, int))
    names = [gpu for gpu in gpus if isinstance(gpu, str)]
    sharers = max((shares[task].sharers for task in known), default=1)
    pool = GpuShare((*numbers, *names), sharers)
    return {**shares, **dict.fromkeys(known, pool)}


def _open_mpi(number: str, size: str, local: str, local_size: str) -> dict[str, str]:
    return {
        "OMPI_COMM_WORLD_RANK": number,
        "OMPI_COMM_WORLD_SIZE": size,
        "OMPI_COMM_WORLD_LOCAL_RANK": local,
        "OMPI_COMM_WORLD_LOCAL_SIZE": local_size,
    }


def _local_devices(share: GpuShare | None) -> dict[str, str]:
    """The GPUs that JAX uses, among those it sees: all. It would take that of the local rank."""
    if share is None or not share.gpus:
        return {}
    return {"JAX_LOCAL_DEVICE_IDS": ",".join(map(str, range(len(share.gpus))))}
