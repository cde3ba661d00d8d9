"""Records the README's moving picture, `docs/recording.svg`, from a real run: `make recording`.

Four hosts of the testbed (network namespaces with real OpenSSH; needs root, ip and sshd) train on
real MNIST, 1 ps and 3 workers. They start in order; then a worker is killed on its host, as the
kernel does when memory is full; F9 ends the rest.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from textual.pilot import Pilot

from bench.report import own_home
from docs.moving_picture import MovingPicture
from launcher.cluster import load
from launcher.ids import TaskId
from launcher.run.states import RunPhase
from launcher.session.client import RunClient
from tests.testbed.namespaces import Testbed
from tui.app import TfmuxApp

TARGET = Path(__file__).with_name("recording.svg")
SIZE = (120, 34)
CLUSTER = """
name = "mnist"
{hosts}
[jobs.ps]
tasks = ["tf1:2222"]
[jobs.worker]
tasks = ["tf2:2222", "tf3:2222", "tf4:2222"]
[run]
command = ["{{python}}", "{{trainer}}", "async", "--job_name={{job}}", "--task_index={{index}}",
           "--ps_hosts={{ps_hosts}}", "--worker_hosts={{worker_hosts}}", "--logdir={{logdir}}",
           "--data=/opt/data", "--steps=20000"]
workdir = ""
on_failure = "keep"
[metrics]
total = 20000
"""
_EVERY = 0.4
"""Seconds between two pictures."""
_SPEED = 1.6
"""Times faster than it was."""
_PATIENCE = 240.0


class _Recorder:
    def __init__(self, app: TfmuxApp, pilot: Pilot[int]) -> None:
        self._app = app
        self._pilot = pilot
        self.picture = MovingPicture(*SIZE)

    def record(self, seconds: float) -> None:
        """One picture, to be shown so long."""
        self.picture.add(self._app.export_screenshot(simplify=True), seconds)

    async def until(self, condition: Callable[[], bool], *, longest: float = _PATIENCE) -> None:
        """Records until something is so; at most `longest` seconds of it are kept."""
        started = time.monotonic()
        while not condition():
            now = time.monotonic()
            if now - started > _PATIENCE:
                raise TimeoutError
            if now - started < longest:
                self.record(_EVERY / _SPEED)
            await self._pilot.pause(_EVERY)
        self.record(_EVERY)

    async def press(self, *keys: str, seconds: float) -> None:
        """Presses keys, and shows for so long what comes of it."""
        await self._pilot.press(*keys)
        await self._pilot.pause(0.3)
        self.record(seconds)


async def _record(session: RunClient, testbed: Testbed) -> MovingPicture:
    app = TfmuxApp(session)
    async with app.run_test(size=SIZE) as pilot:
        recorder = _Recorder(app, pilot)

        def steps() -> int:
            return session.snapshot().step or 0

        await recorder.until(
            lambda: all(t.step for t in session.snapshot().tasks if t.id.job == "worker")
        )
        base = steps()
        await recorder.until(lambda: steps() > base + 2500, longest=5)
        await recorder.press("M", seconds=2.0)
        await recorder.press("escape", seconds=0.4)
        victim = session.snapshot().task(TaskId("worker", 2))
        testbed["tf4"].run(["kill", "-KILL", str(victim.pid)])
        await recorder.until(lambda: session.snapshot().first_failure is not None)
        await recorder.press("4", seconds=4.0)
        await recorder.press("f9", seconds=0.6)
        await recorder.until(lambda: session.snapshot().state is RunPhase.ENDED)
        await pilot.pause(0.5)
        recorder.record(5.0)
        await pilot.press("q")
    return recorder.picture


def main() -> None:
    """One run, one picture."""
    os.environ.update(TERM="xterm-256color", COLORTERM="truecolor")
    data = Path(os.environ["TFMUX_TEST_DATA"])
    with own_home() as home, Testbed(data) as testbed:
        text = CLUSTER.format(hosts=testbed.hosts_toml())
        file = home / "mnist-async.toml"
        file.write_text(text)
        session = RunClient.launch(load(file), text)
        session.await_state()
        try:
            picture = asyncio.run(_record(session, testbed))
        finally:
            if session.living:
                session.kill_all()
            session.wait(60)
    picture.write(TARGET)
    sys.stdout.write(f"{TARGET.name}: {TARGET.stat().st_size / 1e3:.0f} kB\n")


if __name__ == "__main__":
    main()
