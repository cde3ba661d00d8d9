"""Checks of nodes that an engine has given, before anything starts on them: names.

`tfmux check` cannot make them: there are no nodes then.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from ..cluster.model import ClusterModel
from ..errors import HostError
from ..ids import TaskId
from ..plan.plan import HostPlan, Plan
from ..preflight.findings import Reach
from ..preflight.probes import ConnectAnswer
from ..preflight.reachability import CONNECT_SECONDS, sources
from ..run import events as ev

NEIGHBOURS = 8
"""So many other nodes each one looks at: all of them in a small cluster."""
_ANY_PORT = 1
SLOWEST = CONNECT_SECONDS + 10.0
_DOOMED = (Reach.UNRESOLVED, Reach.NO_ROUTE)

Connect = Callable[[str, list[dict[str, Any]]], Awaitable[list[ConnectAnswer]]]
"""Makes a host connect to places, each with host, port, token and seconds."""


def name_for_nodes(cluster: ClusterModel) -> str:
    """The name of this machine, where `srun` runs here and Slurm must know it."""
    slurm = cluster.slurm
    return socket.gethostname() if slurm is not None and slurm.login is None else ""


async def check_names(
    plan: Plan, connect: Connect, ports: Mapping[TaskId, int], launcher: str
) -> Iterable[ev.Event]:
    """Whether nodes with tasks of the cluster find each other, by the names and ports of the
    cluster spec, and whether the first one knows `launcher`. Nothing listens there yet, so a
    connection that is refused is as good as one."""
    names = sources(plan)
    nodes = [plan.host(name) for name in names if plan.host(name).has_agent]
    neighbours = {
        node.name: [nodes[(at + step) % len(nodes)] for step in range(1, _steps(nodes))]
        for at, node in enumerate(nodes)
    }
    asked = [
        [(other.address, _port(plan, ports, other)) for other in neighbours[node.name]]
        for node in nodes
    ]
    if nodes and launcher:
        asked[0].append((launcher, _ANY_PORT))
    asking = (_connect(connect, node, places) for node, places in zip(nodes, asked, strict=True))
    found = await asyncio.gather(*asking)
    events: list[ev.Event] = []
    for node, answers in zip(nodes, found, strict=True):
        for other, answer in zip(neighbours[node.name], answers, strict=False):
            if text := _problem(node, other, answer):
                doomed = answer.outcome in _DOOMED
                kind = ev.HostRefused(time.time(), node.name, text) if doomed else None
                events.append(kind or ev.NoteAdded(time.time(), f"{node.name}: {text}"))
    if nodes and launcher and found[0] and Reach(found[0][-1].outcome) is Reach.UNRESOLVED:
        text = f"{nodes[0].address} cannot resolve {launcher}, the name of this machine: where "
        text += "slurmctld cannot either, each job takes ten seconds to end; add the name to "
        text += "the name servers or /etc/hosts there, or use login"
        events.append(ev.NoteAdded(time.time(), text))
    return events


def _steps(nodes: list[HostPlan]) -> int:
    return min(NEIGHBOURS + 1, len(nodes))


def _port(plan: Plan, ports: Mapping[TaskId, int], node: HostPlan) -> int:
    task = plan.on_host(node.name)[0]
    return task.port or ports[task.id]


async def _connect(
    connect: Connect, node: HostPlan, places: list[tuple[str, int]]
) -> list[ConnectAnswer]:
    """Nothing when the host does not say it: that is no reason to stop."""
    if not places:
        return []
    asked = [
        {"host": name, "port": port, "token": "", "seconds": CONNECT_SECONDS}
        for name, port in places
    ]
    try:
        return await connect(node.name, asked)
    except HostError:
        return []


def _problem(node: HostPlan, other: HostPlan, answer: ConnectAnswer) -> str:
    said = f" ({answer.text})" if answer.text else ""
    match answer.outcome:
        case Reach.UNRESOLVED:
            return (
                f"{node.address} cannot resolve {other.address}, the name of {other.name}{said}; "
                "add it to the name servers or /etc/hosts of the nodes"
            )
        case Reach.NO_ROUTE:
            return (
                f"{node.address} has no route to {other.address} ({other.name}){said}; ask who "
                "runs the cluster, or take other nodes (--exclude in options)"
            )
        case Reach.FILTERED:
            return (
                f"{node.address} gets no answer from {other.address} ({other.name}): a firewall "
                "may drop the packets"
            )
        case _:
            return ""
