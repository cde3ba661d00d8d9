"""Speed of the trainer beside its `classic` mode: `python -m bench.trainer`.

Every program trains the same network on the same data on this machine, one program after the
other, 1 ps and 2 workers, batch 100. Counted are global steps per second from the moment when all
who count steps have printed a line, as a ratio of another program's in the same call; the processor
time of all tasks per global step (ms), whose ratio also holds on a machine that others use; and the
time from the second worker's process start to its first step, beside that of importing TensorFlow
in as many processes at once.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import pathlib
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import IO

from bench.hosts import all_at_once
from bench.report import Row, interleave, run
from tests.support.ports import free_ports

ROOT = pathlib.Path(__file__).parents[1]
LINE = re.compile(
    rb"After (\d+) training steps \((\d+) global steps\).*"
    rb"(?:\((\d+\.\d+) sec/batch\)|; ([\d.]+) ms)"
)
START_TIMEOUT = 180.0
WORKERS = (("ps", 1), ("worker", 2))
COORDINATED = (("ps", 1), ("worker", 2), ("chief", 1))
NEVER = "--steps=1000000"  # each program is ended when it has been measured


@dataclasses.dataclass(frozen=True)
class Program:
    """One row: its name, the module and flags, the jobs, and the row it is a ratio of."""

    name: str
    command: tuple[str, ...]
    jobs: tuple[tuple[str, int], ...] = WORKERS
    beside: str = "classic"

    @property
    def counting(self) -> tuple[str, ...]:
        """The tasks that count steps."""
        return ("chief:0",) if self.jobs == COORDINATED else ("worker:0", "worker:1")


CLASSIC = "classic"
CLASSIC_SYNC = "classic, synchronous"
COORDINATOR = "minimal coordinator loop"
DOWNPOUR = ("--fetch-every=8", "--push-every=8", "--log-every=48")
PROGRAMS = (
    Program(CLASSIC, ("trainer", "classic", NEVER)),
    Program("async", ("trainer", "async", NEVER, "--log-every=50")),
    Program(
        "async, one step a call",
        ("trainer", "async", NEVER, "--log-every=50", "--steps-per-call=1"),
    ),
    Program("async, fetch and push every 8", ("trainer", "async", NEVER, *DOWNPOUR)),
    Program(CLASSIC_SYNC, ("trainer", "classic", "--sync", NEVER), beside=CLASSIC_SYNC),
    Program("sync", ("trainer", "sync", NEVER, "--log-every=50"), beside=CLASSIC_SYNC),
    Program(COORDINATOR, ("bench.coordinator", NEVER), COORDINATED, COORDINATOR),
    Program("ps-strategy", ("trainer", "ps-strategy", NEVER), COORDINATED, COORDINATOR),
)


IMPORTERS = 3
IMPORT = f"import of TensorFlow, {IMPORTERS} processes at once"


@dataclasses.dataclass(frozen=True)
class Result:
    """Global steps a second, processor milliseconds a step, seconds to the second worker's first
    step (0 where it counts none)."""

    rate: float
    cost: float
    first_step: float


class Run:
    """The tasks of one program, when each of their lines came, and each one's first step."""

    def __init__(self, program: Program, data: str | None) -> None:
        self._program = program
        self.started = time.monotonic()
        self.lines: dict[str, list[tuple[float, int]]] = {}
        self.first_steps: dict[str, float] = {}
        self.cost: dict[str, float] = {}  # processor milliseconds a global step, by job
        self._tasks: dict[str, subprocess.Popen[bytes]] = {}
        self._threads: list[threading.Thread] = []
        ports = iter(free_ports(sum(count for _, count in program.jobs)))
        hosts = {
            job: [f"localhost:{next(ports)}" for _ in range(count)] for job, count in program.jobs
        }
        flags = [f"--{job}_hosts={','.join(addresses)}" for job, addresses in hosts.items()]
        flags += [f"--data={data}"] if data else []
        for job, addresses in hosts.items():
            for index in range(len(addresses)):
                self._start(
                    f"{job}:{index}",
                    [*program.command, *flags, f"--job_name={job}", f"--task_index={index}"],
                )

    def _start(self, name: str, command: list[str]) -> None:
        task = subprocess.Popen(
            [sys.executable, "-m", *command],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert task.stdout is not None
        self._tasks[name] = task
        self.lines[name] = []
        reader = threading.Thread(target=self._read, args=(name, task.stdout), daemon=True)
        reader.start()
        self._threads.append(reader)

    def _read(self, name: str, stream: IO[bytes]) -> None:
        for line in stream:
            if match := LINE.search(line):
                now = time.monotonic()
                if name not in self.first_steps:
                    # The line's mean time of a step leads back to the end of the first.
                    seconds = float(match[3]) if match[3] else float(match[4]) / 1000
                    since = (int(match[1]) - 1) * seconds
                    self.first_steps[name] = now - since - self.started
                self.lines[name].append((now, int(match[2])))

    def measure(self, seconds: float) -> None:
        """Lets it train for `seconds` from the first line of the last to print one, then ends it.

        Raises:
            SystemExit: A task that counts steps printed nothing or ended.
        """
        try:
            deadline = time.monotonic() + START_TIMEOUT
            while not all(self.lines[name] for name in self._program.counting):
                for name in self._program.counting:
                    if self._tasks[name].poll() is not None or time.monotonic() > deadline:
                        raise SystemExit(f"{self._program.name}: no step from {name}")
                time.sleep(0.1)
            before, step = self._used(), self._step
            time.sleep(seconds)
            steps = max(self._step - step, 1)
            self.cost = {
                job: 1000 * (now - before[job]) / steps for job, now in self._used().items()
            }
        finally:
            for task in self._tasks.values():
                task.kill()
            for task in self._tasks.values():
                task.wait()
            for thread in self._threads:
                thread.join()

    @property
    def _step(self) -> int:
        return max(lines[-1][1] for lines in self.lines.values() if lines)

    def _used(self) -> dict[str, float]:
        """Processor seconds that each job's processes have used."""
        used: dict[str, float] = {}
        for name, task in self._tasks.items():
            fields = pathlib.Path(f"/proc/{task.pid}/stat").read_text().rpartition(")")[2].split()
            ticks = int(fields[11]) + int(fields[12])
            job = name.partition(":")[0]
            used[job] = used.get(job, 0.0) + ticks / os.sysconf("SC_CLK_TCK")
        return used

    @property
    def rate(self) -> float:
        """Global steps per second while all tasks that count steps were at it."""
        counting = [self.lines[name] for name in self._program.counting]
        begin = max(lines[0] for lines in counting)
        end = max((line for lines in counting for line in lines), key=lambda line: line[1])
        return (end[1] - begin[1]) / (end[0] - begin[0]) if end[0] > begin[0] else 0.0


def measure(options: argparse.Namespace) -> Iterator[Row]:
    """Rates and costs of each program beside another one's; its first step beside the import."""
    chosen = [program for program in PROGRAMS if program.name in options.only]
    sides: dict[str, Callable[[], Result]] = {
        program.name: partial(one_run, program, options) for program in chosen
    }
    sides[IMPORT] = import_time
    found = interleave(sides, options.rounds)
    imports = tuple(one.first_step for one in found[IMPORT])
    for program in chosen:
        mine, other = found[program.name], found.get(program.beside, [])
        rates, costs = tuple(one.rate for one in mine), tuple(one.cost for one in mine)
        beside = f"`{program.beside}`"
        if program.name == program.beside:
            yield Row(f"trainer, {program.name}: global steps/s", "", rates)
        elif other:
            theirs = tuple(one.rate for one in other)
            yield Row(f"trainer, {program.name}: global steps/s", "", rates, beside, theirs)
            cost = tuple(one.cost for one in other)
            yield Row(f"trainer, {program.name}: processor time a step", "ms", costs, beside, cost)
        firsts = tuple(one.first_step for one in mine)
        if all(firsts):
            yield Row(f"trainer, {program.name}: first step", "s", firsts, IMPORT, imports)


def one_run(program: Program, options: argparse.Namespace) -> Result:
    """One program, started and measured."""
    running = Run(program, options.data)
    running.measure(options.seconds)
    return Result(
        running.rate, sum(running.cost.values()), running.first_steps.get("worker:1", 0.0)
    )


def _data() -> str | None:
    """Real digits where there are some; None, the embedded ones, elsewhere."""
    default = ROOT.parent / "shared" / "data" / "mnist10k"
    path = pathlib.Path(os.environ.get("TFMUX_TEST_DATA", default))
    return str(path) if path.is_dir() else None


def import_time() -> Result:
    """Seconds until the last of as many processes as a program has has imported TensorFlow."""
    started = time.monotonic()
    all_at_once([[sys.executable, "-c", "import tensorflow"]] * IMPORTERS)
    return Result(0.0, 0.0, time.monotonic() - started)


def extend(parser: argparse.ArgumentParser) -> None:
    """Adds which programs, on which data, for how long."""
    names = [program.name for program in PROGRAMS]
    parser.add_argument("--data", default=_data(), help="IDX files (default: %(default)s)")
    parser.add_argument("--only", nargs="*", default=names, choices=names, help="these rows")
    parser.add_argument("--seconds", type=float, default=8.0, help="of training, a row")


if __name__ == "__main__":
    run(__doc__, measure, extend)
