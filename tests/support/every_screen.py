"""Every screen and dialog of the app, opened by its keys on a run, a home or a file of a test."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from unittest.mock import patch

from textual.pilot import Pilot

from launcher.cluster import library
from launcher.cluster.read import loads
from launcher.hosts.auth_prompt import AuthPrompt, OfferedKey, PromptKind
from launcher.ids import TaskId
from launcher.run.snapshot import Failure
from launcher.run.states import Outcome, RunPhase, TaskState
from tests.support.cluster_texts import SLEEPERS
from tests.support.fakes import STEP, ScriptedRun
from tests.support.monkey import MonkeyClients, preflight_without_hosts
from tui.app import TfmuxApp
from tui.config import Config
from tui.screens.editor.screen import EditorScreen
from tui.screens.home import HomeScreen
from tui.screens.host_key_dialog import HostKeyDialog, OpenPrompt
from tui.screens.prompt_dialogs import PromptDialog

_PASSWORD = AuthPrompt("tf1", "Password of a person on a host", True, PromptKind.PASSWORD)
_KEY = AuthPrompt(
    "tf1", "Trust it?", False, PromptKind.HOST_KEY, OfferedKey("10.77.0.1", "ssh-ed25519", "SHA256")
)

OF_RUNS: dict[str, tuple[str, ...]] = {
    "grid": (),
    "list and detail": ("L",),
    "zoomed": ("z",),
    "merged": ("m",),
    "search": ("slash", "s", "t"),
    "filter": ("ampersand", "1", "enter"),
    "go to": ("apostrophe", "w"),
    "metrics": ("M",),
    "hosts": ("H",),
    "stacks": ("b",),
    "cause": ("C",),
    "help": ("question_mark",),
    "palette": ("colon",),
    "themes": ("colon", *"theme", "enter"),
    "leave dialog": ("q",),
    "detach dialog": ("d",),
    "end a task": ("x",),
    "killing": ("f9",),
}
"""Screens of a run that goes on, and the keys that open them."""
OF_ENDS = ("summary", "receipt", "ended metrics")
OF_PAGES: dict[str, tuple[str, ...]] = {
    "home": (),
    "home filter": ("slash", "m"),
    "home help": ("question_mark",),
    "new cluster": ("a",),
    "copy": ("c",),
    "kill runs": ("f9",),
    "editor": (),
    "editor plan": ("space",),
    "form": ("f4", "1"),
    "save as": ("S",),
    "add hosts": ("a",),
    "preflight": (),
    "password": (),
    "host key": (),
}
EVERY = (*OF_RUNS, "12 panes", "64 tasks", *OF_ENDS, *OF_PAGES)
_TASKS = {"12 panes": 11, "64 tasks": 63, "grid": 0}


@asynccontextmanager
async def opened(
    name: str, folder: Path, size: tuple[int, int]
) -> AsyncIterator[tuple[Pilot[int], ScriptedRun]]:
    """The app in a terminal of this size, with the screen of this name."""
    run = _run(folder, name)
    app = TfmuxApp(run, config=Config())
    if name in OF_PAGES:
        library.create("mine", SLEEPERS.format(name="mine"))
        app = TfmuxApp(pages=[HomeScreen(MonkeyClients(lambda: run))], config=Config())
    try:
        with patch("tui.screens.preflight_screen.preflight", preflight_without_hosts):
            async with app.run_test(size=size, notifications=True) as pilot:
                await _open(name, pilot, run)
                yield pilot, run
    finally:
        run.logs.close()


def happens(run: ScriptedRun, number: int) -> None:
    """Something new in a run, as it is in one that is at work."""
    for task in run.snapshot().tasks[:3]:
        run.write(str(task.id), STEP % (number, number, 0.5 / (number + 1)))
    if number % 3 == 0:
        run.change(notes=(*run.snapshot().notes, f"note {number}: a host has been cut off again"))


def _run(folder: Path, name: str) -> ScriptedRun:
    run = ScriptedRun(folder, workers=_TASKS.get(name, 3), hosts=4)
    run.all_tasks(state=TaskState.RUNNING, attempt=1, started=time.time())
    run.change(state=RunPhase.RUNNING)
    for number in range(4):
        happens(run, number)
    return run


async def _open(name: str, pilot: Pilot[int], run: ScriptedRun) -> None:
    app = pilot.app
    home = app.screen
    if isinstance(home, HomeScreen):
        path = library.saved()[-1]
        if name in ("editor", "editor plan", "form", "save as", "add hosts"):
            await app.push_screen(EditorScreen(path, home.clients, home.prompts))
        elif name == "preflight":
            cluster = loads(path.read_text(), path.name, path.parent)
            await app.push_screen(home.preflight(cluster, path))
        elif name == "password":
            await app.push_screen(PromptDialog(_PASSWORD))
        elif name == "host key":
            await app.push_screen(HostKeyDialog([OpenPrompt(_KEY)]))
    if name in OF_ENDS:
        failure = Failure(TaskId("worker", 1), "tf3", "exit 1", time.time(), (), ("a line",))
        run.end(Outcome.FAILED, 1, failure)
    keys = {"receipt": ("f9",), "ended metrics": ("M",)}
    await pilot.press(*(OF_RUNS | OF_PAGES | keys).get(name, ()))
