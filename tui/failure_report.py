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
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any

from launcher.cluster.read import read_text
from launcher.errors import TfmuxError
from launcher.history.control import LONGEST_TEXT, MaskedText
from launcher.ids import TaskId
from launcher.masking import is_secret_name, mask
from launcher.printable import printable
from launcher.quantities import clock, counted
from launcher.run.snapshot import Snapshot
from launcher.secret_values import MASK, SecretValues
from launcher.store.logs import LogStore, log_tail
from launcher.store.runs import RunFolder
from tui.outcome import TERMINAL, cause_text, outcome_text, receipt_text, up_to_evidence

_LINES = 20
_READ_LINES, _READ_BYTES = 1000, 64 * 1024
"""End of a log in which it is looked for what points to its task."""
_MOST_HOSTS = 32
_MOST_TASKS = 16
"""Tasks of one host that are named."""
_LONGEST_LINE = 1000
_MASK_SECONDS = 5.0
_LIKE_A_KEY = re.compile(r"(?=\D*\d)(?=[^A-Za-z]*[A-Za-z])[^/~.].{7,}", re.DOTALL)
"""A value of the file's `env` that is masked whatever its name: a setting is a word, a number or a
path."""
_ASSIGNED = re.compile(r"(?<![\w-])([A-Z_][A-Z0-9_]*)=(?:\"[^\"]*\"|'[^']*'|\S+)")
"""A variable of a command: settings of a program, such as `lr=0.1`, have small letters."""
_ACCOUNT = re.compile(
    r"(?<![\w.+-])[\w.+-]+@(?=\[|\d+\.\d+\.\d|[A-Za-z][\w-])(?!(?i:iou|sha\d+)\b)"
)
"""An account on a host: no metric, such as mAP@0.5."""


def failure_report(
    snapshot: Snapshot,
    logs: LogStore,
    environ: Mapping[str, str] = os.environ,
    mask_values: Callable[[str], Future[MaskedText]] | None = None,
) -> str:
    """The report of a run, or of one that is in trouble; `environ` are variables of this machine,
    whose values do not leave it. `mask_values` has texts masked by the run's launcher process
    (`RunControl.mask_values`). Blocks until that has answered."""
    values = {
        name: value
        for name, value in environ.items()
        if is_secret_name(name) and name not in ("PWD", "OLDPWD")
    }
    passed_on: dict[str, str | None] = {}
    task, lines = snapshot.trouble, [*_cause(snapshot)]
    try:
        text = read_text(RunFolder(logs.folder).cluster_file)
        found = tomllib.loads(text)
    except (TfmuxError, ValueError, RecursionError):
        # Nobody knows which values to mask.
        lines += ["", "no log and no command: the run's cluster file cannot be read"]
    else:
        for name, value in _variables(found, environ):
            if value is None:
                passed_on[name] = environ.get(name)
            elif is_secret_name(name) or _LIKE_A_KEY.fullmatch(value):
                values[f"env {name} {len(values)}"] = value  # of several tables
        if task is not None:
            lines += [*_task(snapshot, task, logs), *_command(found, task.job)]
    lines += ["", *_versions(), "", *_hosts(snapshot)]
    report = "\n".join(_cut(line) for text in lines for line in text.split("\n"))
    report, doubts = _without_values(report, passed_on, mask_values)
    report = _masked(SecretValues(values).mask(report))
    return f"{report}\n{doubts}"


def _without_values(
    report: str,
    passed_on: Mapping[str, str | None],
    mask_values: Callable[[str], Future[MaskedText]] | None,
) -> tuple[str, str]:
    """The report without values of the variables that tasks got from the launcher process, and
    which of these may still be in it: the values are known there, else as this shell has them."""
    here = SecretValues(passed_on)
    unknown, short = set(here.unknown), set(here.short)
    if passed_on and mask_values is not None:
        with suppress(TfmuxError, TimeoutError):
            there = [mask_values(part).result(_MASK_SECONDS) for part in _parts(report)]
            report = "\n".join(part.text for part in there)
            unknown = set(there[0].unknown)
            short = set(there[0].short)
    doubts = [f"value not known here, so not masked: {', '.join(sorted(unknown))}"] * bool(unknown)
    doubts += [f"value too short to be masked: {', '.join(sorted(short))}"] * bool(short)
    return here.mask(report), "".join(f"{printable(each)} (env_from)\n" for each in doubts)


def _parts(report: str) -> Iterator[str]:
    """The lines of a report, together in texts that a launcher process takes."""
    part = ""
    for line in report.split("\n"):
        if part and len(part) + len(line) >= LONGEST_TEXT:
            yield part
            part = line
        else:
            part = f"{part}\n{line}" if part else line
    yield part


def _cut(line: str) -> str:
    return line if len(line) <= _LONGEST_LINE else f"{line[: _LONGEST_LINE - 1]}…"


def _variables(found: Any, environ: Mapping[str, str]) -> Iterator[tuple[str, str | None]]:
    """All variables of a cluster file: those that it sets with their values, and the names of
    those that it passes on."""
    if not isinstance(found, dict):
        return
    for key, inside in found.items():
        if key == "env" and isinstance(inside, dict):
            yield from ((name, str(value)) for name, value in inside.items())
        elif key == "env_from" and isinstance(inside, list):
            yield from ((str(name), None) for name in inside)
        else:
            yield from _variables(inside, environ)


def _command(found: Mapping[str, Any], job: str) -> Iterator[str]:
    """The command of a job, as the file has it."""
    for table in (found.get("jobs", {}).get(job, {}), found.get("run", {})):
        if words := table.get("command"):
            command = words if isinstance(words, str) else shlex.join(map(str, words))
            command = _ASSIGNED.sub(lambda found: f"{found[1]}={MASK}", command)
            text = f"command of {job}: {command}"
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


def _masked(text: str) -> str:
    """A text without what looks like a secret, the home's path, and accounts on hosts."""
    text = text.replace(str(Path.home()), "~") if Path.home() != Path("/") else text
    return _ACCOUNT.sub(f"{MASK}@", mask(text))
