"""The metrics screen on thousands of tasks."""

from __future__ import annotations

import time
from pathlib import Path
from unittest.mock import patch

from launcher.run.states import RunPhase
from tests.support.fakes import ScriptedRun
from tests.support.screens import shows, until
from tui import curves
from tui.app import TfmuxApp
from tui.config import Config
from tui.screens import metrics_screen
from tui.screens.metrics_screen import MetricsScreen
from tui.widgets.table import Table

STEP = b"After %d training steps (%d global steps), loss on training batch is %.4f.\n"


async def test_curves_and_rows_are_made_of_what_is_in_sight(tmp_path: Path) -> None:
    """Given 300 tasks, then their band is computed once for the same points, and the rows in sight
    have values; all can be scrolled to. Each second all were computed: with 8,000 the screen stood
    still."""
    run = ScriptedRun(tmp_path, workers=300)
    run.change(state=RunPhase.RUNNING)
    for number in range(300):
        for i in range(3):
            text = STEP % (i, 10 * i, number)
            run.write(f"worker:{number}", text, now=time.time() - 10 + 3 * i)
    computed = 0

    def counted(*args: object) -> curves.Curve:
        nonlocal computed
        computed += 1
        return curves.rates(*args)  # type: ignore[arg-type]

    app = TfmuxApp(run, config=Config())
    with patch.object(metrics_screen, "rates", counted):
        async with app.run_test(size=(120, 40)) as pilot:
            await pilot.press("M")
            await until(pilot, lambda: isinstance(app.screen, MetricsScreen))
            await shows(pilot, "Loss, smoothing 0.6, median and range of 300 tasks")
            await shows(pilot, "Values at ")
            await shows(pilot, "worker:6")
            table = app.screen.query_one(Table)
            computed = 0
            before = table.scroll_offset.y
            await pilot.press("end")
            await until(pilot, lambda: table.scroll_offset.y > before)
            await shows(pilot, "worker:299")
            await shows(pilot, "step")
            assert 7 <= computed < 150
    run.logs.close()
