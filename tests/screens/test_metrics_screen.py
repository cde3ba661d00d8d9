"""What the metrics screen says of a run that has no figures, or not yet."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from launcher.run.states import Outcome, RunPhase
from tests.support.fakes import ScriptedRun
from tests.support.screens import screen_text, shows
from tui.app import TfmuxApp
from tui.config import Config


@pytest.mark.parametrize("size", [(80, 24), (200, 50)], ids="{0[0]}x{0[1]}".format)
async def test_a_run_without_figures_says_so_at_its_end(
    tmp_path: Path, size: tuple[int, int]
) -> None:
    """It said "nothing to draw yet" for ever. Steps without a loss are curves without losses."""
    run = ScriptedRun(tmp_path, workers=1)
    run.change(state=RunPhase.RUNNING)
    app = TfmuxApp(run, config=Config())
    async with app.run_test(size=size) as pilot:
        await pilot.press("M")
        await shows(pilot, "no loss yet")
        await shows(pilot, "[metrics]")
        assert "printed" not in "".join(screen_text(app))
        now = time.time()
        for step in range(3):
            line = b"Done: 8 training steps (%d global steps) in 1 s, 8.0 steps/s\n" % (9 + step)
            run.write("worker:0", line, now=now - 4 + step)
        run.change(state=RunPhase.ENDED, outcome=Outcome.SUCCESS, ended=now)
        await shows(pilot, "no task printed a loss")
        await shows(pilot, "┤")
        text = " ".join(screen_text(app))
        assert "printed two" not in text and "yet" not in text
    run.logs.close()
