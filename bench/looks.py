"""What looks at a run cost the launcher process: a kill beside one that spins, and the loop when
256 tasks fail at once.

    python -m bench.looks [--rounds 5]

A look reads text that other programs print, in another process. Four tasks run here; their stacks
are asked for, and with `spins` the reader never comes to an end of that. When it is at it, the run
is killed: from the command until none of the tasks is left. Then the processor time that the
launcher's loop takes to have 256 failed tasks judged, each with a log of 120 lines, and to ask of
each whether another one is at fault.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from bench import processor
from bench.report import Row, interleave, own_home, run
from bench.terminal import until
from launcher.agent import processes
from launcher.client.run_client import RunClient
from launcher.cluster.read import loads
from launcher.ids import TaskId
from launcher.process.bulkhead import Bulkhead
from launcher.process.gpu_watch import GpuWatch
from launcher.process.judge import Judge
from launcher.reading.looks import Victims
from launcher.run import events as ev
from launcher.run.machine import RunStateMachine

PLANTS = Path(__file__).resolve().parent.parent / "tests" / "support" / "plants"
TASKS, FAILED = 4, 256
CLUSTER = """
[jobs.worker]
tasks = [{tasks}]
[run]
command = ["sleep", "{seconds}"]
workdir = ""
framework = "none"
"""
SECONDS = 100_000
"""By which the tasks are found; nobody sleeps for so long."""
SPINS_FOR = 0.6
"""Processor seconds after which a reader has imported all and is at its question."""
LINES = 40
SAID = """\
  File "/srv/project/train.py", line {number}, in train
    loss = step(batch)
RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer \
[10.0.0.{number}]:29500
"""
RAISED = b"""\
Traceback (most recent call last):
  File "/srv/project/train.py", line 7, in <module>
ValueError: bad sample
"""


def text(tasks: int) -> str:
    """A cluster file of so many tasks here."""
    return CLUSTER.format(tasks=", ".join(['"localhost:auto"'] * tasks), seconds=SECONDS)


def tasks_here() -> list[int]:
    """The pids of the tasks."""
    wanted = b"sleep\0%d\0" % SECONDS
    return [pid for pid in processes.table() if _argv(pid) == wanted]


def _argv(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def is_spinning(launcher: int) -> bool:
    """A reader of a launcher process is at a question that has no end."""
    readers = [
        one.pid
        for one in processes.table().values()
        if one.ppid == launcher and b"launcher.reading.reader" in _argv(one.pid)
    ]
    return any(processor.seconds(pid) > SPINS_FOR for pid in readers)


def kill(*, spins: bool) -> float:
    """Milliseconds from the command until no task is left."""
    planted = {"PYTHONPATH": str(PLANTS), "PLANT": "spin", "PLANT_IN": "hangs"} if spins else {}
    with own_home(), patch.dict(os.environ, planted):
        client = RunClient.launch(loads(text(TASKS), "looks.toml", Path("/")), text(TASKS))
        until(lambda: len(tasks_here()) == TASKS)
        asked = client.request_stacks(None)
        if spins:
            launcher = client.folder.launcher_pid() or 0
            until(lambda: is_spinning(launcher))
        else:
            asked.result()
        began = time.perf_counter()
        client.kill_all()
        until(lambda: not tasks_here(), pace=0.0005)
        took = time.perf_counter() - began
        if not client.wait():
            raise SystemExit("the run does not end")
        client.close()
    return 1000 * took


class FailedRun:
    """A run of which all tasks have failed, as far as `Judge` looks at it."""

    def __init__(self) -> None:
        machine = RunStateMachine(loads(text(FAILED), "looks.toml", Path("/")), "r")
        machine.handle(ev.Begin(1.0))
        self.data, self.gauges = machine.data, machine.gauges
        for task in self.data.tasks:
            self.data.update_task(task, attempt=1, exit_code=1, ended=2.0)
        self.logs = {
            task: "".join(SAID.format(number=at % 250) for _ in range(LINES)).encode()
            for at, task in enumerate(self.data.tasks)
        }
        self.logs[next(iter(self.logs))] = RAISED
        self.bulkhead = Bulkhead()
        self.verdicts: list[object] = []

    def feed(self, event: ev.Judged) -> None:
        self.verdicts.append(event.verdict)

    def size(self, task: TaskId) -> int:
        return len(self.logs[task])

    def read_end(self, task: TaskId, size: int, told: Callable[[bytes], None]) -> None:
        """As the monitor's thread does."""
        threading.Thread(target=told, args=(self.logs[task],)).start()

    async def judged(self) -> float:
        """Milliseconds of a processor that the loop takes."""
        this: Any = self
        stacks: Any = SimpleNamespace(looks=())
        judge = Judge(this, stacks, this, GpuWatch(this, lambda sample: None))
        self.bulkhead.prepare()
        tails = tuple(tuple(log.decode().splitlines()[-20:]) for log in self.logs.values())
        before = time.thread_time()
        missing = await self.bulkhead.ask(Victims(tails))
        await judge.judge()
        took = time.thread_time() - before
        self.bulkhead.close()
        if missing != [False] + [True] * (FAILED - 1) or not self.verdicts:
            raise SystemExit("nothing was found")
        return 1000 * took


def measure(options: argparse.Namespace) -> Iterator[Row]:
    """The kill, then the loop."""
    sides = {"spins": partial(kill, spins=True), "quiet": partial(kill, spins=False)}
    found = interleave(sides, options.rounds)
    what = f"kill of {TASKS} tasks here with a look that spins: command to all dead"
    ours, theirs = tuple(found["spins"]), tuple(found["quiet"])
    yield Row(what, "ms", ours, "without", theirs, at_most=2)
    loop = tuple(asyncio.run(FailedRun().judged()) for _ in range(options.rounds))
    what = f"{FAILED} tasks that fail at once: processor time of the launcher's loop for looks"
    yield Row(what, "ms", loop, at_most=20)


if __name__ == "__main__":
    run(__doc__, measure)
