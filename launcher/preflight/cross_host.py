"""Checks that compare hosts: TensorFlow versions, and who sees the chief's log directory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from ..cluster.rules import OnFailure
from ..plan.plan import Plan, Role
from .findings import Check, Finding, passed, warning


def versions(found: Mapping[str, str]) -> Iterator[Finding]:
    """Warns of TensorFlow versions that differ; `found` maps hosts to known versions."""
    counts = Counter(found.values())
    if len(counts) < 2:
        return
    usual = counts.most_common(1)[0][0]
    where = [host for host, version in found.items() if version == usual]
    for host, version in found.items():
        if version != usual:
            sentence = f"TensorFlow is {version} here and {usual} on {', '.join(where[:5])}: their "
            sentence += "gRPC and checkpoints may be incompatible"
            todo = "install the same version on all hosts"
            yield warning(Check.TENSORFLOW, "tensorflow-differs", host, version, sentence, todo)


def sharers(plan: Plan) -> tuple[str, tuple[str, ...], str]:
    """The chief's host, the hosts that must see its log directory (none where no host must), and
    the reason."""
    cluster = [task for task in plan.tasks if task.in_cluster]
    chief = next((task for task in cluster if task.id == plan.chief), None)
    if chief is None:
        return "", (), ""
    evaluators = [task.host for task in plan.tasks if task.role is Role.EVALUATOR]
    why = "an evaluator reads the chief's checkpoints"
    hosts = evaluators
    if plan.settings.on_failure is OnFailure.RESTART:
        why = 'on_failure = "restart" needs a shared one: a restarted task reads the last '
        why += "checkpoint from it"
        hosts = [*(task.host for task in cluster), *evaluators]
    return chief.host, tuple(host for host in dict.fromkeys(hosts) if host != chief.host), why


def sharing(host: str, chief: str, path: str, why: str, *, seen: bool) -> Finding:
    """Reports whether a host sees the chief's log directory."""
    if seen:
        return passed(Check.LOGDIR, host, "shared", f"{path} is the same directory as on {chief}")
    sentence = f"the log directory {path} is not the same as on {chief}, and {why}"
    todo = "put logdir on a disk that all hosts share"
    return warning(Check.LOGDIR, "logdir-not-shared", host, "not shared", sentence, todo)
