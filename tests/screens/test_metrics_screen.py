"""What the metrics screen says of a run that has no figures, or not yet."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from launcher.ids import TaskId
from launcher.run.snapshot import Failure
from launcher.run.states import Outcome, RunPhase
from tests.support.fakes import ScriptedRun
from tests.support.screens import screen_text, showing, shows, until, visible
from tui.curves import Band, Curve, band
from tui.screens import metrics_screen
from tui.widgets.plot import Plot


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


def trained(run: ScriptedRun, workers: int, lines: int = 5) -> None:
    """Metric lines of all workers, the last one a second ago; worker n lags by n steps."""
    run.change(state=RunPhase.RUNNING, started=time.time() - 60)
    for number in range(workers):
        for i in range(lines):
            line = b"step %d loss %.3f\n" % (100 * i + 100 - number, 2 - 0.3 * i + number / 100)
            run.write(f"worker:{number}", line, now=time.time() - 2 * (lines - i) + 1)


async def test_many_tasks_are_a_band_and_the_chosen_ones(tmp_path: Path) -> None:
    """Twelve of 64 curves were drawn, those of the first twelve tasks. Given 64 tasks, then the
    median and the range of all are drawn, and the task under the cursor when a person asks."""
    run = ScriptedRun(tmp_path, ps=0, workers=64)
    trained(run, 64)
    async with showing(run, (80, 24)) as (app, pilot):
        await pilot.press("M")
        await shows(pilot, "Loss, smoothing 0.6, median and range of 64 tasks")
        await shows(pilot, "░")
        await shows(pilot, " median")
        assert not visible(app, "●")
        await pilot.press("j", "o")
        await shows(pilot, "median and range of 64 tasks, 1 drawn")
        await shows(pilot, "● worker:1")
        await pilot.press("k", "enter")
        await shows(pilot, "64 tasks, 2 drawn")
        await pilot.press("o", "j", "o")
        await until(pilot, lambda: not visible(app, "drawn─"))
    run.logs.close()


async def test_few_tasks_can_be_taken_out(tmp_path: Path) -> None:
    """The curve of a task that hides the others goes, and comes back."""
    run = ScriptedRun(tmp_path, ps=0, workers=3)
    trained(run, 3)
    async with showing(run, (80, 24)) as (app, pilot):
        await pilot.press("M")
        await shows(pilot, "Loss, smoothing 0.6───")
        await pilot.press("o")
        await shows(pilot, "Loss, smoothing 0.6, 2 of 3 tasks")
        await shows(pilot, "○ worker:0")
        await pilot.press("o")
        await until(pilot, lambda: not visible(app, "○"))
    run.logs.close()


@pytest.mark.parametrize("workers", [3, 20])
async def test_values_over_steps_and_where_it_failed(tmp_path: Path, workers: int) -> None:
    """`t` puts global steps below the curves in place of time, and values are read at a step; the
    scale has a mark where the first task failed."""
    run = ScriptedRun(tmp_path, ps=0, workers=workers)
    trained(run, workers)
    async with showing(run, (80, 24)) as (app, pilot):
        await pilot.press("M")
        await shows(pilot, "Values at ")
        assert not visible(app, "Values at step")
        assert not visible(app, "✗")
        await pilot.press("t")
        await shows(pilot, "Values at step 500")
        await shows(pilot, "400")
        await pilot.press(*["left"] * 25)
        await until(pilot, lambda: any(
            "worker:0" in row and "200" in row.split() for row in screen_text(app)
        ))  # fmt: skip
        failed = Failure(TaskId("worker", 1), "localhost", "exit 1", time.time() - 5)
        run.change(first_failure=failed)
        await until(pilot, lambda: sum("└" in row and "✗" in row for row in screen_text(app)) == 2)
        await pilot.press("t")
        await until(pilot, lambda: not visible(app, "Values at step"))
        await until(pilot, lambda: sum("└" in row and "✗" in row for row in screen_text(app)) == 2)
    run.logs.close()


async def test_curves_that_stand_still_are_not_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given 64 tasks that print nothing more, then no band is made and nothing is drawn, however
    often the screen looks."""
    run = ScriptedRun(tmp_path, ps=0, workers=64)
    trained(run, 64)
    made = []

    def counted(of: Sequence[Curve], places: int) -> Band:
        made.append(places)
        return band(of, places)

    monkeypatch.setattr(metrics_screen, "band", counted)
    async with showing(run, (80, 24)) as (app, pilot):
        await pilot.press("M")
        await shows(pilot, "░")
        await shows(pilot, " median")
        screen = app.screen
        assert isinstance(screen, metrics_screen.MetricsScreen)
        drawn: list[int] = []
        before = len(made)
        plot = screen.query_one("#loss", Plot)
        monkeypatch.setattr(plot, "refresh", lambda *_, **__: drawn.append(1))
        for _ in range(5):
            screen._draw()
        assert len(made) == before and not drawn
        run.write("worker:5", b"step 700 loss 0.1\n")
        screen._draw()
        assert len(made) == before + 2 and drawn
    run.logs.close()
