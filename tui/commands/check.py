"""`tfmux check`: preflight of every host, printed as tables, findings and a verdict."""

from __future__ import annotations

import argparse
import asyncio
import shutil
import signal
import sys

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from launcher.cluster.file_model import ClusterModel
from launcher.masking import masked_json
from launcher.preflight import Finding, Reach, Reachability, Report, Severity
from launcher.preflight.preflight import preflight
from launcher.preflight.repairs import grouped
from launcher.quantities import counted
from tui.commands.asking import terminal_asker
from tui.commands.hosts_from import read_cluster
from tui.exits import Exit
from tui.format import request_text
from tui.outcome import TERMINAL
from tui.preflight_view import (
    MARKS,
    checks_table,
    group_text,
    nodes_text,
    reach_table,
    verdict,
)
from tui.streams import write_json
from tui.tables import TableRow, cut, rich_tables

_CELL = 22
_ROWS = 24
"""A matrix of more tasks shows only those that are not reached from everywhere."""
_UNLIMITED = 10_000
"""Cells of width for a table whose columns have been chosen to fit."""


def check(arguments: argparse.Namespace) -> int:
    """Checks every host of a cluster file, starts nothing, and returns the exit code."""
    cluster, _ = read_cluster(arguments, for_launch=True)
    as_json = arguments.json
    ends: list[int] = []
    checking = _preflight(cluster, quiet=as_json, accept_new=arguments.accept_new, ends=ends)
    try:
        report = asyncio.run(checking)
    except asyncio.CancelledError:
        return 128 + ends[0]
    if as_json:
        write_json(masked_json(report.json()))
    else:
        console = Console(width=shutil.get_terminal_size((100, 24)).columns, highlight=False)
        with console.capture() as capture:  # of a broken pipe Rich would make exit code 1
            given = cluster if cluster.slurm is not None else None
            render(report, console, given)
        sys.stdout.writelines(line.rstrip() + "\n" for line in capture.get().splitlines())
    return Exit.SUCCESS if report.ok else Exit.PREFLIGHT


async def _preflight(
    cluster: ClusterModel, *, quiet: bool, accept_new: bool, ends: list[int]
) -> Report:
    """Makes the checks. A signal that ends the program goes into `ends`, and the checks are
    cancelled, so that their marks are removed here and on hosts."""
    checking = asyncio.current_task()
    assert checking is not None

    def end(number: int) -> None:
        ends.append(number)
        checking.cancel()

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
            asyncio.get_running_loop().add_signal_handler(number, end, number)
    progress = _CheckProgress(cluster, quiet or not sys.stderr.isatty())
    ask = None if quiet or not sys.stdin.isatty() else terminal_asker(progress.clear)
    try:
        return await preflight(cluster, ask, progress.show, accept_new=accept_new)
    finally:
        progress.clear()


def render(report: Report, console: Console, cluster: ClusterModel | None = None) -> None:
    """Prints the report: accepted keys, checks, connections, findings, the request for nodes,
    verdict. `cluster`: its hosts are an engine's."""

    def line(text: str | Text) -> None:
        console.print(text, markup=False, soft_wrap=True)

    for host, key in report.accepted:
        line(f"{host}: trusted from now on: {key.place} {key}")
    _tables(checks_table(report, TERMINAL), console)
    if len(report.hosts) > 1 or any(pair.reach is not Reach.OK for pair in report.reachability):
        count = len({pair.task for pair in report.reachability})
        titles, rows = reach_table(report, TERMINAL, bad_only=count > _ROWS)
        if len(rows) < count:
            line(f"\n{count - len(rows)} of {count} tasks are reached from everywhere")
        if rows:
            console.print()
            _tables((titles, rows), console)
    for severity in (Severity.ERROR, Severity.WARN):
        for group in grouped([each for each in report.findings if each.severity is severity]):
            console.print()
            console.print(group_text(group, TERMINAL), soft_wrap=True, end="")
    if cluster is not None:
        line("\n" + nodes_text(cluster).rstrip("\n"))
    if report.request is not None:
        line("\n" + request_text(report.request).rstrip("\n"))
    console.print()
    hosts = f"{counted(len(report.hosts), 'host')} in " if cluster is None else ""
    time = f"   {hosts}{report.seconds:.1f} s"
    line(verdict(report, TERMINAL).append(time, "dim"))


def _tables(content: tuple[list[str], list[TableRow]], console: Console) -> None:
    tables = rich_tables(*content, width=console.width, widest=_CELL)
    for number, table in enumerate(tables):
        if number:
            console.print()
        console.print(table, crop=False, no_wrap=True, width=_UNLIMITED)


class _CheckProgress:
    """One line on stderr with the last check of each host."""

    def __init__(self, cluster: ClusterModel, silent: bool) -> None:
        self._silent = silent
        self._last: dict[str, str] = {}
        tasks = (place.host for job in cluster.jobs.values() for place in job.tasks)
        engine = cluster.slurm
        self._hosts = list(dict.fromkeys(tasks)) if engine is None else [engine.label]
        self._draw()

    def show(self, result: Finding | Reachability) -> None:
        """Redraws the line with the latest check of each host."""
        if isinstance(result, Finding):
            self._last[result.host] = f"{result.check} {MARKS[result.severity][0]}"
        self._draw()

    def clear(self) -> None:
        """Erases the line from the terminal."""
        if not self._silent:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    def _draw(self) -> None:
        if self._silent:
            return
        text = ", ".join(f"{host} {self._last.get(host, '…')}" for host in self._hosts)
        width = shutil.get_terminal_size((80, 24)).columns
        line = f"checking: {text}"
        line = cut(line, min(cell_len(line), width - 1))
        print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)
