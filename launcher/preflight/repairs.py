"""Settings of the cluster file that repair what a preflight has found."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..cluster.file_model import ClusterModel
from ..cluster.key_lines import KeyPath
from ..frozen import frozen
from .findings import HOST_FAILURES, Check, Finding, Severity

_OF_HOSTS = {
    Check.NAME: "ssh",
    Check.TCP: "ssh",
    Check.SSH: "ssh",
    Check.LOGIN: "ssh",
    Check.SHELL: "env",
    Check.AGENT: "python",
    Check.PYTHON: "python",
    Check.TENSORFLOW: "python",
    Check.GPUS: "gpus",
    Check.PROXY: "env",
    Check.ADDRESS: "address",
    Check.REACH: "address",
}
"""Keys of a host's table that decide on a check."""
_OF_CODES = {"key-file": "identity", "jump-failed": "jump", "shell-blocked": "shell"}
_OF_TASKS = {
    Check.COMMAND: "command",
    Check.FILES: "workdir",
    Check.LOGDIR: "logdir",
    Check.PORTS: "tasks",
}
"""Keys of a job's table, or of `[run]`."""
_OF_TASKS_CODES = {
    "directory-missing": "directory",
    "logdir-full": "logdir",
    "logdir-low": "logdir",
}
"""Keys that repair single findings; tfmux's own folder on a host is set nowhere."""


def key_of_refusal(code: str) -> str:
    """Key of a host's table that repairs what a host was refused for; empty where none does."""
    if code.startswith("via-"):
        return "via"
    check = HOST_FAILURES[code][0] if code in HOST_FAILURES else None
    return _OF_CODES.get(code) or ("" if check is None else _OF_HOSTS.get(check, ""))


def setting_of(cluster: ClusterModel, finding: Finding) -> KeyPath:
    """Path of the setting that repairs a finding; empty where none does."""
    check, code = finding.check, finding.code
    if finding.severity is Severity.OK or finding.run:
        return ()
    if check is Check.REACH:
        return ("hosts", finding.other, "address") if finding.other in cluster.hosts else ()
    if key := _OF_CODES.get(code) or _OF_HOSTS.get(check, ""):
        if code.startswith("via-"):
            key = "via"
        if cluster.slurm is not None:
            return ("slurm", key) if key in ("python", "gpus") else ()
        return ("hosts", finding.host, key)
    key = _OF_TASKS_CODES.get(code) or _OF_TASKS.get(check, "")
    job = finding.task.job if finding.task is not None else ""
    if key == "tasks":
        return ("jobs", job, key) if job else ()
    own = job in cluster.jobs and key in cluster.jobs[job].model_fields_set
    return ("jobs", job, key) if own else ("run", key) if key else ()


@frozen
class FindingGroup:
    """Equal findings of one host or several."""

    findings: tuple[Finding, ...]

    @property
    def first(self) -> Finding:
        """The finding of the first host."""
        return self.findings[0]

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts, in their order."""
        return tuple(dict.fromkeys(finding.host for finding in self.findings))

    @property
    def offers(self) -> dict[str, str]:
        """An interpreter that would do for each host that has one."""
        return {each.host: each.offer for each in self.findings if each.offer}

    def settings(self, cluster: ClusterModel) -> tuple[KeyPath, ...]:
        """Paths of the settings that repair the findings."""
        found = dict.fromkeys(setting_of(cluster, finding) for finding in self.findings)
        return tuple(path for path in found if path)


def grouped(findings: Sequence[Finding]) -> list[FindingGroup]:
    """The findings, equal ones of several hosts together, in the order of the first of each."""
    groups: dict[object, list[Finding]] = {}
    for finding in findings:
        groups.setdefault(_likeness(finding), []).append(finding)
    return [FindingGroup(tuple(group)) for group in groups.values()]


def _likeness(finding: Finding) -> object:
    """What equal findings have in common: all but the host, its name in the sentence and the offer.
    An advice that names its host is one to copy: those of several hosts are told apart."""
    todo = finding.todo.replace(finding.offer, "") if finding.offer else finding.todo
    name = rf"(?<![\w.-]){re.escape(finding.host)}(?![\w-])"
    sentence = re.sub(name, "\0", finding.sentence)
    return finding.severity, finding.check, finding.code, sentence, todo, bool(finding.offer)
