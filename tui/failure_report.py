"""Report of a run for a colleague: cause, last lines, command, versions and hosts.

A report is pasted where many people read it. It has no environment, no accounts and no settings of
SSH; values of variables, and what looks like a credential, are masked wherever they stand.
"""

from __future__ import annotations

import os
import platform
import re
import shlex
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from launcher.cluster.read import read_text
from launcher.errors import TfmuxError
from launcher.ids import TaskId
from launcher.printable import printable
from launcher.quantities import clock, counted
from launcher.run.snapshot import Snapshot
from launcher.store.logs import LogStore, log_tail
from launcher.store.runs import RunFolder
from tui.outcome import TERMINAL, cause_text, outcome_text, receipt_text, up_to_evidence

MASK = "[masked]"
_NAME_ALONE = rf"\1={MASK}"
_LINES = 20
_READ_LINES, _READ_BYTES = 1000, 64 * 1024
"""End of a log in which it is looked for what points to its task."""
_MOST_HOSTS = 32
_MOST_TASKS = 16
"""Tasks of one host that are named."""
_SHORTEST_VALUE = 4
"""Characters of a variable's value from which on it is masked wherever it stands: `1` is no
secret, and would be masked in each number."""
_SECRET_WORD = (
    r"(?:token(?!s|i[sz]|_count|_per)|secret|passw(?:or)?d|passphrase|credential|"
    r"(?:api|access|auth|private)[_-]?key)"
)
_SECRET_NAME = re.compile(rf"{_SECRET_WORD}|(?:^|_)(?:key|pat|pwd)$", re.IGNORECASE)
_ASSIGNED = re.compile(r"(?<![\w-])([A-Z_][A-Z0-9_]*)=(?:\"[^\"]*\"|'[^']*'|\S+)")
"""A variable of a command: settings of a program, such as `lr=0.1`, have small letters."""
_QUOTED = r"\"[^\"]*(?:\"|$)|'[^']*(?:'|$)"
"""A text in quotes, or from one to the end of the line."""
_CREDENTIALS = (
    re.compile(r"(?P<keep>\b(?:Bearer|Basic)\s+)[\w.~+/=-]{8,}", re.IGNORECASE),
    re.compile(
        r"(?P<keep>\b(?:Authorization|Cookie)[\"']?\s*:\s*)(?!Bearer|Basic).+", re.IGNORECASE
    ),
    # parts of an address, which sign it
    re.compile(r"(?P<keep>[?&][\w-]*sig(?:nature)?=)[^\s&\"']+", re.IGNORECASE),
    re.compile(r"(?P<keep>\bhooks\.[\w.-]+/|/webhooks?/)[^\s\"']+"),
    # key=value, key: value, "key": "value", --key value
    re.compile(
        rf"(?P<keep>(?:[\w-]*{_SECRET_WORD}[\w-]*[\"']?\s*[=:]|\b[\w-]*(?:pwd|pass)=)\s*)"
        rf"(?:{_QUOTED}|[^\s\"',;&]+)",
        re.IGNORECASE,
    ),
    re.compile(
        rf"(?P<keep>--?(?:[\w-]*{_SECRET_WORD}[\w-]*|pass|pwd)\s+)(?!-)(?:{_QUOTED}|\S+)",
        re.IGNORECASE,
    ),
    re.compile(r"(?P<keep>\b[a-z][a-z0-9+.-]*://)[^\s/@]+@", re.IGNORECASE),
    re.compile(r"(?P<keep>)\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"),
    re.compile(
        r"(?P<keep>)\b(?:gh[pousr]_|github_pat_|glpat-|hf_|sk-|xox[a-z]-|npm_|pypi-)[\w-]{16,}"
    ),
    re.compile(r"(?P<keep>)\bAIza[\w-]{30,}"),
    re.compile(r"(?P<keep>)(?<!\S)[A-Za-z0-9+][A-Za-z0-9+/=]{59,}(?!\S)"),  # a row of a key's file
    re.compile(r"(?P<keep>)\beyJ[\w-]{8,}\.[\w-]+(?:\.[\w-]*)?"),
    re.compile(r"(?P<keep>)\b[0-9a-f]{40}\b"),
    re.compile(r"(?P<keep>)(?<![\w.+-])[\w.+-]+@(?=[\w\[])"),  # an account on a host
)
"""Texts that are credentials by their form or by the name before them, which is kept."""


def failure_report(
    snapshot: Snapshot, logs: LogStore, environ: Mapping[str, str] = os.environ
) -> str:
    """The report of a run, or of one that is in trouble; `environ` are variables of this machine,
    whose values do not leave it."""
    secrets = [value for name, value in environ.items() if _SECRET_NAME.search(name)]
    task, lines = snapshot.trouble, [*_cause(snapshot)]
    try:
        text = read_text(RunFolder(logs.folder).cluster_file)
        found = tomllib.loads(text)
    except (TfmuxError, ValueError, RecursionError):
        # Nobody knows which values to mask.
        lines += ["", "no log and no command: the run's cluster file cannot be read"]
    else:
        secrets += _values(found, environ)
        if task is not None:
            lines += [*_task(snapshot, task, logs), *_command(found, task.job)]
    lines += ["", *_versions(), "", *_hosts(snapshot)]
    secrets = sorted({one for one in secrets if len(one) >= _SHORTEST_VALUE}, key=len, reverse=True)
    return "\n".join(_masked(line, secrets) for line in lines) + "\n"


def _values(found: Any, environ: Mapping[str, str]) -> Iterator[str]:
    """The values of all variables of a cluster file, and of those that it passes on."""
    if not isinstance(found, dict):
        return
    for key, inside in found.items():
        if key == "env" and isinstance(inside, dict):
            yield from (str(value) for value in inside.values())
        elif key == "env_from" and isinstance(inside, list):
            yield from (environ[name] for name in inside if name in environ)
        else:
            yield from _values(inside, environ)


def _command(found: Mapping[str, Any], job: str) -> Iterator[str]:
    """The command of a job, as the file has it."""
    for table in (found.get("jobs", {}).get(job, {}), found.get("run", {})):
        if words := table.get("command"):
            command = words if isinstance(words, str) else shlex.join(map(str, words))
            text = f"command of {job}: {_ASSIGNED.sub(_NAME_ALONE, command)}"
            yield ""
            yield "\n".join(map(printable, text.split("\n")))  # masked as a whole
            return


def guilty_lines(snapshot: Snapshot, logs: LogStore) -> Sequence[str] | None:
    """The last lines of the guilty task's log. None where nobody is guilty."""
    verdict = snapshot.verdict
    if verdict is None or not verdict.tasks:
        return None
    return _last_lines(snapshot, verdict.tasks[0], logs)


def _last_lines(snapshot: Snapshot, name: TaskId, logs: LogStore) -> Sequence[str]:
    """The last lines of a task's log, as they were at the failure where there is no log."""
    failure = snapshot.first_failure
    lines = log_tail(logs.open(name), _READ_LINES, _READ_BYTES)
    if not lines and failure is not None and failure.task == name:
        return failure.tail
    return lines


def _cause(snapshot: Snapshot) -> Iterator[str]:
    state, _ = outcome_text(snapshot, TERMINAL)
    seconds = (snapshot.ended or time.time()) - snapshot.started
    yield f"{snapshot.run_id}: {state} after {clock(seconds)}"
    yield from cause_text(snapshot, TERMINAL).plain.splitlines()
    failure = snapshot.first_failure
    if failure is not None:
        yield printable(f"first failure: {failure.task} on {failure.host}: {failure.how}")


def _task(snapshot: Snapshot, name: TaskId, logs: LogStore) -> Iterator[str]:
    """How the guilty task is, and the last lines of its log."""
    task = snapshot.task(name)
    words = [task.exit_text, *([f"attempt {task.attempt}"] if task.attempt > 1 else [])]
    words += [] if task.step is None else [f"step {task.step}"]
    lines = up_to_evidence(_last_lines(snapshot, name, logs), snapshot.verdict)
    yield ""
    yield printable(f"{name} on {task.host}: {', '.join(words)}; its last lines:")
    yield from (f"  | {printable(line)}" for line in lines[-_LINES:])


def _versions() -> Iterator[str]:
    from importlib.metadata import PackageNotFoundError, version

    with suppress(PackageNotFoundError):
        yield f"tfmux {version('tfmux')}, Python {platform.python_version()}, {platform.system()}"


def _hosts(snapshot: Snapshot) -> Iterator[str]:
    """The hosts by their names in the cluster file, with their tasks, and the receipt."""
    yield "hosts:"
    for host in snapshot.hosts[:_MOST_HOSTS]:
        tasks = [task for task in snapshot.tasks if task.host == host.name]
        said = [f"{task.id} {task.exit_text}" for task in tasks[:_MOST_TASKS]]
        said += [f"{len(tasks) - _MOST_TASKS} more"] if len(tasks) > _MOST_TASKS else []
        yield printable(f"  {host.name}: {', '.join(said) or 'no task'}")
    if len(snapshot.hosts) > _MOST_HOSTS:
        yield f"  and {counted(len(snapshot.hosts) - _MOST_HOSTS, 'more host')}"
    if snapshot.receipt is not None:
        yield from receipt_text(snapshot, TERMINAL).plain.splitlines()


def _masked(line: str, secrets: Sequence[str]) -> str:
    """A line without the values of variables, and without what looks like a credential."""
    for value in secrets:
        line = line.replace(value, MASK)
    line = line.replace(str(Path.home()), "~") if Path.home() != Path("/") else line
    for credential in _CREDENTIALS:
        line = credential.sub(lambda found: f"{found['keep']}{MASK}", line)
    return line
