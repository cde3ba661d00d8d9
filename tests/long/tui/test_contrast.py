"""Contrast of every text and mark with what is behind it, as WCAG computes it, on all screens: at
least 4.5 of text and 3 of marks, in both themes, with sixteen colours and without any."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest
from rich.color import Color, ColorSystem
from rich.color_triplet import ColorTriplet
from rich.style import Style
from textual.pilot import Pilot
from textual.widgets import Input, TextArea

from launcher.cluster import library
from launcher.cluster.read import load
from launcher.cluster.templates import PS_WORKERS, render
from launcher.ids import TaskId
from launcher.run.gpus import GpuProcess, GpuView
from launcher.run.snapshot import Failure
from launcher.run.stack_groups import (
    ProcessStack,
    StackFrame,
    Stacks,
    TaskStacks,
    ThreadStack,
    Unanswered,
)
from launcher.run.states import HostState, Outcome, RunPhase, TaskState
from launcher.store.runs import RunFolder
from tests.support.cluster_texts import cluster_text
from tests.support.fakes import ScriptedRun, write_end
from tests.support.preflights import Preflights
from tests.support.screens import shows, until
from tui.app import TfmuxApp
from tui.config import Config
from tui.run_clients import RunClients
from tui.screens.home import HomeScreen

TEXT, MARK = 4.5, 3.0
FRAME = frozenset("─│╭╮╰╯┌┐└┘▔▁▏▕ ")
"""Lines between parts of the screen, which tell nothing by themselves."""
PALETTES = {
    "vga": [
        *[(0, 0, 0), (170, 0, 0), (0, 170, 0), (170, 85, 0), (0, 0, 170), (170, 0, 170)],
        *[(0, 170, 170), (170, 170, 170), (85, 85, 85), (255, 85, 85), (85, 255, 85)],
        *[(255, 255, 85), (85, 85, 255), (255, 85, 255), (85, 255, 255), (255, 255, 255)],
    ],
    "xterm": [
        *[(0, 0, 0), (205, 0, 0), (0, 205, 0), (205, 205, 0), (0, 0, 238), (205, 0, 205)],
        *[(0, 205, 205), (229, 229, 229), (127, 127, 127), (255, 0, 0), (0, 255, 0)],
        *[(255, 255, 0), (92, 92, 255), (255, 0, 255), (0, 255, 255), (255, 255, 255)],
    ],
}


class Terminal(StrEnum):
    """A terminal with a theme."""

    DARK = "textual-dark"
    LIGHT = "textual-light"
    SIXTEEN_DARK = "textual-dark 16"
    SIXTEEN_LIGHT = "textual-light 16"
    GREY_DARK = "textual-dark NO_COLOR"
    GREY_LIGHT = "textual-light NO_COLOR"


def ratio(one: ColorTriplet, other: ColorTriplet) -> float:
    """Contrast of two colours by WCAG 2, from 1 to 21."""

    def luminance(colour: ColorTriplet) -> float:
        parts = [
            part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4
            for part in colour.normalized
        ]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


class Looks:
    """Pairs of colours that were seen on screens, each with a place of it."""

    def __init__(self, terminal: Terminal) -> None:
        self._sixteen = terminal.endswith(" 16")
        self._pairs: dict[tuple[bool, Color, Color], str] = {}

    def look(self, pilot: Pilot[Any], screen: str) -> None:
        """Takes the colours of all that the screen shows; below a dialog only the dialog's."""
        top = pilot.app.screen
        inside = top.children[0].region if top.is_modal else top.region
        for y, strip in enumerate(top._compositor.render_strips()):
            x = 0
            for segment in strip:
                text, style = segment.text, segment.style
                x, at = x + segment.cell_length, x
                if not FRAME.issuperset(text) and style is not None and inside.contains(at, y):
                    letters = any(each.isalnum() for each in text)
                    pair = self._colours(style)
                    self._pairs.setdefault((letters, *pair), f"{screen}, row {y}: {text.strip()!r}")

    def _colours(self, style: Style) -> tuple[Color, Color]:
        front, behind = style.color, style.bgcolor
        assert front is not None and behind is not None, style
        if self._sixteen:
            front, behind = (c.downgrade(ColorSystem.STANDARD) for c in (front, behind))
        return (behind, front) if style.reverse else (front, behind)

    @property
    def weak(self) -> list[str]:
        """Pairs with too little contrast, on any of the palettes that terminals have."""
        found = []
        for (letters, front, behind), place in self._pairs.items():
            least = min(ratio(*pair) for pair in self._shown(front, behind))
            if least < (TEXT if letters else MARK) - 0.005:
                what = f"{least:.2f} of {front.name} on {behind.name}"
                found.append(f"{what}: {place}")
        return sorted(found)

    def _shown(self, *colours: Color) -> Iterator[tuple[ColorTriplet, ColorTriplet]]:
        if not self._sixteen:
            one, other = (colour.get_truecolor() for colour in colours)
            yield one, other
            return
        for palette in PALETTES.values():
            one, other = (ColorTriplet(*palette[colour.number or 0]) for colour in colours)
            yield one, other


@pytest.fixture(params=Terminal)
def terminal(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """The terminal in which the test runs."""
    kind: Terminal = request.param
    monkeypatch.delenv("NO_COLOR", raising=False)
    if kind.endswith(" 16"):
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.delenv("COLORTERM")
    if kind.endswith("NO_COLOR"):
        monkeypatch.setenv("NO_COLOR", "1")
    for widget in (Input, TextArea):
        monkeypatch.setattr(widget.cursor_blink, "_default", False)
    return kind


def config(terminal: Terminal) -> Config:
    """Settings with the terminal's theme."""
    return Config(theme=terminal.partition(" ")[0])


STEP = b"After %d training steps (%d global steps), loss on training batch is %.4f."


@pytest.fixture
def run(tmp_path: Path) -> Iterator[ScriptedRun]:
    """1 ps and 3 workers on four hosts: one trains, one waits, one has failed."""
    now = time.time()
    run = ScriptedRun(tmp_path, workers=3, hosts=4)
    run.change(state=RunPhase.RUNNING, total_steps=20_000, started=now - 83)
    run.all_tasks(state=TaskState.READY, started=now - 80, pid=4121, last_output=now - 2)
    run.write("ps:0", b"ps:0 listens on tf1:2222\n", now=now - 79)
    for i in range(30):
        run.write("worker:0", STEP % (i, i, 2.3 * 0.93**i) + b"\n", now=now - 62 + 2 * i)
    run.task("worker:1", state=TaskState.STARTING)
    run.task("worker:2", state=TaskState.FAILED, exit_code=1)
    run.write("worker:2", b"MemoryError\n", now=now - 50)
    run.occupy_hosts(HostState.UP, HostState.UP, HostState.LOST, HostState.UP, now=now)
    own = run.snapshot().tasks[0].id
    held = (GpuProcess(7, own, memory=1 << 30), GpuProcess(8, None, "root", "busy", 1 << 30))
    gpus = (
        GpuView(0, "H200", "", 0.9, 2 << 30, 8 << 30, 92.0, 650.0, processes=held),
        GpuView(1, "H200", "", 0.0, 2 << 30, 2 << 30, 40.0, idle_since=now - 90, processes=held),
        GpuView(2, "H200", problem="GPU is lost"),
    )
    first, *others = run.snapshot().hosts
    run.change(hosts=(replace(first, gpus=gpus), *others))
    yield run
    run.logs.close()


async def test_a_run(run: ScriptedRun, terminal: Terminal) -> None:
    """The run's own page, every page and dialog over it, and its end."""
    looks = Looks(terminal)
    app = TfmuxApp(run, config=config(terminal))
    async with app.run_test(size=(160, 50)) as pilot:
        await shows(pilot, "MemoryError")
        for keys, text in (
            ([], "worker:1"),
            (["tab"], "worker:1"),
            (["tab", "v"], "worker:1"),
            (["escape", "slash", *"steps", "enter"], "steps"),
            (["escape", "space"], "worker:1"),
            (["space"], "worker:1"),
            (["space"], "all logs"),
            (["space"], "worker:1"),
            (["M"], "Global steps a second"),
            (["escape", "H"], "Tasks on tf1"),
            (["tab", "down"], "cannot be used"),
            (["tab"], "cannot be used"),
            (["down", "down"], "tf3"),
            (["escape", "question_mark"], "Kill all, on all hosts"),
            (["escape", "ctrl+p", *"restart"], "Restart the task"),
            (["escape", "escape", "q"], "Stay"),
            (["escape"], "worker:1"),
        ):
            await pilot.press(*keys)
            await shows(pilot, text)
            await pilot.pause(0.2)
            looks.look(pilot, " ".join(keys) or "run")
        await pilot.press("f9")
        looks.look(pilot, "kill")
        run.all_tasks(state=TaskState.KILLED, exit_signal="TERM", ended=time.time())
        run.end(Outcome.KILLED, 130)
        await until(pilot, lambda: run.snapshot().ended is not None)
        await pilot.pause(0.3)
        looks.look(pilot, "receipt")
    assert not looks.weak, "\n".join(looks.weak)


async def test_pages_of_many_tasks(tmp_path: Path, terminal: Terminal) -> None:
    """The band of their metrics, with one of them and a failure; groups of stacks, where each frame
    of libraries and of the user's own code has its look."""
    run = ScriptedRun(tmp_path, workers=20, hosts=4)
    now = time.time()
    run.change(state=RunPhase.RUNNING, started=now - 60)
    for worker in range(20):
        for i in range(5):
            loss = 2.3 * 0.93**i + worker
            run.write(f"worker:{worker}", STEP % (i, i, loss) + b"\n", now=now - 20 + 2 * i)
    failure = Failure(TaskId("worker", 3), "tf1", "exit 1", now - 15)
    run.change(first_failure=failure)
    library = StackFrame("wait", "/usr/lib/python3.12/site-packages/torch/x.py", 1)
    frames = (library, StackFrame("step", "/srv/train.py", 41))
    threads = (ThreadStack("main", frames), ThreadStack("idle", (library,)))
    process = ProcessStack(7, "python train.py", "python", "sleeps", threads, "a note")
    looks = Looks(terminal)
    app = TfmuxApp(run, config=config(terminal))
    async with app.run_test(size=(160, 50)) as pilot:
        await pilot.press("M", "o")
        await shows(pilot, "20 tasks, 1 drawn")
        await pilot.pause(0.2)
        looks.look(pilot, "metrics")
        await pilot.press("escape", "b")
        await until(pilot, lambda: bool(run.looks))
        stacks = (TaskStacks(TaskId("worker", 0), "tf1", (process,)),)
        run.looks[0].set_result(Stacks(now, stacks, (Unanswered("tf3", "cannot be reached"),)))
        await shows(pilot, "step  train.py:41")
        await pilot.pause(0.2)
        looks.look(pilot, "stacks")
    run.logs.close()
    assert not looks.weak, "\n".join(looks.weak)


async def test_a_preflight(terminal: Terminal, preflights: Preflights) -> None:
    """Marks and values of what was found, in the cell of the cursor and beside it."""
    hosts = {f"tf{number}": {"ssh": f"me@tf{number}.invalid"} for number in range(1, 5)}
    library.create("far", cluster_text({"worker": " ".join(hosts)}, hosts=hosts))
    clients = RunClients()
    looks = Looks(terminal)
    app = TfmuxApp(pages=[HomeScreen(clients)], config=config(terminal))
    async with app.run_test(size=(120, 40)) as pilot:
        await shows(pilot, "25 demos")
        for keys, text in (
            (["T"], "tf1–tf4: TensorFlow is not installed"),
            (["up"], "python: fine"),
            (["tab"], "Connections between hosts"),
        ):
            await pilot.press(*keys)
            await shows(pilot, text)
            await pilot.pause(0.2)
            looks.look(pilot, "preflight " + " ".join(keys))
    clients.close()
    assert not looks.weak, "\n".join(looks.weak)


async def test_home_and_editor(terminal: Terminal) -> None:
    """Clusters, a past run and the demos, below the cursor and beside it; table, file, plan, form
    and dialogs of the editor."""
    now = time.time()
    hosts = {name: f"root@{name}" for name in ("tf1", "tf2", "tf3")}
    path = library.create("mission", render(PS_WORKERS, "mission", hosts, Path("/srv")))
    for number in range(2):
        run_id = f"mission-20261120-10500{number}-7f3a"
        folder = RunFolder.create(run_id, path.read_text(), load(path))
        write_end(folder, now - 4000, now - 3890)
    clients = RunClients()
    looks = Looks(terminal)
    home = HomeScreen(clients)
    app = TfmuxApp(pages=[home, home.editor(path)], config=config(terminal))
    async with app.run_test(size=(160, 50)) as pilot:
        await shows(pilot, "hosts × jobs")
        for keys, text in (
            ([], "mission"),
            (["down", "home", "right"], "mission"),
            (["enter", *":0"], "out of range"),
            (["escape", "tab"], "mission"),
            (["ctrl+end", "x", "="], "needs a file in valid TOML"),
            (["ctrl+z", "ctrl+z", "ctrl+z", "escape"], "mission"),
        ):
            await pilot.press(*keys)
            await shows(pilot, text)
            await pilot.pause(0.2)
            looks.look(pilot, "editor " + " ".join(keys))
    clients.close()
    clients = RunClients()
    app = TfmuxApp(pages=[HomeScreen(clients)], config=config(terminal))
    async with app.run_test(size=(160, 50)) as pilot:
        await shows(pilot, "25 demos")
        for keys, text in (
            ([], "mission"),
            (["tab"], "mission"),
            (["down"], "mission"),
            (["slash", *"mission"], "rows with mission"),
            (["escape", "delete"], "are deleted"),
            (["escape", "tab", "end", "enter"], "demos"),
            (["a"], "1-9 or Enter chooses"),
        ):
            await pilot.press(*keys)
            await shows(pilot, text)
            await pilot.pause(0.2)
            looks.look(pilot, "home " + " ".join(keys))
    clients.close()
    assert not looks.weak, "\n".join(looks.weak)
