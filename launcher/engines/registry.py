"""The engines: which one serves which table of a cluster file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ..cluster.engine_table import EngineTable
from ..cluster.podman import Podman
from ..cluster.slurm import Slurm
from ..cluster.spec import ClusterModel
from ..plan.model import Plan
from .engine import Engine
from .podman import podman_engine
from .slurm_job import slurm_engine

if TYPE_CHECKING:
    from ..hosts.ssh import SshConnector

ENGINES: Mapping[type[EngineTable], Callable[[ClusterModel, Plan, SshConnector | None], Engine]] = {
    Slurm: slurm_engine,
    Podman: podman_engine,
}


def engine_of(cluster: ClusterModel, plan: Plan, logins: SshConnector | None) -> Engine | None:
    """The engine that a cluster's hosts come from."""
    table = cluster.engine
    return None if table is None else ENGINES[type(table)](cluster, plan, logins)
