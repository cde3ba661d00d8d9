"""What the screens share that tell of the end of a run: its last lines, and a report to copy."""

from __future__ import annotations

import asyncio
from typing import Any

from textual.app import App

from launcher.history.control import RunControl
from launcher.quantities import counted
from tui.clipboard import copy

TALL = 36
"""Rows of a terminal from which on the end of a run is told in full."""
LOW_LINES = 3
"""Last lines of a failure on a low terminal."""
REPORT_ABOUT = "Cause, last lines, command, versions and hosts for a colleague; no environment"


async def copy_report(app: App[Any], control: RunControl) -> None:
    """Copies the report, and says where it went."""
    from tui.failure_report import failure_report

    mask = control.mask_values if control.living else None
    about = (control.snapshot(), control.logs)
    text = await asyncio.to_thread(failure_report, *about, mask_values=mask)
    where = await copy(app, text)
    app.notify(f"report of {counted(text.count(chr(10)), 'line')} {where}", timeout=6)
