"""Speed of the trainer beside its `classic` mode: `python -m bench.trainer`.

Every program trains the same network on the same data on this machine, one program after the
other, 1 ps and 2 workers, batch 100. Counted are global steps per second from the moment when all
who count steps have printed a line, as a ratio of another program's in the same round, and the
processor time of all tasks per global step (ms), whose ratio also holds on a machine that others
use. Last, `async` in a run of tfmux whose screen is shown, beside the same processes by hand.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
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

from bench.report import Row, interleave, own_home, run
from bench.terminal import ROOT, TFMUX, Terminal, until
from launcher.paths import runs_home
from tests.support.ports import free_ports

LINE = re.compile(rb"After \d+ training steps \((\d+) global steps\)")
START_TIMEOUT = 1800.0
"""Seconds for the tasks' first steps; with much else to do a machine takes minutes to import
TensorFlow so many times."""
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
UNDER_TFMUX = "async under tfmux"
DOWNPOUR = ("--fetch-every=8", "--push-every=8", "--log-every=48")
ASYNC = Program("async", ("trainer", "async", NEVER, "--log-every=50"))
PROGRAMS = (
    Program(CLASSIC, ("trainer", "classic", NEVER)),
    ASYNC,
    Program("async, one step a call", (*ASYNC.command, "--steps-per-call=1")),
    Program("async, fetch and push every 8", ("trainer", "async", NEVER, *DOWNPOUR)),
    Program(CLASSIC_SYNC, ("trainer", "classic", "--sync", NEVER), beside=CLASSIC_SYNC),
    Program("sync", ("trainer", "sync", NEVER, "--log-every=50"), beside=CLASSIC_SYNC),
    Program(COORDINATOR, ("bench.coordinator", NEVER), COORDINATED, COORDINATOR),
    Program("ps-strategy", ("trainer", "ps-strategy", NEVER), COORDINATED, COORDINATOR),
    Program(UNDER_TFMUX, ASYNC.command, beside=ASYNC.name),
)
Lines = dict[str, list[tuple[float, int]]]
"""When each line of a task came, and its global step."""


def rate_of(lines: Lines) -> float:
    """Global steps per second while all tasks that count steps were at it."""
    begin = max(some[0] for some in lines.values())
    end = max((line for some in lines.values() for line in some), key=lambda line: line[1])
    return (end[1] - begin[1]) / (end[0] - begin[0]) if end[0] > begin[0] else 0.0


class ByHand:
    """The tasks of one program, and when each of their lines came."""

    def __init__(self, program: Program, data: str | None) -> None:
        self._program = program
        self._lines: Lines = {name: [] for name in program.counting}
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
                role = [f"--job_name={job}", f"--task_index={index}"]
                self._start(f"{job}:{index}", [*program.command, *flags, *role])

    def _start(self, name: str, command: list[str]) -> None:
        task = subprocess.Popen(
            [sys.executable, "-m", *command],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert task.stdout is not None
        self._tasks[name] = task
        reader = threading.Thread(target=self._read, args=(name, task.stdout), daemon=True)
        reader.start()
        self._threads.append(reader)

    def _read(self, name: str, stream: IO[bytes]) -> None:
        for line in stream:
            if name in self._lines and (match := LINE.search(line)):
                self._lines[name].append((time.monotonic(), int(match[1])))

    def measure(self, seconds: float) -> tuple[float, float]:
        """Steps a second, and processor milliseconds a step, in `seconds` from the first line of
        the last task to print one; ends the tasks.

        Raises:
            SystemExit: A task that counts steps printed nothing or ended.
        """
        try:
            deadline = time.monotonic() + START_TIMEOUT
            while not all(self._lines.values()):
                for name in self._lines:
                    status = self._tasks[name].poll()
                    if status is not None or time.monotonic() > deadline:
                        why = "" if status is None else f", which has ended with {status}"
                        raise SystemExit(f"{self._program.name}: no step from {name}{why}")
                time.sleep(0.1)
            before, step = self._used(), self._step
            time.sleep(seconds)
            cost = 1000 * (self._used() - before) / max(self._step - step, 1)
        finally:
            for task in self._tasks.values():
                task.kill()
            for task in self._tasks.values():
                task.wait()
            for thread in self._threads:
                thread.join()
        return rate_of(self._lines), cost

    @property
    def _step(self) -> int:
        return max(some[-1][1] for some in self._lines.values())

    def _used(self) -> float:
        """Processor seconds that all tasks have used."""
        ticks = 0
        for task in self._tasks.values():
            fields = pathlib.Path(f"/proc/{task.pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")


def by_hand(program: Program, options: argparse.Namespace) -> tuple[float, float]:
    """One program, started and measured."""
    return ByHand(program, options.data).measure(options.seconds)


def under_tfmux(options: argparse.Namespace) -> tuple[float, float]:
    """`async` in a run whose screen is shown, from the times of its metrics; without a cost."""
    flags = ["--job_name={job}", "--task_index={index}"]
    flags += ["--ps_hosts={ps_hosts}", "--worker_hosts={worker_hosts}"]
    flags += [f"--data={options.data}"] if options.data else []
    command = json.dumps(["{python}", "{trainer}", *ASYNC.command[1:], *flags])
    with own_home() as home:
        file = home / "bench.toml"
        file.write_text(
            'name = "bench"\n[jobs.ps]\ntasks = ["localhost:auto"]\n[jobs.worker]\n'
            'tasks = ["localhost:auto", "localhost:auto"]\n'
            f'[run]\ncommand = {command}\nworkdir = ""\n'
        )
        terminal = Terminal([*TFMUX, "up", str(file)])
        found: Lines = {}

        def train() -> bool:
            found.clear()
            for path in runs_home().glob("*/metrics.jsonl"):
                for line in path.read_bytes().splitlines():
                    metric = json.loads(line)
                    some = found.setdefault(metric["task"], [])
                    some.append((metric["time"], int(metric["step"])))
            return all(name in found for name in ASYNC.counting)

        until(train, START_TIMEOUT, pace=0.1)
        time.sleep(options.seconds)
        train()
        terminal.close(b"\x1b[20~q")  # F9, then q
    return rate_of(found), 0.0


def measure(options: argparse.Namespace) -> Iterator[Row]:
    """Rates and costs of each program beside another one's."""
    chosen = [program for program in PROGRAMS if program.name in options.only]
    sides: dict[str, Callable[[], tuple[float, float]]] = {
        program.name: partial(by_hand, program, options) for program in chosen
    }
    if UNDER_TFMUX in sides:
        sides[UNDER_TFMUX] = partial(under_tfmux, options)
    found = interleave(sides, options.rounds)
    for program in chosen:
        rates, costs = zip(*found[program.name], strict=True)
        label = f"trainer, {program.name}: global steps/s"
        if program.beside == program.name or program.beside not in found:
            yield Row(label, "", rates)
            continue
        their_rates, their_costs = zip(*found[program.beside], strict=True)
        beside = f"`{program.beside}`"
        yield Row(label, "", rates, beside, their_rates)
        if any(costs):
            label = f"trainer, {program.name}: processor time a step"
            yield Row(label, "ms", costs, beside, their_costs)


def _data() -> str | None:
    """Real digits where there are some; None, the embedded ones, elsewhere."""
    default = ROOT.parent / "shared" / "data" / "mnist10k"
    path = pathlib.Path(os.environ.get("TFMUX_TEST_DATA", default))
    return str(path) if path.is_dir() else None


def extend(parser: argparse.ArgumentParser) -> None:
    """Adds which programs, on which data, for how long."""
    names = [program.name for program in PROGRAMS]
    parser.add_argument("--data", default=_data(), help="IDX files (default: %(default)s)")
    parser.add_argument("--only", nargs="*", default=names, choices=names, help="these rows")
    parser.add_argument("--seconds", type=float, default=8.0, help="of training, a row")


if __name__ == "__main__":
    run(__doc__, measure, extend)
