"""Sizes of panes: chosen by keys and mouse, remembered for the cluster."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from launcher.paths import panes_home
from tests.patience import PATIENCE
from tests.tui.conftest import until
from tests.tui.fakes import ScriptedRun
from tui.app import TfmuxApp
from tui.config import Config
from tui.pane_sizes import PaneSizes
from tui.screens.run.screen import RunScreen
from tui.widgets.log_pane import LogPane
from tui.widgets.pane_grid import PaneGrid

NAME = "mnist-async"


def widths(app: TfmuxApp) -> list[int]:
    return [pane.size.width for pane in app.screen.query_one(PaneGrid).panes]


def heights(app: TfmuxApp) -> list[int]:
    return [pane.size.height for pane in app.screen.query_one(PaneGrid).panes]


def recorded() -> dict[str, list[int]]:
    path = panes_home() / f"{NAME}.json"
    read: dict[str, list[int]] = json.loads(path.read_text()) if path.exists() else {}
    return read


async def test_keys_change_the_focused_pane(run: ScriptedRun) -> None:
    """`>` makes it larger in both directions, `<` smaller, `=` gives all their usual sizes; the
    next screen of the cluster has what was chosen."""
    app = TfmuxApp(run, config=Config())
    async with app.run_test(size=(200, 50)) as pilot:
        await until(pilot, lambda: isinstance(app.focused, LogPane) and widths(app) == [100] * 4)
        await pilot.press("2", "greater_than_sign")
        await until(pilot, lambda: widths(app) == [90, 110, 90, 110])
        assert heights(app)[0] > heights(app)[2]
        await pilot.press("less_than_sign", "less_than_sign")
        await until(pilot, lambda: widths(app) == [110, 90, 110, 90])
        assert heights(app)[0] < heights(app)[2]
        await until(pilot, lambda: recorded().get("columns 2") == [110, 90])
    again = TfmuxApp(run, config=Config())
    async with again.run_test(size=(100, 50)) as pilot:
        await until(pilot, lambda: widths(again) == [55, 45, 55, 45])
        await pilot.press("equals_sign")
        await until(pilot, lambda: widths(again) == [50] * 4)
        await until(pilot, lambda: recorded() == {})


async def test_a_border_is_dragged(run: ScriptedRun) -> None:
    """By the mouse, between columns and, by the title of a lower pane, between rows; a selection of
    lines does not begin there, and a double click on that title still zooms."""
    app = TfmuxApp(run, config=Config())
    async with app.run_test(size=(200, 50)) as pilot:
        await until(pilot, lambda: isinstance(app.focused, LogPane) and widths(app) == [100] * 4)
        grid = app.screen.query_one(PaneGrid)
        top = grid.region.y
        await pilot.mouse_down(offset=(100, top + 8))
        await pilot.hover(offset=(120, top + 9))
        await until(pilot, lambda: widths(app) == [120, 80, 120, 80])
        assert recorded() == {}
        await pilot.hover(offset=(150, top + 9))
        await pilot.mouse_up(offset=(150, top + 9))
        await until(pilot, lambda: widths(app) == [150, 50, 150, 50])
        await until(pilot, lambda: recorded() == {"columns 2": [150, 50]})
        assert all(pane.view and pane.view.selection is None for pane in grid.panes)
        middle = grid.panes[2].region.y
        await pilot.mouse_down(offset=(30, middle))
        await pilot.hover(offset=(30, middle - 6))
        await pilot.mouse_up(offset=(30, middle - 6))
        await until(pilot, lambda: grid.panes[2].region.y == middle - 6)
        await pilot.click(offset=(30, middle - 6), times=2)
        await until(pilot, lambda: len(grid.panes) == 1)


async def test_nothing_to_divide(run: ScriptedRun) -> None:
    """With one pane in sight the keys do nothing."""
    app = TfmuxApp(run, config=Config())
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: isinstance(app.focused, LogPane))
        await pilot.press("z", "greater_than_sign", "less_than_sign", "equals_sign")
        assert isinstance(app.screen, RunScreen)
        assert app.screen.pane_layout.sizes == {}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nothing",
        "[]",
        '{"columns 2": 7}',
        '{"columns 2": [1]}',
        '{"columns 2": [0, 1]}',
        '{"columns 2": [1, 1e9]}',
        '{"columns 2": [1, 100000000]}',
        '{"columns 2": ["1", "2"]}',
        '{"columns 2": [NaN, 1]}',
        '{"../x": [1, 2]}',
        '{"columns 2": [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]}',
        pytest.param("[" * 10_000, id="deep"),
        pytest.param('{"columns 2": [1, 2]}' + " " * 20_000 + "x", id="long"),
    ],
)
def test_a_record_of_something_else_counts_for_nothing(text: str) -> None:
    """What did not come from this program, or was damaged."""
    panes_home().mkdir(parents=True)
    (panes_home() / f"{NAME}.json").write_text(text)
    assert PaneSizes(NAME, pytest.fail).load() == {}


def test_a_record_is_no_path() -> None:
    """A run read from disk may have any name."""
    sizes = PaneSizes("../../x", pytest.fail)
    sizes.save({"columns 2": (1, 2)})
    assert sizes.load() == {} and not panes_home().exists()


def test_a_record_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    """Once, in a sentence, and nothing waits for it."""
    panes_home().parent.mkdir(parents=True, exist_ok=True)
    panes_home().write_text("a file where the folder should be")
    told: list[str] = []
    heard = threading.Event()

    def hear(message: str) -> None:
        told.append(message)
        heard.set()

    sizes = PaneSizes(NAME, hear)
    sizes.save({"columns 2": (1, 2)})
    assert heard.wait(PATIENCE)
    sizes.close()
    assert told[0].startswith("the sizes of the panes are not remembered: ")
