"""Every screen as it looks: compared with a snapshot of it that a person has looked at.

The clock stands still and nothing blinks, so that the same snapshot comes out on any machine.
After a wanted change: `pytest tests/long/tui/test_snapshots.py --snapshot-update`; look at them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from textual.command import CommandPalette
from textual.pilot import Pilot
from textual.strip import Strip
from textual.widgets import Input, TextArea

from launcher.cluster import library
from launcher.cluster.read import load
from launcher.cluster.templates import PS_WORKERS, render
from launcher.ids import TaskId
from launcher.run.snapshot import AttemptStart
from launcher.run.states import HostState, Outcome, RunPhase, TaskState
from launcher.store.runs import RunFolder
from tests.support.fakes import ScriptedRun, write_end
from tests.support.screens import shows, until
from tui.app import TfmuxApp
from tui.config import Config
from tui.run_clients import RunClients
from tui.screens.home import HomeScreen

Compare = Callable[..., bool]
Prepare = Callable[[Pilot[Any]], Awaitable[None]]
NOON = 1_795_176_000.0
STEP = (
    b"After %d training steps (%d global steps), loss on training batch is %.4f."
    b"  (0.010 sec/batch)\n"
)
SIZES = [(80, 24), (120, 40), (200, 50)]


@pytest.fixture(autouse=True)
def frozen(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Noon, UTC, for as long as the test lasts."""
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.delenv("NO_COLOR", raising=False)
    time.tzset()
    monkeypatch.setattr(time, "time", lambda: NOON)
    for widget in (Input, TextArea):
        monkeypatch.setattr(widget.cursor_blink, "_default", False)
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def training(tmp_path: Path) -> Iterator[ScriptedRun]:
    """1 ps and 3 workers on four hosts in the middle of a training; one waits, one has begun
    anew after a failure."""
    run = ScriptedRun(tmp_path, workers=3, hosts=4)
    run.change(state=RunPhase.RUNNING, total_steps=20_000, started=NOON - 83)
    run.all_tasks(state=TaskState.READY, started=NOON - 80, pid=4121, last_output=NOON - 2)
    run.write("ps:0", b"ps:0 listens on tf1:2222\n", now=NOON - 79)
    for i in range(30):
        for worker in range(2):
            step = i * 20 + worker * 9
            loss = 2.3 * 0.93**i + 0.1 * worker
            run.write(f"worker:{worker}", STEP % (i * 10, step, loss), now=NOON - 62 + 2 * i)
    log = run.logs.open(TaskId("worker", 2))
    run.write("worker:2", b"MemoryError\n", now=NOON - 50)
    begun = (AttemptStart(1, 0, NOON - 70), AttemptStart(2, log.size, NOON - 40))
    run.task("worker:2", state=TaskState.READY, attempt=2, attempts=begun)
    run.write("worker:2", b"\x1b[32mINFO\x1b[0m back from checkpoint 400\n", now=NOON - 39)
    run.occupy_hosts(*[HostState.UP] * 4, now=NOON)
    yield run
    run.logs.close()


def still(*keys: str, text: str = "worker:2") -> Prepare:
    """Presses keys, waits for a text, and lets no cursor blink."""

    async def prepare(pilot: Pilot[Any]) -> None:
        await shows(pilot, "worker:2")
        if keys:  # what a dialog covers is drawn no more
            await settled(pilot)
        await pilot.press(*keys)
        await shows(pilot, text)
        screen = pilot.app.screen
        if isinstance(screen, CommandPalette):
            await until(pilot, lambda: screen._busy_timer is None and not screen._show_busy)
        pilot.app.clear_notifications()  # they leave by themselves, on a busy machine too soon
        await settled(pilot)

    return prepare


async def settled(pilot: Pilot[Any]) -> None:
    """Waits until the screen stands still: curves and highlighting come a moment after the text,
    on a busy machine a long one."""
    before: list[Strip] = []
    same = 0
    while same < 5:
        await pilot.pause(0.1)
        now = pilot.app.screen._compositor.render_strips()
        same = same + 1 if now == before else 0
        before = now
    pilot.app.screen.refresh()  # a look at a dialog leaves out what is behind it, and is kept
    await pilot.pause(0.1)


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
def test_run(snap_compare: Compare, training: ScriptedRun, size: tuple[int, int]) -> None:
    """The run screen in a small, a usual and a large terminal."""
    app = TfmuxApp(training, config=Config())
    assert snap_compare(app, terminal_size=size, run_before=still(text="back from checkpoint"))


def test_run_in_a_light_theme(snap_compare: Compare, training: ScriptedRun) -> None:
    app = TfmuxApp(training, config=Config(theme="textual-light"))
    ready = still(text="back from checkpoint")
    assert snap_compare(app, terminal_size=(120, 40), run_before=ready)


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        (["m"], "all logs, 4 of 4"),
        (["M"], "Global steps a second"),
        (["H"], "Tasks on tf1"),
        (["question_mark"], "Kill all, on all hosts"),
        (["ctrl+p", *"restart"], "Restart the task"),
        (["q"], "Stay"),
    ],
    ids=["merged", "metrics", "hosts", "help", "palette", "leave"],
)
def test_other_screens(
    snap_compare: Compare, training: ScriptedRun, keys: list[str], text: str
) -> None:
    """What opens from the run screen."""
    app = TfmuxApp(training, config=Config())
    assert snap_compare(app, terminal_size=(120, 40), run_before=still(*keys, text=text))


def test_receipt(snap_compare: Compare, training: ScriptedRun) -> None:
    app = TfmuxApp(training, config=Config())

    async def kill(pilot: Pilot[Any]) -> None:
        await pilot.press("f9")
        training.all_tasks(state=TaskState.KILLED, exit_signal="TERM", ended=NOON)
        training.end(Outcome.KILLED, 130)
        await still(text="no process is left")(pilot)

    assert snap_compare(app, terminal_size=(120, 40), run_before=kill)


@pytest.fixture
def pages() -> Iterator[TfmuxApp]:
    """The app on Home, over it the editor, with one saved cluster and one run that is over."""
    hosts = {name: f"root@{name}" for name in ("tf1", "tf2", "tf3")}
    path = library.create("mission", render(PS_WORKERS, "mission", hosts, Path("/srv")))
    folder = RunFolder.create("mission-20261120-105000-7f3a", path.read_text(), load(path))
    write_end(folder, NOON - 4000, NOON - 3890)
    clients = RunClients()
    home = HomeScreen(clients)
    yield TfmuxApp(pages=[home, home.editor(path)], config=Config())
    clients.close()


@pytest.mark.parametrize(
    ("keys", "text", "size"),
    [
        ([], "adds a ps task on every host", (200, 50)),
        ([], "adds a ps task on every host", (120, 40)),
        ([], "adds a ps task on every host", (80, 24)),
        (["down", "home", "right", "enter", *":0"], "out of range", (120, 40)),
        (["tab", "ctrl+end", "x", "="], "needs a file in valid TOML", (120, 40)),
        (["space"], "environment", (80, 24)),
        (["escape"], "25 demos", (120, 40)),
        (["escape", "a"], "1-9 or Enter chooses", (120, 40)),
    ],
    ids=["wide", "editor", "small", "form", "broken", "plan", "home", "new"],
)
def test_pages(
    snap_compare: Compare, pages: TfmuxApp, keys: list[str], text: str, size: tuple[int, int]
) -> None:
    """The editor and Home."""

    async def prepare(pilot: Pilot[Any]) -> None:
        await shows(pilot, "hosts × jobs")
        for key in keys:
            if key == "a":  # Home is drawn only while no dialog covers it
                await settled(pilot)
            await pilot.press(key)
            if key == "escape":
                await shows(pilot, "25 demos")
                await shows(pilot, "starts    ps:0")  # read once the cursor rests
        await shows(pilot, text)
        await settled(pilot)

    assert snap_compare(pages, terminal_size=size, run_before=prepare)


def test_without_colours(training: ScriptedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """With NO_COLOR the whole run screen, logs too, is drawn in greys, and states keep their
    words."""
    monkeypatch.setenv("NO_COLOR", "1")
    training.write("ps:0", b"\x1b[31mred\x1b[0m \x1b[38;2;1;200;3mgreen\x1b[0m\n", now=NOON)
    training.task("worker:1", state=TaskState.FAILED, exit_code=1)
    app = TfmuxApp(training, config=Config())

    async def look() -> None:
        async with app.run_test(size=(120, 40)) as pilot:
            await still(text="red green")(pilot)
            await shows(pilot, "exit 1")
            for strip in app.screen._compositor.render_strips():
                for _, style, _ in strip:
                    for colour in (style.color, style.bgcolor) if style else ():
                        triplet = colour.get_truecolor() if colour else None
                        assert triplet is None or len(set(triplet)) == 1, (strip.text, triplet)

    asyncio.run(look())
