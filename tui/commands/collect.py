"""`tfmux collect`: brings what the tasks of a run have left on its hosts."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time

from launcher.history.kept_results import HostResults, collect_results, hosts_with_results
from launcher.history.stored import StoredRun
from launcher.printable import printable
from launcher.quantities import counted, size
from tui.commands.asking import terminal_asker
from tui.commands.which_run import run_and_patterns
from tui.exits import Exit
from tui.streams import message, print_lines

_PROGRESS_SECONDS = 2.0
_MOST_NAMED = 10


def collect(arguments: argparse.Namespace) -> int:
    """Brings the results of a run; returns 1 where some could not be brought, or a pattern matches
    nothing on any host."""
    words = arguments.patterns
    folder, patterns = run_and_patterns(arguments.run, words, arguments.command)
    run = StoredRun(folder)
    if not hosts_with_results(run):
        message(f"{run.folder.run_id} has copied no workdir to hosts: its files are where it ran")
        return Exit.SUCCESS
    ask = terminal_asker() if sys.stdin.isatty() and sys.stderr.isatty() else None
    try:
        work = collect_results(run, patterns, _CollectProgress(), ask)
        found = asyncio.run(work)
    except KeyboardInterrupt:
        message("fetched files stay here; the same command continues")
        raise
    print_lines(line for one in found for line in _lines(one))
    for one in found:
        for problem in _problems(one):
            message(printable(f"{one.host}: {problem}"))
    reached = [one.fetched for one in found if one.fetched is not None]
    nowhere = [
        pattern
        for pattern in patterns
        if reached and all(pattern in fetched.absent for fetched in reached)
    ]
    for pattern in nowhere:
        message(printable(f"no result of {run.folder.run_id} matches {pattern}"))
    whole = all(one.fetched is not None and not one.fetched.problems for one in found)
    return Exit.SUCCESS if whole and not nowhere else Exit.FAILED


class _CollectProgress:
    """Says every two seconds how much of a host's results is here."""

    def __init__(self) -> None:
        self._told: dict[str, float] = {}

    def __call__(self, host: str, done: int, total: int) -> None:
        now = time.monotonic()
        if now - self._told.setdefault(host, now) >= _PROGRESS_SECONDS:
            self._told[host] = now
            message(f"{host}: {size(done)} of {size(total)} of results fetched")


def _lines(one: HostResults) -> list[str]:
    fetched = one.fetched
    if fetched is None:
        return []
    if fetched.files:
        what = f"{counted(fetched.files, 'file')} ({size(fetched.bytes)}) collected in"
        before = f", {fetched.present:,} fetched before" if fetched.present else ""
        return [printable(f"{one.host}: {what} {fetched.folder}{before}")]
    if fetched.present:
        files = counted(fetched.present, "file")
        return [printable(f"{one.host}: {files} fetched before, in {fetched.folder}")]
    return [] if fetched.absent else [f"{one.host}: its tasks have left no new files there"]


def _problems(one: HostResults) -> list[str]:
    fetched = one.fetched
    if fetched is None:
        return [f"not collected: {one.problem}"]
    return [
        *(f"not collected: {refused}" for refused in fetched.refused[:_MOST_NAMED]),
        *(f"not collected: {problem}" for problem in fetched.problems[:_MOST_NAMED]),
    ]
