"""Who must reach whom, and what the end of a connection means.

TensorFlow's tasks all talk to each other: a worker to each ps, and each session to every task
of the spec. So every host with cluster tasks must reach every cluster task of other hosts, by
the very name and port of the spec, and its own where it has more than one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..plan.plan import Plan, TaskPlan
from .findings import Check, Finding, Pair, Reach, blocking, warning

CONNECT_SECONDS = 4.0
"""Two lost SYNs (1 s and 2 s of patience) are forgiven."""
SLOW_SECONDS = 1.0
_BLOCKING: Mapping[Reach, str] = {
    Reach.REFUSED: "is refused at",
    Reach.UNRESOLVED: "cannot resolve the name of",
    Reach.FILTERED: f"gets no answer within {CONNECT_SECONDS:.0f} s from",
    Reach.NO_ROUTE: "finds no way to",
    Reach.STRANGER: "reaches somebody else at",
    Reach.FAILED: "cannot connect to",
}


def sources(plan: Plan) -> tuple[str, ...]:
    """The hosts with cluster tasks, in the plan's order."""
    return tuple(dict.fromkeys(task.host for task in plan.tasks if task.in_cluster))


def targets(plan: Plan, source: str) -> tuple[TaskPlan, ...]:
    """The tasks that `source` must reach."""
    if source not in sources(plan):
        return ()
    cluster = [task for task in plan.tasks if task.in_cluster]
    own = sum(task.host == source for task in cluster)
    return tuple(task for task in cluster if task.host != source or own > 1)


def pair(source: str, task: TaskPlan, address: str, answer: Mapping[str, Any] | None) -> Pair:
    """What a probe's answer says of a pair; no answer: it could not be tried."""
    if answer is None:
        return Pair(source, task.id, task.host, address, Reach.UNKNOWN)
    reach = Reach(answer["outcome"])
    seconds = float(answer["resolved"]) + float(answer.get("connected", 0.0))
    if reach is Reach.OK and seconds > SLOW_SECONDS:
        reach = Reach.SLOW
    return Pair(source, task.id, task.host, address, reach, seconds, str(answer["address"]))


def finding(pair: Pair, answer: Mapping[str, Any]) -> Finding | None:
    """What is wrong with a pair, if anything."""
    if pair.reach in (Reach.OK, Reach.UNKNOWN):
        return None
    name = pair.address.rpartition(":")[0]
    at = f" ({pair.resolved})" if pair.resolved and pair.resolved != name.strip("[]") else ""
    brief = f"{pair.task} {pair.reach}"
    code = f"reach-{pair.reach}"
    if pair.reach is Reach.SLOW:
        resolved, connected = float(answer["resolved"]), float(answer.get("connected", 0.0))
        slow = "the name takes" if resolved > connected else "the connection takes"
        return warning(
            Check.REACH,
            code,
            pair.source,
            brief,
            f"{pair.task} at {pair.address}{at} answers {pair.source} after {pair.seconds:.1f} s: "
            f"{slow} {max(resolved, connected):.1f} s",
            "look at the name servers there"
            if resolved > connected
            else "look for lost packets between the two",
        )
    said = f": {answer['text']}" if answer.get("text") else ""
    what = _BLOCKING[pair.reach]
    sentence = f"{pair.source} {what} {pair.address}{at}, where {pair.task} will be{said}"
    meaning, todo = _meaning(pair, name)
    return blocking(Check.REACH, code, pair.source, brief, f"{sentence}{meaning}", todo)


def _meaning(pair: Pair, name: str) -> tuple[str, str]:
    """What follows from a failure, and what to do about it."""
    host, other = pair.source, pair.target
    address = f"correct address of {other} (what the other hosts call it)"
    match pair.reach:
        case Reach.UNRESOLVED:
            return "", f"add {name} to /etc/hosts of {host}, or {address}"
        case Reach.REFUSED:
            return (
                f"; {other} listens there now, so the name leads {host} to another machine, or a "
                "firewall rejects",
                f"compare what {name} means on {host} (getent hosts {name}); or open the port",
            )
        case Reach.FILTERED:
            return (
                "; a firewall drops the packets, or the address is nobody's",
                f"open the port on {other} for {host}, or {address}",
            )
        case Reach.NO_ROUTE:
            return "", f"put the two into one network, or {address}"
        case Reach.STRANGER:
            return (
                f"; another program or machine than {other} answers",
                f"compare what {name} means on {host} (getent hosts {name}), or {address}",
            )
        case _:
            return "", address
