"""Printing the end of a run: the text of `tui.outcome` for a terminal, a pipe or a log file."""

from __future__ import annotations

import io
import sys
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.text import Text

from launcher.printable import printable
from launcher.run.snapshot import Receipt, Snapshot
from launcher.run.states import Outcome
from tui.format import StatusColor
from tui.outcome import (
    Colours,
    failure_text,
    headline,
    receipt_body,
    receipt_text,
    remarks,
    tasks_text,
)

TERMINAL: Colours = {
    StatusColor.WAITING: "cyan",
    StatusColor.BUSY: "yellow",
    StatusColor.GOOD: "green",
    StatusColor.OFF: "dim",
    StatusColor.BAD: "red",
}
"""Colours of the terminal's own palette, for text that is printed outside of the app."""
TAIL = 50
"""Most lines of the first failure that are printed."""


def report(snapshot: Snapshot, folder: Path, *, detached: bool = False) -> str:
    """Text for stderr after a run, coloured if stderr is a terminal; `detached`: it goes on."""
    if detached:
        snapshot = replace(snapshot, outcome=Outcome.DETACHED)
    text = headline(snapshot, TERMINAL)
    text.append_text(tasks_text(snapshot))
    text.append_text(failure_text(snapshot, TERMINAL, TAIL))
    if snapshot.receipt is not None and snapshot.receipt.hosts:
        text.append_text(receipt_text(snapshot, TERMINAL))
    text.append_text(remarks(snapshot, TERMINAL))
    text.append(f"logs: {printable(str(folder))}")
    return rendered(text, styled=sys.stderr.isatty())


def receipt_lines(receipt: Receipt, run_id: str) -> list[str]:
    """The receipt as plain lines."""
    return receipt_body(receipt, run_id, TERMINAL).plain.rstrip("\n").split("\n")


def rendered(text: Text, *, styled: bool) -> str:
    """A text as a string, with escape sequences for its colours if `styled`.

    Not printed by Rich itself: on a broken pipe its console raises `SystemExit(1)`, which would
    replace the exit code of the run.
    """
    if not styled:
        return text.plain
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, color_system="standard", highlight=False)
    console.print(text, soft_wrap=True, end="")
    return file.getvalue()
