"""How tfmux grows: real hosts in namespaces, and hundreds of simulated ones.

    python -m bench.scale [--hosts 4 16 64] [--simulated 50 200 400] [--rounds 5]

Real: OpenSSH in a namespace a host, four `sleep`s on each. Launch to all started, kill to the
receipt, the launcher's processor time and memory, and its share of a core while nothing happens.
The largest has the line through it and the smallest beside it; a row says with which power of the
number of tasks the launcher's work grows.

Simulated: eight tasks a host, a process that speaks for all agents over Unix sockets
(`bench.simulator`). Logins are not part of it: the launcher's processor time for a real one is the
difference between eight real hosts and four, and is added in the row that says so.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench import processor
from bench.hosts import cluster, ssh_hosts
from bench.report import Row, own_home, run
from bench.terminal import until
from launcher.cluster.file import loads
from launcher.run.snapshot import Snapshot
from launcher.session.client import RunClient
from launcher.session.launcher_process import LauncherProcess

TASKS_A_HOST = 4
SIMULATED_TASKS = 8
SETTLE_SECONDS = 3.0
IDLE_SECONDS = 10.0


@dataclass(frozen=True)
class Measured:
    """One run. Seconds; processor seconds of the launcher process until all tasks had started;
    megabytes of the launcher and of this client; percent of a core while nothing happens."""

    tasks: int
    launch: float
    work: float
    kill: float
    memory: float
    idle: float
    states: int
    """Times at which the client was told a new state, from the launch to the start of all."""


def one_run(text: str, process: LauncherProcess | None = None) -> Measured:
    """Launches a cluster, looks at it while it is quiet, kills it."""
    states = 0

    def count(_: Snapshot) -> None:
        nonlocal states
        states += 1

    spec = loads(text, "bench", Path.cwd())
    began = time.perf_counter()
    client = RunClient.launch(spec, text, process=process)
    client.subscribe(count)

    def started() -> bool:
        snapshot = client.snapshot()
        if snapshot.first_failure is not None or snapshot.launcher_error:
            raise SystemExit(f"{snapshot.first_failure} {snapshot.launcher_error}")
        return all(view.pid is not None for view in snapshot.tasks)

    until(started, pace=0.02)
    launched = time.perf_counter() - began
    launcher = client.folder.launcher_pid()
    assert launcher is not None
    work, seen = processor.seconds(launcher), states
    time.sleep(SETTLE_SECONDS)
    before, since = processor.seconds(launcher), time.monotonic()
    time.sleep(IDLE_SECONDS)
    idle = 100 * (processor.seconds(launcher) - before) / (time.monotonic() - since)
    memory = processor.own_megabytes(launcher)
    began = time.perf_counter()
    client.kill_all()
    until(lambda: client.snapshot().receipt is not None)
    killed = time.perf_counter() - began
    receipt = client.snapshot().receipt
    if receipt is None or not receipt.clean:
        raise SystemExit(f"{client.run_id}: not confirmed")
    client.wait()
    return Measured(len(client.snapshot().tasks), launched, work, killed, memory, idle, seen)


def on_real_hosts(count: int, rounds: int) -> list[Measured]:
    """Runs on so many namespaces."""
    with ssh_hosts(count) as hosts:
        text = cluster(hosts, ["sleep", "98765"], count * TASKS_A_HOST, "grace = 1.0\n")
        return [one_run(text) for _ in range(rounds)]


class SimulatedLauncher(LauncherProcess):
    """A launcher process whose hosts are simulated."""

    def __init__(self, path: str) -> None:
        self.link, theirs = socket.socketpair()
        self._errors = tempfile.TemporaryFile()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "bench.simulator", "--launcher", path, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=self._errors,
                stderr=self._errors,
                start_new_session=True,
                pass_fds=(theirs.fileno(),),
            )


@contextmanager
def simulator(home: Path) -> Iterator[str]:
    """The simulated hosts; yields their socket."""
    path = str(home / "hosts.sock")
    process = subprocess.Popen([sys.executable, "-m", "bench.simulator", path])
    try:
        until(lambda: os.path.exists(path))
        yield path
    finally:
        process.kill()
        process.wait()


def simulated(count: int) -> str:
    """The cluster file of so many simulated hosts."""
    hosts = "".join(f'[hosts.h{number}]\nssh = "h{number}"\n' for number in range(count))
    places = [f"h{n}:{2222 + k}" for n in range(count) for k in range(SIMULATED_TASKS)]
    return (
        f'name = "scale"\n{hosts}[jobs.worker]\ntasks = {json.dumps(places)}\n'
        f'[run]\ncommand = ["sleep", "98765"]\nworkdir = ""\ngrace = 1.0\nsuccess = "all"\n'
        f'[start]\norder = [["worker"]]\n[start.ready]\nworker = "started"\n'
    )


def on_simulated_hosts(count: int, rounds: int) -> list[Measured]:
    """Runs on so many simulated hosts."""
    with own_home() as home, simulator(home) as path:
        text = simulated(count)
        return [one_run(text, SimulatedLauncher(path)) for _ in range(rounds)]


FIGURES = (
    ("launch to all started", "s", "launch"),
    ("processor time of the launcher until then", "s", "work"),
    ("kill to the receipt", "s", "kill"),
    ("memory of the launcher", "MB", "memory"),
    ("launcher while nothing happens, share of one core", "%", "idle"),
)


def rows(kind: str, found: dict[int, list[Measured]]) -> Iterator[Row]:
    """Each figure for each number of hosts; with the largest, how it has grown."""
    smallest, largest = min(found), max(found)
    for what, unit, name in FIGURES:
        for hosts, rounds in found.items():
            figures = tuple(getattr(one, name) for one in rounds)
            label = f"{kind}, {hosts} hosts, {rounds[0].tasks} tasks: {what}"
            if hosts != largest or smallest == largest:
                yield Row(label, unit, figures)
                continue
            few, many = (median(getattr(one, name) for one in found[n]) for n in (smallest, hosts))
            slope = (many - few) / (rounds[0].tasks - found[smallest][0].tasks)
            begin = few - slope * found[smallest][0].tasks
            note = f"fit {begin:.2g} + {slope * 1000:.2g} for 1,000 tasks"
            yield Row(label, unit, figures, note=note)
    if len(found) > 2:
        yield Row(
            f"{kind}: exponent of the launcher's processor time, {smallest} to {largest} hosts",
            "",
            tuple(map(exponent, zip(*found.values(), strict=True))),
            at_most=1.1,
            note="1 is linear; from what is added to the smallest",
        )


def exponent(rounds: Sequence[Measured]) -> float:
    """Growth of the launcher's work from the second number of hosts to the last, each without what
    the first took, for that is mostly the start of a process."""
    first, second, *_, last = rounds
    work = (last.work - first.work) / (second.work - first.work)
    return math.log(work) / math.log((last.tasks - first.tasks) / (second.tasks - first.tasks))


def login_seconds(rounds: int) -> tuple[float, ...]:
    """Processor milliseconds of the launcher for a real login and the agent's source, from the
    difference between eight hosts and four."""
    few, many = on_real_hosts(4, rounds), on_real_hosts(8, rounds)
    return tuple(1000 * (b.work - a.work) / 4 for a, b in zip(few, many, strict=True))


def measure(options: argparse.Namespace) -> Iterator[Row]:
    """Real hosts, then simulated ones, then what both together say."""
    yield from rows("SSH", {n: on_real_hosts(n, options.rounds) for n in options.hosts})
    found = {n: on_simulated_hosts(n, options.rounds) for n in options.simulated}
    yield from rows("simulated", found)
    largest = max(found)
    states = tuple(one.states / one.launch for one in found[largest])
    yield Row(f"simulated, {largest} hosts: states told to a client", "a second", states)
    logins = login_seconds(options.rounds)
    yield Row("launcher's processor time for a real host", "ms", logins, note="login, 4 tasks")
    total = median(one.work for one in found[largest]) + largest * median(logins) / 1000
    what = f"model: launcher's processor time to start {largest} real hosts"
    yield Row(what, "s", (total,), note="simulated, and a login each")


def extend(parser: argparse.ArgumentParser) -> None:
    """Adds how many hosts."""
    parser.add_argument("--hosts", type=int, nargs="+", default=[4, 16, 64])
    parser.add_argument("--simulated", type=int, nargs="+", default=[50, 200, 400])


if __name__ == "__main__":
    run(__doc__, measure, extend)
