"""A monkey at the keys: seeded random keys, clicks and sizes on every screen.

`python -m tests.support.monkey [FIRST_SEED [SEEDS]]` runs many and prints what fails.
"""

from __future__ import annotations

import asyncio
import os
import random
import string
import sys
import tempfile
import time
import traceback
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

from textual import events
from textual.errors import NoWidget
from textual.keys import _character_to_key
from textual.pilot import OutOfBounds, Pilot

from launcher.cluster import library
from launcher.cluster.file_model import ClusterModel
from launcher.cluster.read import loads
from launcher.cluster.templates import ONE_MACHINE, render
from launcher.ids import TaskId
from launcher.preflight import CHECKS, Finding, Reach, Reachability, Report, Severity
from launcher.run.snapshot import AttemptStart, Failure
from launcher.run.states import Outcome, RunPhase, TaskState
from launcher.store.runs import RunFolder
from tests.support.cluster_texts import SLEEPERS
from tests.support.fakes import ScriptedRun
from tests.support.patience import until
from tests.support.worst_text import WORST_TEXTS
from tui.app import TfmuxApp
from tui.config import Config
from tui.run_clients import RunClients
from tui.screens.editor.screen import EditorScreen
from tui.screens.home import HomeScreen

KEYS = 300
STARTS = (
    "home", "run", "editor", "preflight", "metrics", "merged", "hosts", "help", "palette",
    "dialogs", "themes", "filters",
)  # fmt: skip
"""Where a monkey begins; from there it goes wherever its keys lead."""

_MOVES = (
    "up", "down", "left", "right", "pageup", "pagedown", "home", "end", "tab", "shift+tab",
    "enter", "escape", "space", "backspace", "delete", "ctrl+home", "ctrl+end", "ctrl+d", "ctrl+u",
)  # fmt: skip
_COMMANDS = (
    "f1", "f2", "f4", "f5", "f8", "f9", "ctrl+c", "ctrl+p", "ctrl+q", "ctrl+s", "ctrl+y", "ctrl+z",
    "ctrl+a", "ctrl+k", "ctrl+v",
)  # fmt: skip
_PHRASES: tuple[tuple[str, ...], ...] = (
    (":", *"theme", "enter", "enter"),
    (":", *"ansi", "enter"),
    ("&", "a", "enter"),
    ("&", "!", "1", "enter"),
    ("&", "z", "z", "enter", "G", "v"),
    ("/", "1", "enter", "n", "N"),
    ("v", "k", "k", "y"),
    ("v", "up", "&", "b", "enter", "j"),
    ("m", "o", "o", "e"),
    ("escape", "escape", "escape"),
    ("c", "enter"),
    ("a", "1", "enter"),
    ("f4", "1", "down", "x", "enter"),
    ("G", "end", "plus", "x", "enter", "minus", "x"),
    ("tab", "[", "x", "=", "enter", "escape"),
    ("tab", "ctrl+z", "ctrl+y", "escape", "u"),
    ("x", "x", "x", "u"),
    ("a", "g", "enter", "plus", "enter"),
    ("'", "w", "enter"),
)
_CHATTER = (
    b"After %d training steps (%d global steps), loss on training batch is 0.4512.\n",
    b"\x1b[31mERROR\x1b[0m step %d of %d\n",
    b"Traceback (most recent call last): %d %d\n",
    b"progress %d\rprogress %d",
    b"[bold]%d[/] [@click=app.bell]%d[/] [/nothing\n",
    b"a %d b %d\n" * 40,
)
Event = tuple[str, ...]


class MonkeyClients(RunClients):
    """Opens scripted runs instead of launching anything."""

    def __init__(self, make: Callable[[], ScriptedRun]) -> None:
        super().__init__()
        self._make = make

    def launch(self, cluster: ClusterModel, text: str, ask: Any, resume: str | None = None) -> Any:
        return self._make()

    def attach(self, run_id: str, ask: Any) -> Any:
        return self._make()


async def preflight_without_hosts(
    cluster: ClusterModel, ask: Any, found: Callable[[Finding | Reachability], None], **_: Any
) -> Report:
    """Finds something on every host, and nothing out."""
    hosts = list(dict.fromkeys(t.host for job in cluster.jobs.values() for t in job.tasks))
    rng = random.Random(len(hosts))
    findings: list[Finding] = []
    pairs: list[Reachability] = []
    for host in hosts:
        for check in CHECKS:
            severity = rng.choice(list(Severity))
            findings.append(Finding(severity, check, "code", host, "[b]x", "told [/] in full", ""))
            found(findings[-1])
            await asyncio.sleep(0)
        pair = Reachability(host, TaskId("worker", 0), host, "a:1", rng.choice(list(Reach)))
        pairs.append(pair)
        found(pair)
    return Report(cluster.name, tuple(hosts), tuple(findings), tuple(pairs), (), 0.1)


def actions(seed: int, count: int = KEYS) -> Iterator[Event]:
    """Keys mostly, some of them in phrases that lead somewhere; sizes, clicks and drags."""
    rng = random.Random(seed)
    done = 0
    while done < count:
        dice = rng.random()
        if dice < 0.40:
            yield ("key", rng.choice(string.ascii_letters + string.digits))
        elif dice < 0.47:
            yield ("key", rng.choice(string.punctuation))
        elif dice < 0.77:
            yield ("key", rng.choice(_MOVES))
        elif dice < 0.80:
            yield ("key", rng.choice(_COMMANDS))
        elif dice < 0.87:
            phrase = rng.choice(_PHRASES)
            for key in phrase:
                yield ("key", key)
            done += len(phrase) - 1
        elif dice < 0.92:
            yield ("size", str(rng.randint(40, 220)), str(rng.randint(8, 60)))
        else:
            kind = rng.choice(("click", "double", "drag", "wheel"))
            yield (kind, *(f"{rng.random():.3f}" for _ in range(4)))
        done += 1


class Monkey:
    """One monkey on one app. What it did is in `done`, in case the app falls over."""

    def __init__(self, folder: Path, start: str, seed: int) -> None:
        self.folder = folder
        self.start = start
        self.rng = random.Random(seed)
        self.seed = seed
        self.done: list[Event] = []
        self._runs: list[ScriptedRun] = []

    def new_run(self) -> ScriptedRun:
        """A run of three chatty tasks."""
        folder = self.folder / f"run-{len(self._runs)}"
        folder.mkdir()
        run = ScriptedRun(folder, workers=self.rng.choice((2, 2, 2, 30)), hosts=2)
        run.all_tasks(state=TaskState.RUNNING, started=time.time())
        run.change(state=RunPhase.RUNNING)
        self._runs.append(run)
        for _ in range(30):
            self.chat(run)
        return run

    def chat(self, run: ScriptedRun) -> None:
        """Something happens in a run."""
        rng = self.rng
        task = rng.choice(run.snapshot().tasks)
        dice = rng.random()
        if dice < 0.75:
            line = rng.choice(_CHATTER)
            numbers = tuple(rng.randint(1, 9999) for _ in range(line.count(b"%d")))
            run.write(str(task.id), line % numbers)
        elif dice < 0.85:
            log = run.logs.open(task.id)
            log.append(log.size, rng.choice(WORST_TEXTS).make(2000) + b"\n", time.time())
        elif dice < 0.93:
            size = run.logs.open(task.id).size
            attempts = (*task.attempts, AttemptStart(len(task.attempts) + 2, size, time.time()))
            run.task(str(task.id), state=rng.choice(list(TaskState)), attempts=attempts)
        elif dice < 0.97:
            notes = (*run.snapshot().notes, "a note [bold] of [@click=app.quit]x[/] [/oops")
            run.change(notes=notes)
        elif dice < 0.98:
            failure = Failure(task.id, task.host, "exit 1 [/]", time.time(), (), ("[/b] tail",))
            run.end(Outcome.FAILED, 1, failure)

    def app(self) -> TfmuxApp:
        """A new app on the screen where this monkey begins."""
        if self.start not in ("home", "editor", "preflight"):
            return TfmuxApp(self.new_run(), config=Config())
        clients = MonkeyClients(self.new_run)
        return TfmuxApp(pages=[HomeScreen(clients)], config=Config())

    async def run(self, count: int = KEYS) -> None:
        """Presses the keys; an app that is left is opened again. Raises what the app raises."""
        todo = actions(self.seed, count)
        try:
            more = True
            while more:
                app = self.app()
                async with app.run_test(size=(120, 40), notifications=True) as pilot:
                    await self._begin(pilot)
                    more = await self._play(pilot, todo)
        finally:
            for run in self._runs:
                run.logs.close()

    async def _begin(self, pilot: Pilot[int]) -> None:
        app = pilot.app
        keys: dict[str, tuple[str, ...]] = {
            "metrics": ("M",), "merged": ("m",), "hosts": ("H",), "help": ("question_mark",),
            "palette": ("colon",), "dialogs": ("q",),
            "themes": ("colon", *"theme", "enter"), "filters": ("ampersand", "a", "enter", "v"),
        }  # fmt: skip
        if self.start in ("editor", "preflight"):
            home = app.screen
            assert isinstance(home, HomeScreen)
            path = library.saved()[-1]
            if self.start == "editor":
                app.push_screen(EditorScreen(path, home.clients, home.prompts))
            else:
                cluster = loads(path.read_text(), path.name, path.parent)
                app.push_screen(home.preflight(cluster, path))
            await pilot.pause()
        await pilot.press(*keys.get(self.start, ()))

    async def _play(self, pilot: Pilot[int], todo: Iterator[Event]) -> bool:
        """Plays on; False when there is nothing left to play."""
        for event in todo:
            self.done.append(event)
            with suppress(OutOfBounds, NoWidget):  # the screen has become smaller meanwhile
                await self._act(pilot, event)
            if self._runs and self.rng.random() < 0.4:
                self.chat(self._runs[-1])
            if pilot.app._exception is not None or not pilot.app.is_running:
                return True
        # The end of a test takes screens down under keys that have not been handled yet.
        await pilot.pause()
        app = pilot.app
        assert isinstance(app, TfmuxApp)
        await until(lambda: not app.is_running or not app.handles_keys, "keys")
        return False

    async def _press(self, pilot: Pilot[int], key: str) -> None:
        """Presses a key, and does not always wait for what comes of it. A pilot's own way takes
        as long as the whole process is busy."""
        name = _character_to_key(key) if len(key) == 1 and not key.isalnum() else key
        driver = pilot.app._driver
        assert driver is not None
        char = {"space": " "}.get(key, key if len(key) == 1 else None)
        event = events.Key(name, char)
        event.set_sender(pilot.app)
        driver.send_message(event)
        if self.rng.random() < 0.7:
            await asyncio.sleep(0.005)
            await pilot._wait_for_screen()

    async def _act(self, pilot: Pilot[int], event: Event) -> None:
        width, height = pilot.app.size
        match event:
            case ("key", key):
                await self._press(pilot, key)
            case ("size", columns, rows):
                await pilot.resize_terminal(int(columns), int(rows))
            case (kind, *places):
                x, y, x2, y2 = (float(place) for place in places)
                begin = (int(x * width), int(y * height))
                end = (int(x2 * width), int(y2 * height))
                if kind in ("click", "double"):
                    await pilot.click(offset=begin, times=2 if kind == "double" else 1)
                elif kind == "drag":
                    await pilot.mouse_down(offset=begin)
                    await pilot.hover(offset=end)
                    await pilot.mouse_up(offset=end)
                else:
                    await pilot.hover(offset=begin)
                    name = "pageup" if x2 < 0.5 else "pagedown"
                    await pilot.press(name)


@contextmanager
def monkeys_home(folder: Path) -> Iterator[None]:
    """Saved clusters, past runs, a folder for what is saved, and a preflight that asks nobody.
    The home directories are the caller's: they must be nobody's."""
    library.create("mine", SLEEPERS.format(name="mine"))
    library.create("broken", 'name = "broken"\n[jobs.worker]\ntasks = ["a"]\ncommand = ["x"]\n')
    library.create("other", render(ONE_MACHINE, "other", {}, folder))
    text = SLEEPERS.format(name="past")
    RunFolder.create("past-20261120-183002-7f3a", text, loads(text, "past.toml", folder))
    before = Path.cwd()
    os.chdir(folder)
    try:
        with patch("tui.screens.preflight_screen.preflight", preflight_without_hosts):
            yield
    finally:
        os.chdir(before)


def _watch(monkey: Monkey) -> Awaitable[None]:
    return asyncio.wait_for(monkey.run(), 120)


def main() -> None:
    """Many monkeys, one after the other, each in a home of its own."""
    first = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    seeds = int(sys.argv[2]) if len(sys.argv) > 2 else 100
    seen: dict[str, int] = {}
    for seed in range(first, first + seeds):
        start = STARTS[seed % len(STARTS)]
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
            folder = Path(name)
            for variable in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"):
                os.environ[variable] = str(folder / variable)
                (folder / variable).mkdir()
            monkey = Monkey(folder, start, seed)
            began = time.monotonic()
            told = "fine"
            try:
                with monkeys_home(folder), suppress(KeyboardInterrupt):
                    asyncio.run(_watch(monkey))  # type: ignore[arg-type]
            except BaseException as error:
                lines = traceback.format_exception(error)
                told = lines[-1].strip()
                seen[told] = seen.get(told, 0) + 1
                if seen[told] == 1:
                    print("".join(lines), "\nlast:", monkey.done[-12:], flush=True)
        print(f"seed {seed} {start} {time.monotonic() - began:.1f} s: {told}", flush=True)
    print(seen)


if __name__ == "__main__":
    main()
