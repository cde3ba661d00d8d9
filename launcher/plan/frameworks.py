"""Variables of a task's rank that the programs of a framework read by themselves.

`torch` and `mpi-like` programs choose a GPU by their local rank among all that they see, so each of
their tasks sees all GPUs that the tasks of its host have together; the others see their own ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..cluster.addresses import bracketed
from ..cluster.choices import Framework
from ..cluster.ranks import Rank
from ..ids import TaskId
from .environment import GpuShare

_BY_LOCAL_RANK = (Framework.TORCH, Framework.MPI_LIKE)


def variables(
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


def pooled(
    framework: Framework, shares: Mapping[TaskId, GpuShare], ranked: Sequence[TaskId]
) -> dict[TaskId, GpuShare]:
    """Gives each of the tasks with ranks on one host the GPUs of all of them, where the framework
    chooses among these by local rank."""
    known = [task for task in ranked if task in shares and framework in _BY_LOCAL_RANK]
    pool = GpuShare(tuple(sorted({gpu for task in known for gpu in shares[task].gpus})))
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
