"""Borders of panes: titles, the focus, and what the lower one shows."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from textual._styles_cache import StylesCache
from textual.app import App, ComposeResult
from textual.geometry import Region
from textual.pilot import Pilot
from textual.strip import Strip

from launcher.run.states import RunPhase, TaskState
from tests.support.fakes import ScriptedRun
from tests.support.screens import run_screen, screen_text, showing, shows, until
from tui.app import TfmuxApp
from tui.curves import sparkline
from tui.memory import Memory
from tui.widgets.pane import Pane
from tui.widgets.pane_area import PaneGrid

STEP = (
    b"After %d training steps (%d global steps), loss on training batch is %.4f."
    b"  (0.010 sec/batch)\n"
)

HOST = "host-漢字漢字漢字漢字[red]"


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 50)])
async def test_borders_have_the_width_of_their_pane(tmp_path: Path, size: tuple[int, int]) -> None:
    """Whatever the title holds, wide characters and what looks like markup too."""
    run = ScriptedRun(tmp_path, workers=3, hosts=4)
    for task in run.snapshot().tasks:
        run.task(str(task.id), host=HOST, state=TaskState.RUNNING, step=12_340)
        run.write(str(task.id), b"x" * 500 + b"\n")
    async with showing(run, size) as (app, pilot):
        await shows(pilot, "x" * 30)
        if size[0] > 80:
            await shows(pilot, HOST)
        panes = list(app.screen.query(Pane))
        await until(pilot, lambda: all(_task(pane) in _upper(pane).text for pane in panes))
        assert all(cell_len(row) == size[0] for row in screen_text(app))
        assert all(_upper(pane).cell_length == pane.region.width for pane in panes)
        assert not any("…" in _upper(pane).text for pane in panes)  # Textual cuts what is too wide
    run.logs.close()


def _task(pane: Pane) -> str:
    assert pane.view
    return str(pane.view.task)


def _upper(pane: Pane) -> Strip:
    """The upper border."""
    return pane.render_lines(Region(0, 0, pane.region.width, 1))[0]


async def test_nothing_is_drawn_before_there_are_panes() -> None:
    """Textual would draw the name of the class."""

    class Empty(App[None]):
        def compose(self) -> ComposeResult:
            yield PaneGrid(Memory())

    app = Empty()
    async with app.run_test(size=(80, 24)):
        assert app.screen.query_one(PaneGrid).size.height
        assert not "".join(screen_text(app)).strip()


def test_a_sparkline_needs_a_few_values() -> None:
    """And has a cell for each as long as there are few."""
    assert sparkline([3.0, 2.0, 1.0]) == ""
    assert sparkline([4.0, 3.0, 2.0, 1.0]) == "█▆▃▁"
    assert sparkline([float(i) for i in range(100)], 8) == "▁▂▃▄▅▆▇█"
    assert sparkline([1.0] * 5 + [float("inf")]) == "▁▁▁▁▁"
    assert sparkline([1.0] * 13 + [1.7e308, -1.7e308, 1.7e308]) == "▁" * 12
    assert sparkline([9e299] * 14 + [-9e299] * 14)[::11] == "█▁"


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 50)])
async def test_the_focused_pane_is_plain_to_see(
    run: ScriptedRun, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without colours too, it alone has heavy lines; they move with the focus."""
    monkeypatch.setenv("NO_COLOR", "1")
    async with showing(run, size) as (app, pilot):
        await until(pilot, lambda: isinstance(app.focused, Pane))
        for name in ("worker:0", "worker:1"):
            await shows(pilot, f"▸{name}")
            text = "\n".join(screen_text(app))
            assert text.count("━") > 10 and text.count("┓") == (size[0] >= 120)
            heavy = [row for row in screen_text(app) if "━━" in row]
            assert f"▸{name} " in heavy[0] and len(heavy) == 1 + (size[0] >= 120)
            await pilot.press("tab")


async def test_small_panes_keep_their_lines(run: ScriptedRun) -> None:
    """At 80×24 a pane has a row for its title and all others for its log."""
    run.write("worker:0", b"".join(b"line %d\n" % i for i in range(100)))
    async with showing(run, (80, 24)) as (app, pilot):
        await shows(pilot, "line 99")
        shown = [row for row in screen_text(app) if row.startswith("line ")]
        pane = app.focused
        assert isinstance(pane, Pane) and len(shown) == pane.outer_size.height - 1


async def test_progress_and_loss_stand_in_the_lower_border(run: ScriptedRun) -> None:
    """The bar only where the number of steps is known; trouble colours the border."""
    async with showing(run, (120, 40)) as (app, pilot):
        run.change(state=RunPhase.RUNNING)
        for i in range(30):
            run.write("worker:1", STEP % (i, i * 10, 2.0 - i / 30))
        await shows(pilot, "▄▃▂▂▁ ─")
        assert not any("29 %" in row for row in screen_text(app))
        run.change(total_steps=1000)
        await shows(pilot, "╰─ ███▋░░░░░░░░  29 %  ")
        pane = app.screen.query(Pane)[2]
        calm = pane.render_lines(pane.region.reset_offset)[1]
        run.task("worker:1", state=TaskState.FAILED, exit_code=1)
        await shows(pilot, "worker:1 @tf3  exit 1")
        assert pane.render_lines(pane.region.reset_offset)[1] != calm


async def second_tick(app: TfmuxApp, pilot: Pilot[int]) -> None:
    """Waits until what the first frames have led to has been drawn."""
    screen = run_screen(app)
    for _ in range(2):
        last = screen._second
        await until(pilot, lambda last=last: screen._second != last)  # type: ignore[misc]


def drawn_rows(pane: Pane, monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """The rows of a pane that are drawn from now on."""
    drawn: set[int] = set()
    render = StylesCache.render_line

    def spy(cache: StylesCache, styles: Any, y: int, *rest: Any) -> Strip:
        if cache is pane._styles_cache:
            drawn.add(y)
        return render(cache, styles, y, *rest)

    monkeypatch.setattr(StylesCache, "render_line", spy)
    return drawn


async def test_unchanged_lines_are_not_drawn_again(
    run: ScriptedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step in the title costs the two rows of the border, not the pane."""
    run.change(state=RunPhase.RUNNING, total_steps=1000)
    run.task("worker:1", state=TaskState.RUNNING)
    async with showing(run, (120, 40)) as (app, pilot):
        await shows(pilot, "worker:1 @tf3  running")
        pane = app.screen.query(Pane)[2]
        await second_tick(app, pilot)
        drawn = drawn_rows(pane, monkeypatch)
        run.task("worker:1", step=120)
        await shows(pilot, "step 120")
        await shows(pilot, "12 %")
        assert drawn == {0, pane.outer_size.height - 1}


async def test_an_empty_pane_draws_the_text_that_tells_the_time_and_no_more(
    run: ScriptedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a task without output, when the text says how long it runs, then its row is drawn,
    perhaps the border, and not the pane: a screen of quiet tasks costs nothing."""
    run.change(state=RunPhase.RUNNING)
    run.task("worker:1", state=TaskState.RUNNING)
    async with showing(run, (120, 40)) as (app, pilot):
        await shows(pilot, "running: no output yet")
        pane = app.screen.query(Pane)[2]
        await second_tick(app, pilot)
        drawn = drawn_rows(pane, monkeypatch)
        run.task("worker:1", started=time.time() - 1000)
        await shows(pilot, " min: no output yet")
        assert drawn - {0, pane.outer_size.height - 1} == {1}


async def test_a_pane_is_not_drawn_because_another_one_is(
    run: ScriptedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Textual paints all panes when one has changed: the lines of the others are kept."""
    run.change(state=RunPhase.RUNNING)
    async with showing(run, (120, 40)) as (app, pilot):
        await shows(pilot, "▸worker:0")
        await second_tick(app, pilot)
        drawn: set[str] = set()
        painted: set[str] = set()
        make, lines = Pane._make_page, Pane.render_lines

        def spy(self: Pane) -> object:
            drawn.add(f"{self.view and self.view.task}")
            return make(self)

        def spy_on_all(self: Pane, crop: Region) -> list[Strip]:
            painted.add(f"{self.view and self.view.task}")
            return lines(self, crop)

        monkeypatch.setattr(Pane, "_make_page", spy)
        monkeypatch.setattr(Pane, "render_lines", spy_on_all)
        run.write("worker:1", b"a line of worker 1\n")
        await shows(pilot, "a line of worker 1")
        assert drawn == {"worker:1"} and painted >= {"ps:0", "worker:0", "worker:1"}
