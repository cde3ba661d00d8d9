# ruff: noqa: T201
"""Speed of the trainer beside classic scripts: `python -m bench.trainer [DATA]`.

Every program trains the same network on the same data on this machine, one program after the
other, 1 ps and 2 workers, batch 100. Counted are global steps per second from the moment when both
workers have printed their first line, and the time from a second worker's start to its first step.
"""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import re
import socket
import subprocess
import sys
import threading
import time
from typing import IO

ROOT = pathlib.Path(__file__).parents[1]
LINE = re.compile(rb"After (\d+) training steps \((\d+) global steps\)")
TIMEOUT = 240.0


@dataclasses.dataclass(frozen=True)
class Program:
    """One row: its name, the module and flags, the jobs, and the row it is a ratio of."""

    name: str
    command: tuple[str, ...]
    jobs: tuple[tuple[str, int], ...] = (("ps", 1), ("worker", 2))
    beside: str = "classic"


PROGRAMS = (
    Program("classic", ("bench.classic", "--steps=5000")),
    Program("async", ("trainer", "async", "--steps=4000", "--log-every=50")),
    Program(
        "async, fetch and push every 8",
        ("trainer", "async", "--steps=8000", "--fetch-every=8", "--push-every=8", "--log-every=48"),
    ),
    Program("sync", ("trainer", "sync", "--steps=1000", "--log-every=50")),
    Program(
        "minimal coordinator loop",
        ("bench.coordinator", "--steps=2000"),
        (("ps", 1), ("worker", 2), ("chief", 1)),
        "minimal coordinator loop",
    ),
    Program(
        "ps-strategy",
        ("trainer", "ps-strategy", "--steps=2000"),
        (("ps", 1), ("worker", 2), ("chief", 1)),
        "minimal coordinator loop",
    ),
)


class Run:
    """The tasks of one program, and when each of their lines came."""

    def __init__(self, program: Program, data: str | None) -> None:
        self.started = time.monotonic()
        self.lines: dict[str, list[tuple[float, int]]] = {}
        self._tasks: dict[str, subprocess.Popen[bytes]] = {}
        self._threads: list[threading.Thread] = []
        ports = iter(_free_ports(sum(count for _, count in program.jobs)))
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
                self.lines[name].append((time.monotonic(), int(match[2])))

    def wait(self) -> None:
        """Waits for the tasks that count steps, then ends the others."""
        deadline = time.monotonic() + TIMEOUT
        chief = "chief:0" if "chief:0" in self._tasks else "worker:0"
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._tasks[chief].wait(deadline - time.monotonic())
        for task in self._tasks.values():
            task.terminate()
        for task in self._tasks.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                task.wait(5)
            task.kill()
            task.wait()
        for thread in self._threads:
            thread.join()

    @property
    def rate(self) -> float:
        """Global steps per second while all tasks that count steps were at it."""
        counting = [lines for lines in self.lines.values() if lines]
        begin = max(lines[0] for lines in counting)
        end = max((line for lines in counting for line in lines), key=lambda line: line[1])
        return (end[1] - begin[1]) / (end[0] - begin[0])

    @property
    def second_worker(self) -> float | None:
        """Seconds from the second worker's start to its first line."""
        lines = self.lines.get("worker:1")
        return lines[0][0] - self.started if lines else None


def main() -> None:
    """Prints one row a program."""
    data = sys.argv[1] if len(sys.argv) > 1 else None
    wanted = sys.argv[2:] or [program.name for program in PROGRAMS]
    rates: dict[str, float] = {}
    print(f"{'program':32} {'steps/s':>8} {'ratio':>6}  second worker's first line")
    for program in PROGRAMS:
        if program.name not in wanted:
            continue
        run = Run(program, data)
        run.wait()
        rates[program.name] = run.rate
        base = rates.get(program.beside)
        ratio = f"{run.rate / base:6.2f}" if base else f"{'':6}"
        second = f"{run.second_worker:.1f} s" if run.second_worker is not None else "-"
        print(f"{program.name:32} {run.rate:8.1f} {ratio}  {second}", flush=True)


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]


if __name__ == "__main__":
    main()
