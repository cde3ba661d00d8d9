"""`tfmux check`: the preflight of every host, as a table, a matrix, and what to do."""

from __future__ import annotations

import asyncio
import getpass
import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from launcher.cluster.file import load
from launcher.cluster.spec import Cluster
from launcher.hosts.ssh import AuthPrompt, PromptHandler, PromptKind
from launcher.preflight import CHECKS, Check, Finding, Pair, Reach, Report, Severity, preflight
from tui.exits import Exit

_MARKS = {Severity.OK: "✓", Severity.WARN: "!", Severity.ERROR: "✗"}
_REACHES = {
    Reach.OK: "✓",
    Reach.SLOW: "! slow",
    Reach.REFUSED: "✗ refused",
    Reach.UNRESOLVED: "✗ unresolved",
    Reach.FILTERED: "✗ filtered",
    Reach.NO_ROUTE: "✗ no route",
    Reach.STRANGER: "✗ stranger",
    Reach.FAILED: "✗ failed",
    Reach.UNKNOWN: "?",
}
_CELL = 22
_ROWS = 24
"""A matrix of more tasks shows only those that are not reached from everywhere."""


def check(file: Path, *, as_json: bool, accept_new: bool) -> int:
    """Looks at every host of a cluster file; starts nothing. Returns the exit code."""
    cluster = load(file, for_launch=True)
    try:
        report = asyncio.run(_look(cluster, quiet=as_json, accept_new=accept_new))
    except KeyboardInterrupt:
        return Exit.KILLED
    if as_json:
        sys.stdout.write(json.dumps(report.json(), indent=2) + "\n")
    else:
        width = shutil.get_terminal_size((100, 24)).columns
        sys.stdout.write("\n".join(lines(report, width)) + "\n")
    return Exit.SUCCESS if report.ok else Exit.PREFLIGHT


async def _look(cluster: Cluster, *, quiet: bool, accept_new: bool) -> Report:
    progress = _Progress(cluster, quiet or not sys.stderr.isatty())
    ask = None if quiet or not sys.stdin.isatty() else _asker(progress)
    try:
        return await preflight(cluster, ask, progress.show, accept_new=accept_new)
    finally:
        progress.clear()


def lines(report: Report, width: int) -> Iterator[str]:
    """The whole report for people: accepted keys, table, matrix, findings, verdict."""
    for host, key in report.accepted:
        yield f"{host}: trusted from now on: {key.place} {key}"
    yield from _table(report, width)
    if len(report.hosts) > 1 or any(pair.reach is not Reach.OK for pair in report.pairs):
        yield from _matrix(report, width)
    for severity in (Severity.ERROR, Severity.WARN):
        for finding in report.findings:
            if finding.severity is severity:
                yield from _finding(finding)
    yield ""
    yield _verdict(report)


def _table(report: Report, width: int) -> Iterator[str]:
    """Checks down, hosts across, as many side by side as fit."""
    cells = {host: [_cell(report, host, check) for check in CHECKS] for host in report.hosts}
    yield from _grid("", [str(check) for check in CHECKS], cells, width)


def _matrix(report: Report, width: int) -> Iterator[str]:
    """Who connects across, whom to down."""
    if not report.pairs:
        return
    every = list(dict.fromkeys((str(pair.task), pair.address) for pair in report.pairs))
    bad = {str(pair.task) for pair in report.pairs if pair.reach is not Reach.OK}
    rows = every if len(every) <= _ROWS else [row for row in every if row[0] in bad]
    found = {(pair.source, str(pair.task)): pair for pair in report.pairs}
    sources = list(dict.fromkeys(pair.source for pair in report.pairs))
    if len(rows) < len(every):
        yield ""
        yield f"{len(every) - len(rows)} of {len(every)} tasks are reached from everywhere"
    if not rows:
        return
    cells = {
        f"from {source}": [_reach(found.get((source, task))) for task, _ in rows]
        for source in sources
    }
    yield ""
    yield from _grid("to", [f"{task} {address}" for task, address in rows], cells, width)


def _grid(
    corner: str, rows: Sequence[str], cells: dict[str, list[str]], width: int
) -> Iterator[str]:
    """Columns under their names, broken into several tables where they do not fit."""
    first = max(len(text) for text in [corner, *rows])
    wide = {
        name: min(_CELL, max(len(name), *(len(text) for text in column)))
        for name, column in cells.items()
    }
    names = list(cells)
    while names:
        here, used = [names.pop(0)], first + 2
        used += wide[here[0]]
        while names and used + 2 + wide[names[0]] <= width:
            used += 2 + wide[names[0]]
            here.append(names.pop(0))
        yield _row(corner, first, [(name, wide[name]) for name in here])
        for number, row in enumerate(rows):
            texts = [(cells[name][number], wide[name]) for name in here]
            if any(text.strip("–") for text, _ in texts):
                yield _row(row, first, texts)
        if names:
            yield ""


def _row(head: str, wide: int, texts: Sequence[tuple[str, int]]) -> str:
    parts = [f"{head:<{wide}}", *(f"{_cut(text, size):<{size}}" for text, size in texts)]
    return "  ".join(parts).rstrip()


def _cut(text: str, size: int) -> str:
    return text if len(text) <= size else text[: size - 1] + "…"


def _cell(report: Report, host: str, check: Check) -> str:
    worst = report.worst(host, check)
    return "–" if worst is None else f"{_MARKS[worst.severity]} {worst.brief}"


def _reach(pair: Pair | None) -> str:
    if pair is None:
        return "–"
    text = _REACHES[pair.reach]
    return f"{text} {pair.seconds * 1000:.0f} ms" if pair.reach is Reach.OK else text


def _finding(finding: Finding) -> Iterator[str]:
    yield ""
    yield f"{_MARKS[finding.severity]} {finding.host}: {finding.sentence}"
    if finding.todo:
        yield f"  → {finding.todo}   [{finding.code}]"
    else:
        yield f"  [{finding.code}]"


def _verdict(report: Report) -> str:
    errors = sum(finding.severity is Severity.ERROR for finding in report.findings)
    warnings = sum(finding.severity is Severity.WARN for finding in report.findings)
    hosts = "1 host" if len(report.hosts) == 1 else f"{len(report.hosts)} hosts"
    said = f"{hosts} in {report.seconds:.1f} s"
    also = f", {_count(warnings, 'warning')}" if warnings else ""
    if errors:
        return f"{said}: {_count(errors, 'error')}{also}; a launch would fail"
    return f"{said}: nothing stands in the way{also}"


def _count(number: int, word: str) -> str:
    return f"{number} {word}" + ("" if number == 1 else "s")


class _Progress:
    """One line on stderr that says who is still being looked at."""

    def __init__(self, cluster: Cluster, silent: bool) -> None:
        self._silent = silent
        self._last: dict[str, str] = {}
        self._hosts = list(
            dict.fromkeys(place.host for job in cluster.jobs.values() for place in job.tasks)
        )
        self._draw()

    def show(self, result: Finding | Pair) -> None:
        """Takes what has just been found."""
        if isinstance(result, Finding):
            self._last[result.host] = f"{result.check} {_MARKS[result.severity]}"
        self._draw()

    def clear(self) -> None:
        """Takes the line away."""
        if not self._silent:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    def _draw(self) -> None:
        if self._silent:
            return
        text = ", ".join(f"{host} {self._last.get(host, '…')}" for host in self._hosts)
        width = shutil.get_terminal_size((80, 24)).columns
        print(f"\r\x1b[K{_cut('looking: ' + text, width - 1)}", end="", file=sys.stderr, flush=True)


def _asker(progress: _Progress) -> PromptHandler:
    """Asks at the terminal, one question at a time. Host keys are not asked for here: trusting
    them is `--accept-new`'s business, in one step and with all fingerprints."""
    lock = asyncio.Lock()

    async def ask(question: AuthPrompt) -> str | None:
        if question.kind is PromptKind.HOST_KEY:
            return None
        async with lock:
            progress.clear()
            text = f"{question.host}: {question.text}: "
            try:
                return await asyncio.to_thread(getpass.getpass if question.secret else input, text)
            except EOFError:
                return None

    return ask
