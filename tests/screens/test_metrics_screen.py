"""What the metrics screen says of a run that has no figures, or not yet."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from launcher.run.states import Outcome, RunPhase
from tests.support.fakes import ScriptedRun
from tests.support.screens import screen_text, showing, shows


@pytest.mark.parametrize("size", [(80, 24), (200, 50)], ids="{0[0]}x{0[1]}".format)
async def test_a_run_without_figures_says_so_at_its_end(
    tmp_path: Path, size: tuple[int, int]
) -> None:
    """The screen said "nothing to draw yet" for ever. Steps without a loss are curves without
    losses."""
    run = ScriptedRun(tmp_path, workers=1)
    run.change(state=RunPhase.RUNNING)
    async with showing(run, size) as (app, pilot):
        await pilot.press("M")
        await shows(pilot, "no task has printed a loss")
        await shows(pilot, "[metrics]")
        now = time.time()
        for step in range(3):
            line = b"Done: 8 training steps (%d global steps) in 1 s, 8.0 steps/s\n" % (9 + step)
            run.write("worker:0", line, now=now - 4 + step)
        run.change(state=RunPhase.ENDED, outcome=Outcome.SUCCESS, ended=now)
        await shows(pilot, "no task printed a loss")
        await shows(pilot, "┤")
        text = " ".join(screen_text(app))
        assert "two steps" not in text and "has printed" not in text
    run.logs.close()


async def test_without_colours_every_name_is_as_readable_as_its_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names had the greys of their curves' colours: the third was nearly black on black."""
    monkeypatch.setenv("NO_COLOR", "1")
    run = ScriptedRun(tmp_path, ps=0, workers=3)
    run.change(state=RunPhase.RUNNING)
    for index in range(3):
        run.write(f"worker:{index}", b"step 20 loss 0.31\n")
    async with showing(run, (80, 24)) as (app, pilot):
        await pilot.press("M")
        await shows(pilot, "+ worker:2")
        rows = {
            row: line
            for row, line in enumerate(screen_text(app))
            if "worker" in line and "0.310" in line
        }
        assert len(rows) == 3
        for row, line in rows.items():
            at = line.index("worker"), line.index("0.310")
            name, figure = (app.screen.get_style_at(x, row) for x in at)
            assert (name.color, name.bgcolor) == (figure.color, figure.bgcolor)
    run.logs.close()


async def test_the_kill_key_is_named_by_what_it_does(tmp_path: Path) -> None:
    """After the end it shows the receipt, which the footer of the panes alone said; and nobody is
    asked for stacks."""
    run = ScriptedRun(tmp_path, workers=1)
    run.change(state=RunPhase.RUNNING)
    async with showing(run, (80, 24)) as (_, pilot):
        for key in ("M", "H", "b"):
            await pilot.press(key)
            await shows(pilot, "F9 kill all  Esc back")
            await pilot.press("escape")
        run.change(state=RunPhase.ENDED, outcome=Outcome.SUCCESS, ended=time.time())
        await shows(pilot, "F9 receipt")
        for key in ("M", "H"):
            await pilot.press(key)
            await shows(pilot, "F9 receipt  Esc back")
            await pilot.press("escape")
        await pilot.press("b")
    assert run.asked.count("stacks") == 1
    run.logs.close()
