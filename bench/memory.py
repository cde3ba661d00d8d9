"""Memory of the process with the screen: many tasks with long logs, every page of them shown.

    python -m bench.memory [--tasks 64] [--lines 1000000]

The logs go through the log store, as they do in a run, with a metric's value four times a second;
then every page of panes is turned, a pane scrolled to its first line, the merged log of all tasks
opened, and the screen of metrics. Beside it stands an
empty app of the same toolkit.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

from textual.app import App

from bench.report import Row, interleave, run
from bench.terminal import SIZE
from launcher.run.states import RunPhase
from tests.support.fakes import ScriptedRun
from tui.app import TfmuxApp

CHUNK = 250
"""Lines that come at a time, four times a second; the last has a metric's value."""


def peak() -> float:
    """The most memory that this process ever had, in MB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1000
    raise RuntimeError("this kernel does not tell")


def in_a_process(work: Callable[[], None]) -> float:
    """Does something in a process of its own and returns its peak."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        work()
        os.write(write_end, str(peak()).encode())
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end) as pipe:
        found = float(pipe.read())
    os.waitpid(pid, 0)
    return found


def ours(tasks: int, lines: int) -> None:
    """The app on a run with many long logs."""
    with tempfile.TemporaryDirectory() as folder:
        scripted = ScriptedRun(Path(folder), ps=0, workers=tasks)
        names = [str(task.id) for task in scripted.snapshot().tasks]
        logs = [scripted.logs.open(task.id) for task in scripted.snapshot().tasks]
        now = time.time()
        for first in range(0, lines, CHUNK):
            last = min(lines, first + CHUNK) - 1
            chunk = b"".join(b"batch %d is done\n" % i for i in range(first, last))
            now += 0.25
            for name, log in zip(names, logs, strict=True):
                log.append(log.size, chunk, now)
                scripted.write(name, b"step %d loss 0.5\n" % last, now)
        scripted.change(state=RunPhase.RUNNING)

        async def look() -> None:
            async with TfmuxApp(scripted).run_test(size=SIZE) as pilot:
                for key in ("pagedown", *["]"] * 8, "home", "z", "m", "G", "m", "M"):
                    await pilot.press(key)
                    await pilot.pause(0.5)

        asyncio.run(look())
        scripted.logs.close()


def empty() -> None:
    """An app without anything."""

    async def look() -> None:
        async with App[None]().run_test(size=SIZE) as pilot:
            await pilot.pause(0.5)

    asyncio.run(look())


def measure(options: argparse.Namespace) -> Iterator[Row]:
    """Both peaks."""
    found = interleave(
        {
            "tfmux": lambda: in_a_process(lambda: ours(options.tasks, options.lines)),
            "empty": lambda: in_a_process(empty),
        },
        options.rounds,
    )
    yield Row(
        f"memory with the screen: {options.tasks} tasks of {options.lines:,} lines",
        "MB",
        tuple(found["tfmux"]),
        at_most=60,
        note=f"peak; an empty Textual app {median(found['empty']):.0f} MB",
    )


def extend(parser: argparse.ArgumentParser) -> None:
    """Adds how many tasks, and their lines."""
    parser.add_argument("--tasks", type=int, default=64)
    parser.add_argument("--lines", type=int, default=1_000_000)


if __name__ == "__main__":
    run(__doc__, measure, extend)
