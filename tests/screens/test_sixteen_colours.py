"""Terminals of sixteen colours, where yellow is told from red, and such without any."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rich.color import Color, ColorSystem
from rich.style import Style

from launcher.run.states import RunPhase, TaskState
from tests.support.fakes import ScriptedRun
from tests.support.screens import screen_text, showing, shows, until
from tui.app import TfmuxApp
from tui.config import Config
from tui.format import StatusColor
from tui.widgets.colours import (
    TEXT_CONTRAST,
    readable_style,
    status_colours,
    theme_colour,
)


@pytest.fixture(autouse=True)
def sixteen_colours(many_colours: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal that says no more of itself than that it is one."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("COLORTERM")


def shown(style: str, behind: str) -> int | None:
    """The one of the sixteen colours that the terminal gets for a text."""
    style_here = Style.parse(f"{style} on {behind}")
    color = readable_style(style_here, TEXT_CONTRAST, sixteen=True).color
    return None if color is None else color.number


@pytest.mark.parametrize(
    ("theme", "good", "bad"),
    [("textual-dark", (2, 10), (1, 9)), ("textual-light", (0,), (1, 9))],
    ids=["dark", "light"],
)
async def test_statuses_are_told_apart(
    theme: str, good: tuple[int, ...], bad: tuple[int, ...]
) -> None:
    """What is busy is not in the red of what has failed, and what is good is in neither. On white
    no green is readable: what is good is black there."""
    app = TfmuxApp(config=Config(theme=theme))
    async with app.run_test():
        behind = theme_colour(app, "background")
        status = {name: shown(style, behind) for name, style in status_colours(app).items()}
        accent = shown(theme_colour(app, "accent-text"), behind)
    apart = (StatusColor.BUSY, StatusColor.GOOD, StatusColor.BAD)
    assert len({*(status[name] for name in apart), accent}) == 4, status
    assert status[StatusColor.BAD] in bad and status[StatusColor.GOOD] in good


async def test_yellow_lines_of_a_log_stay_yellow(run: ScriptedRun) -> None:
    """Yellow lines are warnings, and red ones are errors; the yellow that is readable is taken."""
    run.write("ps:0", b"\x1b[33myellow-line\x1b[0m\n")
    async with showing(run, (120, 40)) as (app, pilot):
        await until(pilot, lambda: any("yellow-line" in row for row in screen_text(app)))
        strips = app.screen._compositor.render_strips()
        drawn = [strip.render(app.console) for strip in strips if "yellow-line" in strip.text]
    assert any("\x1b[93;40myellow-line" in row for row in drawn), drawn


def without_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal of many colours, whose user wants none."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLORTERM", "truecolor")
    monkeypatch.setenv("NO_COLOR", "1")


def style_of(app: TfmuxApp, text: str) -> Style:
    """The style of the first text of this kind on the screen, as the terminal gets it."""
    for strip in app.screen._compositor.render_strips():
        for piece, style, _ in strip:
            if text in piece and style is not None:
                return style
    raise AssertionError("\n".join(screen_text(app)))


def brightness(style: Style) -> int:
    """How far a text is from what is behind it, from 0 to 255."""
    assert style.color is not None and style.bgcolor is not None
    pair = (style.color.get_truecolor().green, style.bgcolor.get_truecolor().green)
    return abs(pair[0] - pair[1])


@pytest.mark.parametrize("theme", ["textual-dark", "textual-light"])
async def test_without_colours_failures_stand_out(
    run: ScriptedRun, monkeypatch: pytest.MonkeyPatch, theme: str
) -> None:
    """Given NO_COLOR, then the state of a failed task, and a red line of its log, are no dimmer
    than the text beside them; the state is bold as well."""
    without_colours(monkeypatch)
    run.change(state=RunPhase.RUNNING)
    run.all_tasks(state=TaskState.RUNNING, attempt=1)
    run.write("worker:1", b"plain\n\x1b[31mValueError: bad\x1b[0m\n")
    run.task("worker:1", state=TaskState.FAILED, exit_code=1)
    app = TfmuxApp(run, config=Config(theme=theme))
    async with app.run_test(size=(80, 24)) as pilot:
        await shows(pilot, "ValueError: bad")
        await shows(pilot, "exit 1")
        plain = brightness(style_of(app, "plain"))
        failed = style_of(app, "exit 1")
        assert failed.bold and brightness(failed) >= plain
        assert brightness(style_of(app, "ValueError")) >= plain


@pytest.mark.parametrize("theme", ["textual-dark", "textual-light"])
@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_header_and_footer_are_of_one_piece(
    run: ScriptedRun, theme: str, size: tuple[int, int]
) -> None:
    """Given sixteen colours, then the blanks of header and footer have the background of their
    words."""
    app = TfmuxApp(run, config=Config(theme=theme))
    async with app.run_test(size=size) as pilot:
        await shows(pilot, "F9 kill all")
        strips = app.screen._compositor.render_strips()
        for strip in (strips[0], strips[-1]):
            behind = {
                style.bgcolor.downgrade(ColorSystem.STANDARD).number
                for _, style, _ in strip
                if style is not None and style.bgcolor is not None
            }
            assert len(behind) == 1, (strip.text, behind)


@pytest.mark.parametrize("colourless", [False, True], ids=["sixteen", "none"])
async def test_the_row_of_the_cursor_is_of_one_piece(
    run: ScriptedRun, monkeypatch: pytest.MonkeyPatch, colourless: bool
) -> None:
    """Given few colours, when the cursor is on a row of the hosts, then all of the row has the same
    background, and each of its words and bars can be read on it."""
    if colourless:
        without_colours(monkeypatch)
    first, *others = run.snapshot().hosts
    loaded = replace(first, cpu=1.0, memory_used=1 << 30, memory_total=4 << 30)
    run.change(state=RunPhase.RUNNING, hosts=(loaded, *others))
    run.all_tasks(state=TaskState.FAILED, attempt=1, exit_code=1)
    async with showing(run, (120, 40)) as (app, pilot):
        await pilot.press("H")
        await shows(pilot, "100 %")
        await until(pilot, lambda: bool(cursor_row(app)) and not weak_parts(app))


def weak_parts(app: TfmuxApp) -> list[str]:
    """Parts of the row of the cursor that have another background than its first one, or cannot be
    told from it."""
    first, *_ = (behind for _, _, behind in cursor_row(app))
    return [
        text
        for text, front, behind in cursor_row(app)
        if behind != first or (text.strip() and front == behind)
    ]


def cursor_row(app: TfmuxApp) -> list[tuple[str, Color | None, Color | None]]:
    """The parts of the row of `tf1` without the frame, with their colours and what is behind."""
    strips = app.screen._compositor.render_strips()
    row = next((strip for strip in strips if "tf1" in strip.text and "100 %" in strip.text), None)
    found = []
    for text, style, _ in row or ():
        if style is not None and text.strip("│") and "row" in style.meta:
            pair = (style.color, style.bgcolor)
            found.append((text, *(reversed(pair) if style.reverse else pair)))
    return found
