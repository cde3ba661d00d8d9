"""`tfmux ps`: active runs, a line each. Hosts are asked only about runs without a launcher
process; nothing slow is imported for the others."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator

from launcher.history.run_list import (
    ActiveRuns,
    ListedRun,
    active_runs,
    active_runs_json,
    held_on_hosts,
)
from launcher.paths import tilde
from launcher.printable import printable
from launcher.quantities import clock, counted, size
from launcher.store.runs import RunFolder
from tui.exits import Exit
from tui.streams import message, write_json

_TITLES = ("RUN", "CLUSTER", "PHASE", "TASKS", "HOSTS", "STARTED", "ELAPSED")
UNSUPERVISED = "unsupervised"
_GAP = "  "
_TOLD_BYTES = 1024**3
_MOST_HOSTS = 10


def ps(arguments: argparse.Namespace) -> int:
    """Lists the active runs: a table, `--quiet` names, or `--json` what
    `docs/schemas/ps.schema.json` describes. What is odd about them is said on stderr."""
    found = active_runs()
    print_unreadable(found)
    if arguments.json:
        write_json(active_runs_json(found.runs))
        return Exit.SUCCESS
    now = time.time()
    for run in found.runs:
        for note in _notes(run, now):
            message(f"{run.folder.run_id}: {note}")
    if arguments.quiet:
        sys.stdout.writelines(f"{printable(run.folder.run_id)}\n" for run in found.runs)
    elif found.runs:
        sys.stdout.write(table(found.runs, now))
    if not (found.runs or found.unreadable):
        message("no active runs")
    if not arguments.quiet:
        for line in _held_lines(now):
            message(line)
    return Exit.SUCCESS


def _held_lines(now: float) -> Iterator[str]:
    """What past runs have left on hosts, where it is so much that somebody should know."""
    for one in held_on_hosts(RunFolder.all(), now)[:_MOST_HOSTS]:
        if one.bytes >= _TOLD_BYTES:
            runs = counted(one.runs, "ended run")
            verb = "holds" if one.runs == 1 else "hold"
            where = printable(one.host)
            yield f"{runs} {verb} {size(one.bytes)} on {where}: `tfmux rm --hosts` deletes it there"


def print_unreadable(found: ActiveRuns) -> None:
    """Says on stderr what could not be read."""
    for run in found.runs:
        if run.problem:
            message(run.problem)
    for unreadable in found.unreadable:
        message(f"{unreadable.run_id} could not be read: {unreadable.reason}")
    for folder in found.elsewhere:
        home = printable(tilde(folder.parents[2]))
        name = printable(folder.name)
        message(f"{name} is active in another data home: XDG_DATA_HOME={home} lists it")


def table(runs: tuple[ListedRun, ...], now: float) -> str:
    """One line a run below the titles, in columns without blanks in them, of any width."""
    rows = [_TITLES, *(_row(run, now) for run in runs)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (
        _GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )
    return "".join(f"{line}\n" for line in lines)


def _row(run: ListedRun, now: float) -> tuple[str, ...]:
    answered = sum(not host.unreachable for host in run.hosts)
    seen = run.summary
    started = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(seen.started))
    return (
        printable(run.folder.run_id),
        printable(seen.name).replace(" ", "_") or "-",
        UNSUPERVISED if run.launcher is None else str(seen.state),
        f"{run.live_tasks}/{seen.tasks}",
        f"{answered}/{len(run.hosts)}",
        started,
        clock(now - seen.started),
    )


def _notes(run: ListedRun, now: float) -> Iterator[str]:
    if run.job_ended:
        yield f"{run.job_ended}; tfmux attach shows how it ended, and removes it from this list"
    elif run.launcher is None:
        yield "no launcher supervises it; tfmux attach resumes it, tfmux kill ends it"
    if run.summary.attempt_text:
        yield run.summary.attempt_text
    if run.summary.cause_text:
        yield f"cause: {run.summary.cause_text}"
    if stalled := run.summary.stalled_text(now):
        yield stalled
    if run.queued is not None:
        from tui.outcome import queue_text

        yield queue_text(run.queued, run.queued_since, now)
    if run.background:
        yield from run.waits
    for host in run.hosts:
        if host.unreachable:
            yield f"{host.name} is unreachable: {host.unreachable}"
        if host.left:
            tasks = " ".join(map(str, host.tasks)) or "processes"
            yield f"{host.name} has {tasks} without an agent: tfmux kill ends them"
        elif host.doubt:
            yield (
                f"{host.name} may have unknown processes until it reboots: tfmux's agent and "
                "watchdog were killed there; tfmux kill --forget removes the run from this list"
            )
