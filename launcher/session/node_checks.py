"""Checks of nodes that an engine has given, before anything starts on them: names.

`tfmux check` cannot make them: there are no nodes then.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterable, Mapping

from ..agent.probes import ConnectAnswer, ConnectProbe
from ..cluster.model import ClusterModel
from ..errors import AgentError
from ..hosts.link import Link
from ..ids import TaskId
from ..plan.plan import HostPlan, Plan
from ..preflight.findings import Reach
from ..preflight.reachability import CONNECT_SECONDS, sources
from ..run import events as ev

NEIGHBOURS = 8
"""So many other nodes each one looks at: all of them in a small cluster."""
_ANY_PORT = 1
_SLOWEST = CONNECT_SECONDS + 10.0
_DOOMED = (Reach.UNRESOLVED, Reach.NO_ROUTE)


def name_for_nodes(cluster: ClusterModel) -> str:
    """The name of this machine, where `srun` runs here and Slurm must know it."""
    slurm = cluster.slurm
    return socket.gethostname() if slurm is not None and slurm.login is None else ""


async def check_names(
    plan: Plan, links: Mapping[str, Link], ports: Mapping[TaskId, int], launcher: str
) -> Iterable[ev.Event]:
    """Whether nodes with tasks of the cluster find each other, by the names and ports of the
    cluster spec, and whether the first one knows `launcher`. Nothing listens there yet, so a
    connection that is refused is as good as one."""
    names = sources(plan)
    nodes = [plan.host(name) for name in names if plan.host(name).has_agent]
    pairs = [
        (node, nodes[(at + step) % len(nodes)])
        for at, node in enumerate(nodes)
        for step in range(1, min(NEIGHBOURS + 1, len(nodes)))
    ]
    found = await asyncio.gather(*(_connect(plan, links, ports, *pair) for pair in pairs))
    events: list[ev.Event] = []
    for (node, other), answer in zip(pairs, found, strict=True):
        if answer is not None and (text := _problem(node, other, answer)):
            doomed = answer.outcome in _DOOMED
            kind = ev.HostRefused(time.time(), node.name, text) if doomed else None
            events.append(kind or ev.NoteAdded(time.time(), f"{node.name}: {text}"))
    if nodes and launcher:
        answer = await _ask(links[nodes[0].name], launcher, _ANY_PORT)
        if answer is not None and answer.outcome == Reach.UNRESOLVED:
            text = f"{nodes[0].address} cannot resolve {launcher}, the name of this machine: where "
            text += "slurmctld cannot either, each job takes ten seconds to end; add the name to "
            text += "the name servers or /etc/hosts there, or use login"
            events.append(ev.NoteAdded(time.time(), text))
    return events


async def _connect(
    plan: Plan,
    links: Mapping[str, Link],
    ports: Mapping[TaskId, int],
    node: HostPlan,
    other: HostPlan,
) -> ConnectAnswer | None:
    task = plan.on_host(other.name)[0]
    return await _ask(links[node.name], other.address, task.port or ports[task.id])


async def _ask(link: Link, name: str, port: int) -> ConnectAnswer | None:
    """None when the host does not say it: that is no reason to stop."""
    try:
        return await link.ask(ConnectProbe(name, port, "", CONNECT_SECONDS), _SLOWEST)
    except AgentError:
        return None


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
