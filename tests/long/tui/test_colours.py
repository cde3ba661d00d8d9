"""Colours and characters: read in each theme, named in the palette, drawn by every terminal."""

from __future__ import annotations

import ast
import asyncio
import time
import unicodedata
from collections.abc import Iterator
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from rich.color import Color, ColorSystem
from rich.color_triplet import ColorTriplet
from rich.style import Style
from textual import events
from textual.command import CommandList, CommandPalette, Hits
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
from tests.support import patience
from tests.support.budgets import soak
from tests.support.cluster_texts import cluster_text
from tests.support.fakes import ScriptedRun, write_end
from tests.support.paths import REPOSITORY
from tests.support.preflights import Preflights
from tests.support.screens import screen_text, showing, shows, until
from tui.app import TfmuxApp
from tui.config import Config, load_config
from tui.format import StatusColor
from tui.palette import Palette
from tui.run_clients import RunClients
from tui.screens.home import HomeScreen
from tui.screens.hosts_screen import HostsScreen
from tui.screens.run_screen import RunScreen
from tui.widgets.colours import status_colours, theme_colour
from tui.widgets.pane import Pane

# Contrast of every text and mark with what is behind it, as WCAG computes it, on all screens: at
# least 4.5 of text and 3 of marks, in both themes, with sixteen colours and without any.

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
def busy(tmp_path: Path) -> Iterator[ScriptedRun]:
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


async def test_a_run(busy: ScriptedRun, terminal: Terminal) -> None:
    """The run's own page, every page and dialog over it, and its end."""
    looks = Looks(terminal)
    app = TfmuxApp(busy, config=config(terminal))
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
        busy.all_tasks(state=TaskState.KILLED, exit_signal="TERM", ended=time.time())
        busy.end(Outcome.KILLED, 130)
        await until(pilot, lambda: busy.snapshot().ended is not None)
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


# Every theme of the list: each screen is drawn, and every colour is one that can be drawn.

SHOWN = {"textual-dark", "textual-light", "ansi-dark"}
THEMES = sorted(TfmuxApp(config=Config()).available_themes)


async def test_every_colour_of_every_theme_can_be_drawn() -> None:
    """The themes that use the terminal's own colours (`ansi_blue`, `ansi_blue 50%`) too."""
    app = TfmuxApp(config=Config())
    async with app.run_test():
        for theme in THEMES:
            app.theme = theme
            for name in app.theme_variables:
                Style.parse(f"bold {theme_colour(app, name)}")
            assert set(status_colours(app)) == set(StatusColor), theme
            assert all(status_colours(app).values()), theme
            assert theme_colour(app, "primary-muted"), theme


@pytest.mark.parametrize("theme", [name if name in SHOWN else soak(name) for name in THEMES])
async def test_every_screen_is_drawn_in_every_theme(run: ScriptedRun, theme: str) -> None:
    """The screens of a run; in a soak in all themes, otherwise in a dark, a light and a
    terminal's own."""
    run.all_tasks(state=TaskState.RUNNING)
    run.write("worker:0", b"\x1b[31mred\x1b[0m \x1b[2mdim\x1b[0m line\n" * 40)
    app = TfmuxApp(run, config=Config(theme=theme))
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: any("red dim line" in row for row in screen_text(app)))
        assert app.theme == theme
        for keys, title in (
            (("m",), "all logs"),
            (("M",), "Loss, smoothing"),
            (("escape", "H"), "Tasks on tf1"),
            (("escape", "question_mark"), "Letters of the status strip"),
            (("escape", "q"), "Stay"),
        ):
            await pilot.press(*keys)
            await shows(pilot, title)


# The command palette, and keys of the config file.


async def test_enter_waits_for_the_commands_that_are_looked_for(
    run: ScriptedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a slow machine Enter came before the list was there, and was lost."""
    searched, found, search = [], asyncio.Event(), Palette.search

    async def slow(self: Palette, query: str) -> Hits:
        searched.append(query)
        await found.wait()
        async for hit in search(self, query):
            yield hit

    monkeypatch.setattr(Palette, "search", slow)
    async with showing(run, (120, 40)) as (app, pilot):
        await pilot.press("ctrl+p")
        await until(pilot, lambda: isinstance(app.screen, CommandPalette))
        for key in (*"hosts", "enter"):  # `press` would wait for what holds the palette
            app.post_message(events.Key(key, key if len(key) == 1 else None))
        try:  # Enter holds the palette now, and to ask it whether it is idle would wait for it
            await patience.until(lambda: "hosts" in searched, "the search for all letters")
        finally:
            found.set()
        await until(pilot, lambda: isinstance(app.screen, HostsScreen))
    assert run.asked == []


async def test_the_palette_closes_while_commands_are_looked_for(
    run: ScriptedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A letter typed while the palette closed looked for commands that had no list any more, and
    the app ended with NoMatches."""
    searched, closed, search = [], asyncio.Event(), Palette.search

    async def slow(self: Palette, query: str = "") -> Hits:
        searched.append(query)
        await closed.wait()
        async for hit in search(self, query):
            yield hit

    async def shutdown(self: Palette) -> None:
        closed.set()
        await asyncio.sleep(0.05)

    monkeypatch.setattr(Palette, "search", slow)
    monkeypatch.setattr(Palette, "discover", slow)
    monkeypatch.setattr(Palette, "shutdown", shutdown)
    async with showing(run, (120, 40)) as (app, pilot):
        await pilot.press("ctrl+p")
        await until(pilot, lambda: isinstance(app.screen, CommandPalette))
        app.post_message(events.Key("u", "u"))
        await until(pilot, lambda: "u" in searched)
        app.screen.dismiss()
        await until(pilot, lambda: closed.is_set() and isinstance(app.screen, RunScreen))
        await pilot.press("H")
        await until(pilot, lambda: isinstance(app.screen, HostsScreen))


async def test_the_palette_misses_no_key(run: ScriptedRun) -> None:
    """Letters right behind the key that opens it were lost, and Enter took a command that the
    rest stood for."""
    async with showing(run, (120, 40)) as (app, pilot):
        await until(pilot, lambda: isinstance(app.focused, Pane))
        for key in ("ctrl+p", *"hosts", "enter"):
            app.post_message(events.Key(key, key if len(key) == 1 else None))
        await until(pilot, lambda: isinstance(app.screen, HostsScreen))
    assert run.asked == []


async def test_keys_of_ones_own(run: ScriptedRun, tmp_path: Path) -> None:
    """The config file rebinds keys and sets the theme; what is wrong in it is said."""
    path = tmp_path / "config.toml"
    path.write_text('theme = "nord"\n[keys]\nkill_all = "f12"\n"no.such" = "x"\n')
    app = TfmuxApp(run, config=load_config(path))
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await shows(pilot, "keys.no.such: there is no such command")
        assert app.theme == "nord"
        await pilot.press("f9")
        assert run.asked == []
        await pilot.press("f12")
        assert run.asked == ["kill_all"]


async def test_the_palette_goes_to_a_task(run: ScriptedRun) -> None:
    """By its name, with a sentence beside each command instead of its id."""
    async with showing(run, (120, 40)) as (app, pilot):
        await pilot.press("ctrl+p", *"go to worker:2")
        await shows(pilot, "pending on tf4")
        await pilot.press("enter")
        screen = app.screen_stack[0]
        assert isinstance(screen, RunScreen)
        await until(pilot, lambda: str(screen.area.pane_layout.focused) == "worker:2")
        await pilot.press("ctrl+p", *"zoom")
        await shows(pilot, "The focused pane alone, and back")


async def test_no_line_of_the_palette_says_only_where_a_key_belongs(run: ScriptedRun) -> None:
    """Eight keys that scroll stood before search, filter and layout, each above the word "Log"; now
    they are the last, without a word, and are still found by their names."""
    async with showing(run, (120, 40)) as (app, pilot):
        await until(pilot, lambda: isinstance(app.focused, Pane))
        await pilot.press("ctrl+p")
        await shows(pilot, "All keys of this screen")
        offered = app.screen.query_one(CommandList)
        await until(
            pilot, lambda: any("Line down  (j)" in str(each.prompt) for each in offered.options)
        )
        texts = [str(option.prompt) for option in offered.options]
        names, lines = zip(*(text.partition("\n")[::2] for text in texts), strict=True)
        assert not {"Log", "Panes", "Task"}.intersection(lines)
        at = [names.index(name) for name in ("Merged log  (m)", "Search the whole log  (/)")]
        assert max(at) < names.index("Line down  (j)") < len(names)
        await pilot.press(*"half a page d")
        await shows(pilot, "Half a page down  (Ctrl-D)")


# Characters of the program's own texts: each is drawn, and with one width, by every terminal.

PUNCTUATION = "–—…·×µ−"
GLYPHS = "←↑→↓" + "─━│┃╌╭╮╯╰┏┓┗┛├└┤┬" + "▁▂▃▄▅▆▇█▋░▒" + "■○●▴▸▾◂" + "✓✗"
"""Arrows, box drawing, block elements, geometric shapes and the two marks: those that DejaVu Sans
Mono and Menlo have. None of them has an emoji of its own, which is two cells wide."""
STAND_INS = "␀␊␛␡␦\ufffd"
"""For characters of logs and hosts that a terminal would act on, one cell each."""
SOUGHT = "\ufeff\u200d\x85\u2028\u2029"
"""Looked for in the texts of others, and not shown."""
EMOJI = "▪▫▶◀◻◼◽◾↔↕↖↗↘↙↩↪⌚⌛⏩⏳⏱⚠✂✔✖"


def literals(path: Path) -> Iterator[tuple[int, str]]:
    """The texts of a module but its docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    bare = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in bare:
            yield node.lineno, node.value


def texts(root: Path) -> Iterator[tuple[str, str]]:
    """The texts of the program, and where they stand."""
    for package in ("tui", "launcher", "trainer"):
        for path in sorted((root / package).rglob("*")):
            if path.suffix == ".py":
                for line, text in literals(path):
                    yield f"{path.relative_to(root)}:{line}", text
            elif path.suffix in (".tcss", ".toml", ".html", ".css"):
                yield str(path.relative_to(root)), path.read_text(encoding="utf-8")


def foreign(text: str) -> set[str]:
    """The characters of a text that may not be there."""
    return {char for char in text if not char.isascii() and char not in allowed() + SOUGHT}


def allowed() -> str:
    return PUNCTUATION + GLYPHS + STAND_INS


def test_every_glyph_is_drawn_in_one_cell() -> None:
    """Listed are characters of one cell, and none that a terminal may take for an emoji."""
    for char in allowed():
        assert cell_len(char) == 1 and unicodedata.east_asian_width(char) not in "WF", char
        assert char not in EMOJI, unicodedata.name(char)


def test_texts_have_no_other_characters() -> None:
    """A stopwatch, a warning sign and a pair of scissors were drawn two cells wide, or not."""
    found = [
        f"{where}: {sorted(chars)}" for where, text in texts(REPOSITORY) if (chars := foreign(text))
    ]
    assert found == []


def test_the_search_finds_such_characters(tmp_path: Path) -> None:
    """In a literal and in a part of an f-string; what a docstring or a comment says is not seen."""
    module = tmp_path / "tui" / "module.py"
    module.parent.mkdir()
    module.write_text('"""⏱"""\n# ⚠\nname = 1\ntext = f"⏱ {name}"\nother = "漢"\n')
    found = {(where, char) for where, text in texts(tmp_path) for char in foreign(text)}
    assert found == {("tui/module.py:4", "⏱"), ("tui/module.py:5", "漢")}
