"""Reachability of tasks: which host must reach which task, and what each outcome means.

TensorFlow's tasks all talk to each other: a worker to each ps, and each session to every task
of the spec. So every host with cluster tasks must reach every cluster task of the other hosts,
by the name and port of the spec, and its own tasks where it has more than one.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..cluster.choices import Framework
from ..cluster.file_model import ClusterModel
from ..plan.planner import named_placeholders
from ..plan.run_plan import Plan, TaskPlan
from .findings import Check, Finding, Reach, Reachability, blocking, warning
from .probes import ConnectAnswer

REACH_SECONDS = 4.0
"""Two lost SYNs (1 s and 2 s of patience) are forgiven."""
SLOW_SECONDS = 1.0
_BLOCKING: Mapping[Reach, str] = {
    Reach.REFUSED: "is refused by",
    Reach.UNRESOLVED: "cannot resolve",
    Reach.FILTERED: f"gets no answer within {REACH_SECONDS:.0f} s from",
    Reach.NO_ROUTE: "has no route to",
    Reach.STRANGER: "reaches another machine or program at",
    Reach.FAILED: "cannot connect to",
}


_PEERS = frozenset({"ps_hosts", "worker_hosts", "cluster", "master_addr", "master_port"})
_OF_OTHERS = ("hosts.", "host.", "port.", "address.")


def names_peers(cluster: ClusterModel) -> bool:
    """Whether tasks are told where the others are: by their framework, or by words of the file."""
    named = named_placeholders(cluster)
    others = any(name.startswith(_OF_OTHERS) for name in named)
    return cluster.run.framework is not Framework.NONE or others or bool(named & _PEERS)


def sources(plan: Plan) -> tuple[str, ...]:
    """Lists the hosts with cluster tasks, in the plan's order."""
    return tuple(dict.fromkeys(task.host for task in plan.tasks if task.in_cluster))


def targets(plan: Plan, source: str) -> tuple[TaskPlan, ...]:
    """Lists the tasks that `source` must reach."""
    if source not in sources(plan):
        return ()
    cluster = [task for task in plan.tasks if task.in_cluster]
    own = sum(task.host == source for task in cluster)
    return tuple(task for task in cluster if task.host != source or own > 1)


def outcome(
    source: str, task: TaskPlan, address: str, answer: ConnectAnswer | None
) -> Reachability:
    """Reads the outcome from a probe's answer; None: the connection could not be tried."""
    if answer is None:
        return Reachability(source, task.id, task.host, address, Reach.UNKNOWN)
    reach = Reach(answer.outcome)
    seconds = answer.resolved + answer.connected
    if reach is Reach.OK and seconds > SLOW_SECONDS:
        reach = Reach.SLOW
    return Reachability(source, task.id, task.host, address, reach, seconds, answer.address)


def finding(pair: Reachability, answer: ConnectAnswer) -> Finding | None:
    """Describes what is wrong with a connection; None when nothing is.

    What depends on the name alone is one finding for all tasks of the other host.
    """
    if pair.reach in (Reach.OK, Reach.UNKNOWN):
        return None
    name = pair.address.rpartition(":")[0]
    at = f" ({pair.resolved})" if pair.resolved and pair.resolved != name.strip("[]") else ""
    task = None if pair.reach.by_name else pair.task
    brief = f"{task or pair.target} {pair.reach}"
    code = f"reach-{pair.reach}"
    if pair.reach is Reach.SLOW:
        resolved, connected = answer.resolved, answer.connected
        slow, todo = "the connection takes", "look for lost packets between the two"
        if resolved > connected:
            slow, todo = "the name takes", "look at the name servers there"
        sentence = f"{pair.task} at {pair.address}{at} answers {pair.source} after "
        sentence += f"{pair.seconds:.1f} s: {slow} {max(resolved, connected):.1f} s"
        about = (Check.REACH, code, pair.source, brief, sentence, todo)
        return warning(*about, task=task, other=pair.target)
    said = f": {answer.text}" if answer.text else ""
    what = _BLOCKING[pair.reach]
    place = f"{name}{at}, the address of {pair.target}"
    if task is not None:
        place = f"{pair.address}{at}, the address of {task}"
    meaning, todo = _meaning(pair, name)
    sentence = f"{pair.source} {what} {place}{said}{meaning}"
    about = (Check.REACH, code, pair.source, brief, sentence, todo)
    return blocking(*about, task=task, other=pair.target)


def _meaning(pair: Reachability, name: str) -> tuple[str, str]:
    """The likely cause of a failure, and what to do about it."""
    host, other = pair.source, pair.target
    address = f"correct address of {other} (what the other hosts call it)"
    match pair.reach:
        case Reach.UNRESOLVED:
            return "", f"add {name} to /etc/hosts of {host}, or {address}"
        case Reach.REFUSED:
            return (
                f"; {other} listens on it now, so the name means another machine on {host}, or a "
                "firewall rejects the connection",
                f"check what {name} resolves to on {host} (getent hosts {name}), or open the port",
            )
        case Reach.FILTERED:
            return (
                "; a firewall drops the packets, or no machine has that address",
                f"open the port on {other} for {host}, or {address}",
            )
        case Reach.NO_ROUTE:
            return "", f"connect the networks of the two hosts, or {address}"
        case Reach.STRANGER:
            return (
                f"; it is not {other} that answers",
                f"check what {name} resolves to on {host} (getent hosts {name}), or {address}",
            )
        case _:
            return "", address
