"""Borders of panes: titles, the focus, and what the lower one shows."""

from __future__ import annotations

import pytest
from rich.style import Style
from textual.app import App, ComposeResult
from textual.geometry import Region
from textual.strip import Strip

from launcher.run.states import RunPhase, TaskState
from tests.tui.conftest import screen_text, shows, until
from tests.tui.fakes import ScriptedRun
from tui.app import TfmuxApp
from tui.config import Config
from tui.curves import sparkline
from tui.widgets.fit import Part
from tui.widgets.log_pane import LogPane
from tui.widgets.pane_frame import FramePen, PaneBorders, Title
from tui.widgets.pane_grid import PaneGrid

STEP = (
    b"After %d training steps (%d global steps), loss on training batch is %.4f."
    b"  (0.010 sec/batch)\n"
)


def pen(frame: PaneBorders, *, focused: bool = False) -> FramePen:
    return FramePen(frame, focused, False, lambda name: Style())


@pytest.mark.parametrize("frame", [PaneBorders(whole=True), PaneBorders(left=True), PaneBorders()])
@pytest.mark.parametrize("focused", [True, False])
def test_borders_have_the_width_of_their_pane(frame: PaneBorders, focused: bool) -> None:
    """Whatever the title holds, wide characters too."""
    parts = (
        Part(0, "worker:1", "name"),
        Part(4, " @host-漢字", "title"),
        Part(2, "  step 12 340", "title"),
    )
    for width in range(20, 200):
        for spark in ("", "▁▂▃"):
            for note in ("", "↓ 214 new", "&漢字 12 lines  2/14"):
                title = Title(parts, spark, 0.5)
                drawn = pen(frame, focused=focused).title(title, note, width)
                assert drawn.cell_length == width and (width < 60 or "worker:1" in drawn.text)
                assert pen(frame).bottom(title, "1 remark hidden", width).cell_length == width


def test_the_focus_is_seen_without_colours() -> None:
    """Heavy lines and a mark."""
    title = Title((Part(0, "ps:0", "name"),), "▁▂▃", 0.5)
    whole, bare = PaneBorders(whole=True), PaneBorders()
    assert pen(whole).title(title, "", 24).text == "╭─ ps:0 ───────────────╮"
    assert pen(whole, focused=True).title(title, "", 24).text == "┏━▸ps:0 ━━━━━━━━━━━━━━━┓"
    assert pen(bare).title(title, "", 24).text == "─ ps:0 ──────────── ▁▂▃ "
    assert pen(bare, focused=True).title(title, "", 24).text == "━▸ps:0 ━━━━━━━━━━━━ ▁▂▃ "
    assert pen(whole).bottom(title, "", 40).text == "╰─ ━━━━━━╌╌╌╌╌╌ 50 % ──────────── ▁▂▃ ─╯"


async def test_nothing_is_drawn_before_there_are_panes() -> None:
    """Textual would draw the name of the class."""

    class Empty(App[None]):
        def compose(self) -> ComposeResult:
            yield PaneGrid()

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
    app = TfmuxApp(run, config=Config())
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: isinstance(app.focused, LogPane))
        for name in ("ps:0", "worker:0"):
            await shows(pilot, f"▸{name}")
            text = "\n".join(screen_text(app))
            assert text.count("━") > 10 and text.count("┓") == (size[0] >= 120)
            heavy = [row for row in screen_text(app) if "━━" in row]
            assert f"▸{name} " in heavy[0] and len(heavy) == 1 + (size[0] >= 120)
            await pilot.press("tab")


async def test_small_panes_keep_their_lines(run: ScriptedRun) -> None:
    """At 80×24 a pane has a row for its title and all others for its log."""
    run.write("ps:0", b"".join(b"line %d\n" % i for i in range(100)))
    app = TfmuxApp(run, config=Config())
    async with app.run_test(size=(80, 24)) as pilot:
        await shows(pilot, "line 99")
        shown = [row for row in screen_text(app) if row.startswith("line ")]
        pane = app.focused
        assert isinstance(pane, LogPane) and len(shown) == pane.size.height - 1


@pytest.mark.large
async def test_progress_and_loss_stand_in_the_lower_border(run: ScriptedRun) -> None:
    """The bar only where the number of steps is known; trouble colours the border."""
    app = TfmuxApp(run, config=Config())
    async with app.run_test(size=(120, 40)) as pilot:
        run.change(state=RunPhase.RUNNING)
        for i in range(30):
            run.write("worker:1", STEP % (i, i * 10, 2.0 - i / 30))
        await shows(pilot, "▄▃▂▂▁ ─╯")
        assert not any("29 %" in row for row in screen_text(app))
        run.change(total_steps=1000)
        await shows(pilot, "╰─ ━━━╌╌╌╌╌╌╌╌╌ 29 % ─")
        pane = app.screen.query(LogPane)[2]
        calm = pane.render_lines(pane.size.region)[1]
        run.task("worker:1", state=TaskState.FAILED, exit_code=1)
        await shows(pilot, "worker:1 @tf3  failed 1")
        assert pane.render_lines(pane.size.region)[1] != calm


async def test_unchanged_lines_are_not_drawn_again(
    run: ScriptedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step in the title costs the two rows of the border, not the pane."""
    run.change(state=RunPhase.RUNNING, total_steps=1000)
    run.task("worker:1", state=TaskState.RUNNING)
    app = TfmuxApp(run, config=Config())
    async with app.run_test(size=(120, 40)) as pilot:
        await shows(pilot, "worker:1 @tf3  running")
        pane = app.screen.query(LogPane)[2]
        drawn: list[Region] = []
        refresh = LogPane.refresh

        def spy(self: LogPane, *regions: Region, **kinds: bool) -> LogPane:
            if self is pane:
                drawn.extend(regions or [self.size.region])
            return refresh(self, *regions, **kinds)

        await pilot.pause(1.2)
        monkeypatch.setattr(LogPane, "refresh", spy)
        run.task("worker:1", step=120)
        await shows(pilot, "step 120")
        await shows(pilot, "12 %")
        assert {(region.y, region.height) for region in drawn} == {(0, 1), (18, 1)}


async def test_a_pane_is_not_drawn_because_another_one_is(
    run: ScriptedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Textual paints all panes when one has changed: the lines of the others are kept."""
    run.change(state=RunPhase.RUNNING)
    app = TfmuxApp(run, config=Config())
    async with app.run_test(size=(120, 40)) as pilot:
        await shows(pilot, "▸ps:0")
        drawn: set[str] = set()
        painted: set[str] = set()
        rows, lines = LogPane._rows_below_title, LogPane.render_lines

        def spy(self: LogPane) -> list[Strip]:
            drawn.add(f"{self.view and self.view.task}")
            return rows(self)

        def spy_on_all(self: LogPane, crop: Region) -> list[Strip]:
            painted.add(f"{self.view and self.view.task}")
            return lines(self, crop)

        monkeypatch.setattr(LogPane, "_rows_below_title", spy)
        monkeypatch.setattr(LogPane, "render_lines", spy_on_all)
        run.write("worker:1", b"a line of worker 1\n")
        await shows(pilot, "a line of worker 1")
        assert drawn == {"worker:1"} and painted >= {"ps:0", "worker:0", "worker:1"}
