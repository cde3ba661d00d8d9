"""Makes the pictures of all screens: `make screenshots`.

A real training (the default demo) runs behind the screens, in a home of its own, so the pictures
show what a person sees. Each is an SVG in `docs/`.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from textual.pilot import Pilot

from bench.report import own_home
from launcher.cluster import load
from launcher.run.snapshot import Snapshot
from launcher.run.states import RunPhase
from launcher.session.client import RunClient
from tui.app import TfmuxApp
from tui.demos import find
from tui.run_clients import RunClients
from tui.screens.home import HomeScreen

FOLDER = Path(__file__).resolve().parent
SIZES = ((200, 50), (120, 40))
EXAMPLE = FOLDER / "four-hosts.toml"
SHOWN_AS = {str(FOLDER.parent): "~/tfmux"}
"""Folders of the machine that makes the pictures, and what a reader sees instead."""
if not sys.base_prefix.startswith("/usr"):
    SHOWN_AS[sys.base_prefix] = "/usr/local"
_FONTS = re.compile(r"@font-face \{.*?\}", re.DOTALL)
_PATIENCE = 180.0


def save(app: TfmuxApp, name: str) -> None:
    """Writes the screen as `docs/NAME.svg`; fonts come from the reader's machine."""
    svg = _FONTS.sub("", app.export_screenshot(title="tfmux"))
    for folder, shown in {os.environ["HOME"]: "~", **SHOWN_AS}.items():
        # The length that is written beside a text would stretch the shorter one.
        length = rf'textLength="[^"]*"([^>]*>[^<]*){re.escape(folder)}'
        svg = re.sub(length, rf"\1{shown}", svg).replace(folder, shown)
    (FOLDER / f"{name}.svg").write_text(svg)
    sys.stdout.write(f"docs/{name}.svg\n")


async def until(pilot: Pilot[Any], condition: Callable[[], bool]) -> None:
    """Lets the app go on until something is so."""
    async with asyncio.timeout(_PATIENCE):
        while not condition():
            await pilot.pause(0.1)
    await pilot.pause(0.3)


async def press(pilot: Pilot[Any], *keys: str) -> None:
    """Presses keys and lets the screen settle."""
    await pilot.press(*keys)
    await pilot.pause(0.5)


async def running(session: RunClient) -> None:
    """The run screen and everything that opens from it."""
    app = TfmuxApp(session)
    async with app.run_test(size=SIZES[0]) as pilot:

        def now() -> Snapshot:
            return session.snapshot()

        await until(pilot, lambda: all(t.step for t in now().tasks if t.id.job == "worker"))
        await until(pilot, lambda: (now().step or 0) > 700)
        for width, height in SIZES:
            await pilot.resize_terminal(width, height)
            await pilot.pause(0.8)
            save(app, f"run-{width}x{height}")
        for key, name in (("M", "metrics"), ("H", "hosts")):
            await press(pilot, key)
            save(app, name)
            await press(pilot, "escape")
        await press(pilot, "b")
        await pilot.pause(4.0)
        save(app, "stacks")
        await press(pilot, "escape")
        await press(pilot, "tab", "z", "slash", *"loss", "enter")
        save(app, "search")
        await press(pilot, "escape", "escape")
        await press(pilot, "f9")
        await until(pilot, lambda: now().state is RunPhase.ENDED)
        await pilot.pause(0.5)
        save(app, "receipt")
        await press(pilot, "q")


async def failed(session: RunClient) -> None:
    """The run screen once a task has failed, and the run with it."""
    app = TfmuxApp(session)
    async with app.run_test(size=SIZES[1]) as pilot:
        await until(pilot, lambda: session.snapshot().state is RunPhase.ENDED)
        await pilot.pause(0.5)
        save(app, "failure")
        await press(pilot, "q")


async def overshoot(session: RunClient) -> None:
    """The losses of one, of two in step, and of two one by one, at the same high rate."""
    app = TfmuxApp(session)
    async with app.run_test(size=(120, 30)) as pilot:
        await until(pilot, lambda: session.snapshot().state is RunPhase.ENDED)
        await press(pilot, "escape")
        await press(pilot, "M")
        save(app, "overshoot")
        await press(pilot, "escape", "q")


async def home() -> None:
    """The home screen with that run in it, and the editor on an example."""
    sessions = RunClients()
    file = Path(shutil.copy(EXAMPLE, Path.home()))
    first = HomeScreen(sessions, [file])
    app = TfmuxApp(pages=[first])
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause(2.0)
        save(app, "home")
        app.push_screen(first.editor(file))
        await pilot.pause(1.5)
        save(app, "editor")
        await pilot.resize_terminal(80, 24)
        await press(pilot, "space")
        save(app, "plan")


async def preflight(path: Path) -> None:
    """The preflight of this machine, filled."""
    sessions = RunClients()
    first = HomeScreen(sessions, [path])
    app = TfmuxApp(pages=[first])
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause(2.0)
        await press(pilot, "T")
        await pilot.pause(8.0)
        save(app, "preflight")


def picture(
    file: Path, text: str, screens: Callable[[RunClient], Coroutine[Any, Any, None]]
) -> None:
    """Launches a cluster for the pictures that need its run, and ends it."""
    file.write_text(text)
    session = RunClient.launch(load(file), text)
    session.await_state()
    try:
        asyncio.run(screens(session))
    finally:
        if session.living:
            session.kill_all()
        session.wait(60)


def main() -> None:
    """All pictures, in colours that do not depend on the terminal."""
    os.environ.update(TERM="xterm-256color", COLORTERM="truecolor")
    with own_home() as folder:
        text = find("async").read_text().replace("2000", "200000")
        file = folder / "mnist-async.toml"
        picture(file, text, running)
        picture(file, text.replace('"--steps', '"--data=data/mnist", "--steps'), failed)
        picture(folder / "mnist-overshoot.toml", find("overshoot").read_text(), overshoot)
        asyncio.run(home())
        asyncio.run(preflight(file))


if __name__ == "__main__":
    main()
