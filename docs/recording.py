"""Records the README's moving picture, `docs/recording.svg`, from a real run: `make recording`.

Four hosts of the testbed (network namespaces with real OpenSSH; needs root, ip and sshd) train on
1 ps and 3 workers. A worker is killed on its host, as the kernel does when memory is full; the
cause is named, one key launches the run again, F9 ends it. How fast the machine is makes no
difference: what a scene waits for is cut to the scene's length.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path

from textual.pilot import Pilot

from bench.report import own_home
from docs.moving_picture import MovingPicture
from docs.screenshots import launched, press, until
from launcher.client.run_client import RunClient
from launcher.cluster.read import load
from launcher.ids import TaskId
from launcher.run.snapshot import Snapshot
from launcher.run.states import RunPhase
from tests.testbed.namespaces import Testbed
from tui.app import TfmuxApp
from tui.run_clients import RunClients
from tui.screens.prompt_dialogs import PromptDialogs

TARGET = Path(__file__).with_name("recording.svg")
SIZE = (104, 30)
"""Columns and lines that can be read where GitHub shows a page 900 pixels wide."""
LARGEST = 600_000
"""Bytes of the moving picture, which every reader of the README loads."""
STEPS = 10_000
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
           {data}"--steps={steps}"]
workdir = ""
[start]
timeout = 900
[metrics]
total = {steps}
"""
_VICTIM = TaskId("worker", 2)
_EVERY = 0.3
"""Seconds between two looks at the screen."""
_SHOWN = 0.3
"""Seconds for which a picture of a scene is shown."""
_PATIENCE = 900.0


class _Recorder:
    def __init__(self, app: TfmuxApp, pilot: Pilot[int]) -> None:
        self._app = app
        self._pilot = pilot
        self.picture = MovingPicture(*SIZE)

    def now(self) -> Snapshot:
        """The run on the screen, as it is."""
        assert self._app.control is not None
        return self._app.control.snapshot()

    async def scene(self, caption: str, seconds: float, until: Callable[[], bool]) -> None:
        """Records until something is so, and shows it for some seconds, however long it took: some
        of its pictures, at equal distances, and the last."""
        taken = [self._screen()]
        async with asyncio.timeout(_PATIENCE):
            while not until():
                await asyncio.sleep(_EVERY)
                taken.append(self._screen())
        count = min(len(taken), round(seconds / _SHOWN))
        for number in range(1, count + 1):
            self.picture.add(taken[number * len(taken) // count - 1], seconds / count, caption)

    async def press(self, key: str, caption: str, seconds: float) -> None:
        """Presses a key, and shows for some seconds what comes of it."""
        await press(self._pilot, key)
        self.picture.add(self._screen(), seconds, caption)

    def _screen(self) -> str:
        return self._app.export_screenshot(simplify=True)


async def _record(run: RunClient, clients: RunClients, testbed: Testbed) -> MovingPicture:
    app = TfmuxApp(run, prompts=PromptDialogs(), clients=clients)
    async with app.run_test(size=SIZE) as pilot:
        recorder = _Recorder(app, pilot)
        now = recorder.now

        def past(step: int) -> Callable[[], bool]:
            return lambda: (now().step or 0) > step

        def trains() -> bool:
            if now().state is RunPhase.ENDED:
                raise RuntimeError(f"the run has ended before it trained: {now().first_failure}")
            return all(task.step for task in now().tasks if task.id.job == "worker")

        await until(lambda: trains() and past(1500)())
        await recorder.scene("1 ps and 3 workers on four hosts", 5.0, past(3000))
        await recorder.press("M", "M: loss and speed of all tasks", 3.0)
        await recorder.press("escape", "Esc: back to the logs", 0.8)
        testbed["tf4"].run(["kill", "-KILL", str(now().task(_VICTIM).pid)])
        await recorder.scene(
            "worker:2 is killed on its host", 2.0, lambda: now().state is RunPhase.ENDED
        )
        await asyncio.sleep(0.6)
        await recorder.press("!", "The cause is named; the other tasks have been ended", 5.0)
        await recorder.press("l", "l: launch it again", 0.8)
        await recorder.scene("Hosts are connected, then ps, chief and workers start", 5.0, trains)
        await recorder.scene("It trains again", 3.0, past(1500))
        await recorder.press("f9", "F9: kill all, on all hosts", 0.8)
        await recorder.scene(
            "F9: kill all, on all hosts", 0.8, lambda: now().state is RunPhase.ENDED
        )
        await asyncio.sleep(0.6)
        await recorder.scene("Every host has confirmed: no process is left", 4.0, lambda: True)
        await press(pilot, "q")
    return recorder.picture


def main() -> None:
    """One picture of two runs."""
    os.environ.update(TERM="xterm-256color", COLORTERM="truecolor")
    digits = os.environ.get("TFMUX_TEST_DATA")
    data = Path(digits) if digits else None
    with own_home() as home, Testbed(data) as testbed:
        flag = f'"--data={testbed["tf1"].data}", ' if data else ""
        text = CLUSTER.format(hosts=testbed.hosts_toml(), data=flag, steps=STEPS)
        file = home / "mnist.toml"
        file.write_text(text)
        run = launched(load(file), text)
        clients = RunClients(launched=[run])
        try:
            picture = asyncio.run(_record(run, clients, testbed))
        finally:
            clients.close()
    picture.write(TARGET)
    size = TARGET.stat().st_size
    sys.stdout.write(f"docs/{TARGET.name}: {size / 1e3:.0f} kB\n")
    if size > LARGEST:
        sys.exit(f"larger than {LARGEST / 1e3:.0f} kB: show fewer pictures")


if __name__ == "__main__":
    main()
