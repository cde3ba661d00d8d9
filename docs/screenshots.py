"""Makes the pictures of all screens: `make screenshots`.

A real training (the default demo) runs behind the screens, in a home of its own, so the pictures
show what a person sees. Each is an SVG in `docs/`.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from textual.pilot import Pilot, WaitForScreenTimeout
from textual.widgets import DataTable, Static

from bench.report import own_home
from launcher.client.run_client import RunClient
from launcher.cluster.file_model import ClusterModel
from launcher.cluster.read import load
from launcher.run.snapshot import Snapshot
from launcher.run.states import RunPhase
from tests.support.nvidia_smi import FakeNvidiaSmi, gpu
from tests.support.nvidia_smi import app as gpu_process
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
_PATIENCE = 900.0
STEPS = 12000
PATIENT = "timeout = 900\n"
"""On a busy machine a slow import is no failure of which to make a picture."""
GPUS = """
name = "llm"
{hosts}
[jobs.worker]
tasks = ["node1:auto", "node1:auto", "node1:auto", "node1:auto",
         "node2:auto", "node2:auto", "node2:auto", "node2:auto"]
ready = "started"
[run]
workdir = ""
command = ["{{python}}", "-c", '''
import time
for step in range(1, 2000):
    print("step", step, "loss", round(2 + 8 / step, 4), flush=True)
    time.sleep(0.5)
''']
[metrics]
total = 2000
"""
PREFLIGHT = """
name = "mnist"
{hosts}
[jobs.ps]
tasks = ["tf1:auto"]
[jobs.worker]
tasks = ["tf2:auto", "tf3:auto", "tf4:auto"]
[run]
workdir = ""
command = ["{{python}}", "{{trainer}}", "async", "--job_name={{job}}", "--task_index={{index}}",
           "--ps_hosts={{ps_hosts}}", "--worker_hosts={{worker_hosts}}", "--logdir={{logdir}}"]
"""


def save(app: TfmuxApp, name: str) -> None:
    """Writes the screen as `docs/NAME.svg`; fonts come from the reader's machine."""
    svg = _FONTS.sub("", app.export_screenshot(title="tfmux"))
    for folder, shown in {os.environ["HOME"]: "~", **SHOWN_AS}.items():
        # The length that is written beside a text would stretch the shorter one.
        length = rf'textLength="[^"]*"([^>]*>[^<]*){re.escape(folder)}'
        svg = re.sub(length, rf"\1{shown}", svg).replace(folder, shown)
    (FOLDER / f"{name}.svg").write_text(svg)
    sys.stdout.write(f"docs/{name}.svg\n")


async def until(condition: Callable[[], bool]) -> None:
    """Lets the app go on until something is so."""
    async with asyncio.timeout(_PATIENCE):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    await asyncio.sleep(0.5)


async def press(pilot: Pilot[Any], *keys: str) -> None:
    """Presses keys and lets the screen settle."""
    with suppress(WaitForScreenTimeout):  # on a busy machine some message waits at any time
        await pilot.press(*keys)
    await asyncio.sleep(0.5)


async def running(session: RunClient) -> None:
    """The run screen and everything that opens from it."""
    app = TfmuxApp(session)
    async with app.run_test(size=SIZES[0]) as pilot:

        def now() -> Snapshot:
            return session.snapshot()

        await until(lambda: all(t.step for t in now().tasks if t.id.job == "worker"))
        await until(lambda: (now().step or 0) > STEPS // 6)
        for width, height in SIZES:
            await pilot.resize_terminal(width, height)
            await asyncio.sleep(0.8)
            save(app, f"run-{width}x{height}")
        await press(pilot, "M")
        save(app, "metrics")
        await press(pilot, "escape", "b")
        while not app.screen.query_one("#groups", DataTable).row_count:  # hosts may be busy
            await press(pilot, "f5")
            await asyncio.sleep(4.0)
        save(app, "stacks")
        await press(pilot, "escape")
        await press(pilot, "tab", "z", "slash", *"loss", "enter")
        save(app, "search")
        await press(pilot, "escape", "escape")
        await press(pilot, "f9")
        await until(lambda: now().state is RunPhase.ENDED)
        await asyncio.sleep(0.5)
        save(app, "receipt")
        await press(pilot, "q")


async def failed(session: RunClient) -> None:
    """The run screen once a task has failed, and the run with it."""
    app = TfmuxApp(session)
    async with app.run_test(size=SIZES[1]) as pilot:
        await until(lambda: session.snapshot().state is RunPhase.ENDED)
        await asyncio.sleep(0.5)
        save(app, "failure")
        await press(pilot, "q")


async def cause(session: RunClient) -> None:
    """The cause of a failure that most tasks only report: another one was killed."""
    app = TfmuxApp(session)
    async with app.run_test(size=(120, 24)) as pilot:
        await until(lambda: all(task.step for task in session.snapshot().tasks))
        victim = session.snapshot().tasks[-1].pid
        assert victim is not None
        os.kill(victim, signal.SIGKILL)
        await until(lambda: session.snapshot().state is RunPhase.ENDED)
        await press(pilot, "C")
        save(app, "cause")
        await press(pilot, "escape", "q")


async def gpus(smis: list[FakeNvidiaSmi], stranger: int, session: RunClient) -> None:
    """Hosts with GPUs, as programs `nvidia-smi` of ours report them; a stranger uses one GPU."""
    app = TfmuxApp(session)
    async with app.run_test(size=(140, 40)) as pilot:
        await until(lambda: all(task.step for task in session.snapshot().tasks))
        tasks = session.snapshot().tasks
        for busy in (93, 97, 88, 95, 91, 96):
            for smi, host in zip(smis, session.snapshot().hosts, strict=True):
                pids = [task.pid or 0 for task in tasks if task.host == host.name]
                apps = [gpu_process(number, pid, "61222") for number, pid in enumerate(pids)]
                rows = [
                    gpu(number, utilization__gpu=str(load), memory__used="61640")
                    for number, load in enumerate((busy, busy - 4, busy + 2, busy - 1))
                ]
                if smi is smis[0]:
                    apps.append(gpu_process(3, stranger, "79120"))
                    rows[3].update({"memory.used": "140760", "utilization.gpu": "31"})
                smi.say(gpu=rows, apps=apps)
            await asyncio.sleep(5.0)
        await press(pilot, "H")
        await asyncio.sleep(1.0)
        save(app, "hosts")
        await press(pilot, "escape", "q")


async def overshoot(session: RunClient) -> None:
    """The losses of one, of two in step, and of two one by one, at the same high rate."""
    app = TfmuxApp(session)
    async with app.run_test(size=(120, 30)) as pilot:
        await until(lambda: session.snapshot().state is RunPhase.ENDED)
        await press(pilot, "escape", "M", "t")
        save(app, "overshoot")
        await press(pilot, "escape", "q")


async def home() -> None:
    """The home screen with that run in it, and the editor on an example."""
    sessions = RunClients()
    file = Path(shutil.copy(EXAMPLE, Path.home()))
    first = HomeScreen(sessions, [file])
    app = TfmuxApp(pages=[first])
    async with app.run_test(size=(120, 40)) as pilot:
        await asyncio.sleep(2.0)
        save(app, "home")
        app.push_screen(first.editor(file))
        await asyncio.sleep(1.5)
        save(app, "editor")
        await pilot.resize_terminal(80, 24)
        await press(pilot, "space")
        save(app, "plan")


async def preflight(path: Path) -> None:
    """The preflight of four hosts whose Python lacks what the program needs."""
    sessions = RunClients()
    first = HomeScreen(sessions, [path])
    app = TfmuxApp(pages=[first])
    async with app.run_test(size=(120, 40)) as pilot:
        await asyncio.sleep(2.0)
        await press(pilot, "T")
        title = app.screen.query_one("#title", Static)
        await until(lambda: "checking" not in str(title.render()))
        save(app, "preflight")


def launched(cluster: ClusterModel, text: str) -> RunClient:
    """A run that has just been launched."""
    session = RunClient.launch(cluster, text)
    session.await_state()
    return session


def end(session: RunClient) -> None:
    """Ends a run, whatever its state."""
    if session.living:
        session.kill_all()
    session.wait(60)


def picture(
    file: Path, text: str, screens: Callable[[RunClient], Coroutine[Any, Any, None]]
) -> None:
    """Launches a cluster for the pictures that need its run, and ends it."""
    start = "[start]\n"
    text = text if start in text else f"{text}\n{start}"
    text = text.replace(start, start + PATIENT)
    file.write_text(text)
    session = launched(load(file), text)
    try:
        asyncio.run(screens(session))
    finally:
        end(session)


def hosts_here(*names: str) -> str:
    """Tables of hosts that are all this machine; each finds its own programs first in the folder of
    its name in the home."""
    via = 'via = ["env", "PATH={home}/{name}:{path}"]\naddress = "127.0.0.1"\n'
    home, path = Path.home(), "/usr/local/bin:/usr/bin:/bin"
    return "".join(f"[hosts.{n}]\n{via.format(home=home, name=n, path=path)}" for n in names)


def main() -> None:
    """All pictures, in colours that do not depend on the terminal."""
    os.environ.update(TERM="xterm-256color", COLORTERM="truecolor")
    with own_home() as folder:
        text = find("async").read_text().replace("2000", str(STEPS))
        file = folder / "mnist-async.toml"
        picture(file, text, running)
        picture(file, text.replace('"--steps', '"--data=data/mnist", "--steps'), failed)
        text = find("all-reduce").read_text()
        text = text.replace('"localhost:auto"', '"localhost:auto", "localhost:auto"', 1)
        picture(folder / "mnist-all-reduce.toml", text, cause)
        picture(folder / "mnist-overshoot.toml", find("overshoot").read_text(), overshoot)
        smis = [FakeNvidiaSmi(Path.home() / name) for name in ("node1", "node2")]
        for smi in smis:
            smi.say(gpu=[gpu(number) for number in range(4)])
        argv = [sys.executable, "-c", "input()", "sweep.py"]
        with subprocess.Popen(argv, stdin=subprocess.PIPE) as stranger:
            text = GPUS.format(hosts=hosts_here("node1", "node2"))
            picture(folder / "llm.toml", text, partial(gpus, smis, stranger.pid))
            stranger.kill()
        asyncio.run(home())
        (Path.home() / "venv").symlink_to(sys.prefix)
        file.write_text(PREFLIGHT.format(hosts=hosts_here("tf1", "tf2", "tf3", "tf4")))
        asyncio.run(preflight(file))


if __name__ == "__main__":
    main()
