"""The whole way of a flood: task → agent → disk → pane, beside what the machine can do.

    python -m bench.flood [--tasks 1 4 16] [--megabytes 1200] [--rounds 5]

`cat` of one prepared file of numbered lines by 1, 4 and 16 tasks at once. Plain files (`dd` to a
file) show what the machine can do at all, pipes (`cat | dd`) what it can do with a pipe in between.
All three wait for one gate, so that no start is measured, and each output is compared with what was
written, by its hash. tfmux is timed until its last exit is told, which it is when the last byte has
been stored and counted; its run screen shows the panes meanwhile, and a key is typed at it ten
times a second.

On a busy machine the ratios say little: the processor seconds beside them are to be trusted. They
are those of the programs that carry the bytes, and of `dd`, for each GB; the kernel's writing to
the disk, which comes later, is in none of them.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

from bench import processor
from bench.report import Row, interleave, run
from bench.terminal import Terminal, Typist, p95, until
from launcher.run.snapshot import TaskView
from launcher.run.states import TaskState
from launcher.store.runs import RunFolder
from launcher.store.stream import LineReader, read_end

LINE = "\x1b[32mINFO\x1b[0m 12:04:11 batch {:07d} of \x1b[1mepoch 3\x1b[0m took 12 ms, queue 4\n"
PEERS = ("plain files", "`cat | dd`")
PLAIN_BOUNDS = {1: 0.45, 4: 0.35, 16: 0.25}
"""Of the rate of plain files, by the number of tasks."""
SETTLE_SECONDS = 0.5
"""After the last exit, for the last frames of the screen."""


@dataclass(frozen=True)
class Flood:
    """Work of one round: a file that so many tasks print at once."""

    file: Path
    tasks: int

    @property
    def gigabytes(self) -> float:
        return self.file.stat().st_size * self.tasks / 1e9

    def verify(self, logs: Sequence[Path]) -> None:
        """Ends the program where an output is not what was written, byte for byte."""
        wanted = _hash(self.file)
        for log in logs:
            if _hash(log) != wanted:
                raise SystemExit(f"{log} is not what was written")


@dataclass(frozen=True)
class Took:
    """Seconds of a round, the processor seconds of those that carried the bytes, and the
    milliseconds that keys took."""

    seconds: float
    processor: dict[str, float]
    keys: tuple[float, ...] = ()


Measure = Callable[[Flood, Path], Took]
"""Does the work in an empty folder."""


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class Gate:
    """Named pipe at which programs wait until it is opened."""

    def __init__(self, folder: Path, name: str) -> None:
        self.path = folder / name
        os.mkfifo(self.path)

    def wait_and(self, ready: str, command: str) -> str:
        """A shell's words: says by a file that it is there, waits, becomes the command."""
        return f": > {ready}; read -r _ < {self.path}; exec {command}"

    def open(self, ready: Sequence[Path]) -> float:
        """Lets all through that wait, when they are there; returns the time of day."""
        until(lambda: all(path.exists() for path in ready))
        time.sleep(0.2)  # from the file to the opening of the pipe
        began = time.time()
        os.close(os.open(self.path, os.O_WRONLY))
        return began


def plain(flood: Flood, folder: Path) -> Took:
    """`dd` from the file into another one, as many at once: a read and a write of every byte.

    `cat FILE > OUT` would let the kernel share or copy the blocks, which no output of a program
    can have.
    """
    return _by_hand(flood, folder, "dd if={file} of={out} bs=128K status=none")


def piped(flood: Flood, folder: Path) -> Took:
    """`cat FILE | dd of=OUT`, as many at once: what is left to gain for anything that stands
    between a program and its file, so that a full disk or a limit does not reach the program."""
    return _by_hand(flood, folder, "sh -c 'cat {file} | dd of={out} bs=128K status=none'")


def _by_hand(flood: Flood, folder: Path, command: str) -> Took:
    gate = Gate(folder, "go")
    outs = [folder / f"out-{number}" for number in range(flood.tasks)]
    shells = []
    for out in outs:
        words = command.format(file=flood.file, out=out)
        argv = ["sh", "-c", gate.wait_and(f"{out}.ready", words)]
        shells.append(subprocess.Popen(argv))
    began = gate.open([out.with_suffix(".ready") for out in outs])
    used = 0.0
    for shell in shells:
        _, status, usage = os.wait4(shell.pid, 0)
        shell.returncode = os.waitstatus_to_exitcode(status)
        used += usage.ru_utime + usage.ru_stime
    seconds = time.time() - began
    flood.verify(outs)
    return Took(seconds, {"all": used})


def tfmux(flood: Flood, folder: Path) -> Took:
    """The run screen on a cluster of `cat`s; from the gate to the last exit that is told."""
    go, end = Gate(folder, "go"), Gate(folder, "end")
    places = ", ".join(['"localhost:auto"'] * flood.tasks)
    ready = [folder / f"ready-{number}" for number in range(flood.tasks)]
    cat = ["sh", "-c", go.wait_and(f"{folder}/ready-{{index}}", f"cat {flood.file}")]
    wait = ["sh", "-c", f"read -r _ < {end.path}"]  # keeps the run alive until all is measured
    cluster = folder / "cluster.toml"
    cluster.write_text(
        f'name = "flood"\n[jobs.worker]\ntasks = [{places}]\ncommand = {json.dumps(cat)}\n'
        f'[jobs.last]\ntasks = ["localhost:auto"]\ncommand = {json.dumps(wait)}\n'
        f'[run]\nworkdir = ""\nsuccess = "all"\n'
        f'[start]\norder = [["worker", "last"]]\n'
        f'[start.ready]\nworker = "started"\nlast = "started"\n'
    )
    screen = Screen(cluster, folder)
    took = screen.measure(lambda: go.open(ready), flood.tasks)
    end.open([])
    screen.close()
    flood.verify(screen.logs(flood.tasks))
    return took


class Screen:
    """`tfmux up` in a terminal, whose tasks `worker:N` flood."""

    def __init__(self, cluster: Path, folder: Path) -> None:
        self._folder = folder
        self._arrivals = folder / "arrivals"
        self._arrivals.touch()
        env = {"XDG_DATA_HOME": str(folder / "data"), "XDG_STATE_HOME": str(folder / "state")}
        words = ["-m", "bench.timed", str(self._arrivals), "up", str(cluster)]
        self._terminal = Terminal([sys.executable, *words], env)

    @property
    def _run(self) -> RunFolder:
        (path,) = (self._folder / "data" / "tfmux" / "runs").iterdir()
        return RunFolder(path)

    def measure(self, begin: Callable[[], float], tasks: int) -> Took:
        """From the time that `begin` returns until the last of the tasks has exited."""
        began = begin()
        typist = Typist(self._terminal, self._arrivals)
        processes = processor.of_run(self._run, self._terminal.process.pid)
        before = processor.sample(processes)
        until(lambda: len(self._ends()) == tasks, pace=0.05)
        time.sleep(SETTLE_SECONDS)
        after = processor.sample(processes)
        used = {name: after[name] - before[name] for name in processes}
        return Took(max(self._ends()) - began, used, tuple(typist.stop()))

    def close(self) -> None:
        """Leaves when the run has ended."""
        until(self._has_ended, pace=0.05)
        self._terminal.close(b"q")

    def logs(self, tasks: int) -> list[Path]:
        """The logs of the tasks here."""
        return [self._run.path / f"worker-{number}.log" for number in range(tasks)]

    def _ends(self) -> list[float]:
        """Times at which the exits of the flooding tasks were told."""
        return [
            record.time
            for record in LineReader(self._run.events).records()
            if isinstance(record, TaskView)
            and record.id.job == "worker"
            and record.state is TaskState.EXITED
        ]

    def _has_ended(self) -> bool:
        return read_end(self._run.events) is not None


def write_lines(path: Path, megabytes: float) -> Path:
    """Writes numbered lines into a file for one task."""
    count = max(1000, int(megabytes * 1_000_000) // len(LINE.format(0)))
    path.write_text("".join(LINE.format(number) for number in range(count)))
    return path


def in_folder(measure_one: Measure, flood: Flood) -> Took:
    """Measures in a folder that goes afterwards, with what was written there."""
    with tempfile.TemporaryDirectory() as folder:
        return measure_one(flood, Path(folder))


def measure(options: argparse.Namespace) -> Iterator[Row]:
    """Each number of tasks: both peers, processor seconds, keys."""
    sides = {"tfmux": tfmux, **dict(zip(PEERS, (plain, piped), strict=True))}
    for tasks in options.tasks:
        with tempfile.TemporaryDirectory() as name:
            flood = Flood(write_lines(Path(name) / "lines", options.megabytes / tasks), tasks)
            runs = {tool: partial(in_folder, one, flood) for tool, one in sides.items()}
            found = interleave(runs, options.rounds)
            yield from rows(flood, found)


def costs_a_gigabyte(
    flood: Flood, found: dict[str, list[Took]]
) -> dict[str, list[dict[str, float]]]:
    """Processor seconds of each part for a gigabyte, round by round."""
    return {
        side: [{who: used / flood.gigabytes for who, used in one.processor.items()} for one in them]
        for side, them in found.items()
    }


def parts(costs: list[dict[str, float]]) -> str:
    """The median of each part in words; `all` is the row's own figure."""
    names = [who for who in costs[0] if who != "all"]
    return ", ".join(f"{who} {median(cost[who] for cost in costs):.2f}" for who in names)


def rows(flood: Flood, found: dict[str, list[Took]]) -> Iterator[Row]:
    """The rows of one number of tasks."""
    name = f"flood, {flood.tasks} task{'s' * (flood.tasks > 1)}"
    rates = {
        tool: tuple(flood.gigabytes / one.seconds for one in them) for tool, them in found.items()
    }
    costs = costs_a_gigabyte(flood, found)
    for peer, bound in zip(PEERS, (PLAIN_BOUNDS.get(flood.tasks), 0.8), strict=True):
        yield Row(name, "GB/s", rates["tfmux"], peer, rates[peer], at_least=bound)
    yield Row(
        f"{name}: processor seconds a GB",
        "s",
        tuple(sum(cost.values()) for cost in costs["tfmux"]),
        PEERS[1],
        tuple(sum(cost.values()) for cost in costs[PEERS[1]]),
        note=parts(costs["tfmux"]),
    )
    keys = tuple(p95(one.keys) for one in found["tfmux"] if one.keys)
    yield Row(f"{name}: key to handler, p95", "ms", keys, at_most=50)


def extend(parser: argparse.ArgumentParser) -> None:
    """Adds how many tasks, and how much they write."""
    parser.add_argument("--tasks", type=int, nargs="*", default=[1, 4, 16])
    parser.add_argument("--megabytes", type=int, default=1200, help="of all tasks")


if __name__ == "__main__":
    run(__doc__, measure, extend)
