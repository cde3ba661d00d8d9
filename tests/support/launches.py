"""Counts what the tests launch: one line for each process, its module and its test, in a file that
all workers and their servers of forked processes append to."""

from __future__ import annotations

import os
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.support import forked

KINDS = {
    "tui.main": "commands",
    "launcher.process.entry": "launcher processes",
    "launcher.reading.reader": "readers",
    "launcher.agent": "agents",
    "trainer": "programs of the trainer",
}
"""What counts by its own name; the first two are the launches."""


def begin(file: Path | None) -> Path:
    """Count this process's launches in a file, a new one where there is none."""
    if file is None:
        number, name = tempfile.mkstemp(prefix="launches-")
        os.close(number)
        file = Path(name)
    forked.counter = os.open(file, os.O_WRONLY | os.O_APPEND)
    return file


def note(module: str) -> None:
    """Count a process that is not forked."""
    forked.count(forked.counter, [sys.executable, "-m", module], os.environ)


def summary(file: Path, *, files: bool) -> list[str]:
    """Say what was launched, if anything was; by test files, too."""
    rows = [line.split("\t") for line in file.read_text().splitlines()]
    if not rows:
        return []
    return [_sentence([row[0] for row in rows]), *(_by_file(rows) if files else ())]


def _sentence(modules: Sequence[str]) -> str:
    counts = Counter(KINDS.get(module, "others") for module in modules)
    launches = sum(counts.pop(kind, 0) for kind in ("commands", "launcher processes"))
    beside = ", ".join(f"{count} {kind}" for kind, count in counts.most_common())
    return f"{launches} launches of commands and launcher processes; beside them {beside or 'none'}"


def _by_file(rows: Sequence[Sequence[str]]) -> list[str]:
    counts = Counter(row[1].partition("::")[0] for row in rows if row[0] in [*KINDS][:2])
    return [f"{count:6} {file or '?'}" for file, count in counts.most_common()]
