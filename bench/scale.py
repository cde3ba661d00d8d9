"""How tfmux grows: real hosts in namespaces, and hundreds of simulated ones.

    python -m bench.scale [--hosts 4 16 64] [--simulated 50 200 400 1000] [--rounds 5]

Real: OpenSSH in a namespace a host, four `sleep`s on each. Launch to all started, kill to the
receipt, the launcher's processor time and memory, and its share of a core while nothing happens.
The largest has the line through it and the smallest beside it; rows say with which power of the
number of tasks each figure grows.

Simulated: eight tasks a host, a process that speaks for all agents over Unix sockets
(`bench.simulator`), at most three rounds. Each task is in the cluster spec, so that its `TF_CONFIG`
holds the addresses of all. Logins are not part of it: the launcher's processor time for a real one
is the difference between eight real hosts and four, and is added in the row that says so. A host
that is lost, or a receipt that is not clean, ends the benchmark with an error. The largest number
of hosts is measured once more with tasks that print.
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
from launcher.cluster import loads
from launcher.run.snapshot import Snapshot
from launcher.run.states import HostState, RunPhase
from launcher.session.client import RunClient
from launcher.session.launcher_process import LauncherProcess

TASKS_A_HOST = 4
SIMULATED_TASKS = 8
SIMULATED_ROUNDS = 3
SETTLE_SECONDS = 2.0
IDLE_SECONDS = 6.0
LINE_SECONDS = 3.0


@dataclass(frozen=True)
class Measured:
    """One run. Seconds; processor seconds of the launcher process until all tasks had started;
    megabytes of the launcher; percent of a core while nothing happens."""

    tasks: int
    hosts: int
    connect: float
    """From the launch to the last host's handshake."""
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
    connected: list[float] = []

    def count(seen: Snapshot) -> None:
        nonlocal states
        states += 1
        if seen.state not in (RunPhase.QUEUED, RunPhase.CONNECTING):
            connected.append(time.perf_counter())

    spec = loads(text, "bench", Path.cwd())
    start = began = time.perf_counter()
    client = RunClient.launch(spec, text, process=process)
    client.subscribe(count)

    def started() -> bool:
        snapshot = client.snapshot()
        if snapshot.first_failure is not None or snapshot.launcher_error or snapshot.notes:
            raise SystemExit(f"{snapshot.first_failure} {snapshot.launcher_error} {snapshot.notes}")
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
    end = client.snapshot()
    if end.notes or any(host.state is not HostState.UP for host in end.hosts):
        raise SystemExit(f"{client.run_id}: {end.notes}")
    size = (len(end.tasks), len(end.hosts))
    return Measured(*size, connected[0] - start, launched, work, killed, memory, idle, seen)


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
def simulator(home: Path, every: float) -> Iterator[str]:
    """The simulated hosts, whose tasks print a line every so many seconds; yields their socket."""
    path = str(home / "hosts.sock")
    process = subprocess.Popen([sys.executable, "-m", "bench.simulator", path, str(every)])
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


def on_simulated_hosts(count: int, rounds: int, every: float = 0.0) -> list[Measured]:
    """Runs on so many simulated hosts."""
    with own_home() as home, simulator(home, every) as path:
        text = simulated(count)
        return [
            one_run(text, SimulatedLauncher(path)) for _ in range(min(rounds, SIMULATED_ROUNDS))
        ]


FIGURES = (
    ("launch to the last host's handshake", "s", "connect"),
    ("launch to all started", "s", "launch"),
    ("processor time of the launcher until then", "s", "work"),
    ("kill to the receipt", "s", "kill"),
    ("memory of the launcher", "MB", "memory"),
    ("launcher while nothing happens, share of one core", "%", "idle"),
)
PER_HOST = (
    ("processor time of the launcher until all have started", "ms", "work", 1000),
    ("memory of the launcher", "kB", "memory", 1000),
)
GROWTH = (
    ("the launcher's processor time", "work"),
    ("the time from launch to all started", "launch"),
    ("the time from a kill to the receipt", "kill"),
    ("the launcher's memory", "memory"),
    ("the launcher's share of a core while nothing happens", "idle"),
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
    if smallest != largest:
        few, many = found[smallest], found[largest]
        for what, unit, name, factor in PER_HOST:
            more = (
                factor * (getattr(b, name) - getattr(a, name)) / (b.hosts - a.hosts)
                for a, b in zip(few, many, strict=True)
            )
            label = f"{kind}: {what} for a host, {smallest} to {largest}"
            yield Row(label, unit, tuple(more), note="from the difference")
    if len(found) > 2:
        for what, name in GROWTH:
            powers = [exponent(rounds, name) for rounds in zip(*found.values(), strict=True)]
            yield Row(
                f"{kind}: exponent of {what}, {smallest} to {largest} hosts",
                "",
                tuple(power for power in powers if power is not None),
                at_most=1.1,
                note="1 is linear; from what is added to the smallest",
            )


def exponent(rounds: Sequence[Measured], name: str) -> float | None:
    """Growth of a figure from the second number of hosts to the last, each without what the first
    took, for that is mostly the start of a process; None where the second took no more."""
    first, second, *_, last = rounds
    begin, more, most = (getattr(one, name) for one in (first, second, last))
    if more <= begin or most <= begin:
        return None
    tasks = (last.tasks - first.tasks) / (second.tasks - first.tasks)
    return math.log((most - begin) / (more - begin)) / math.log(tasks)


def login_seconds(rounds: int) -> tuple[float, ...]:
    """Processor milliseconds of the launcher for a real login and the agent's source, from the
    difference between eight hosts and four."""
    few, many = on_real_hosts(4, rounds), on_real_hosts(8, rounds)
    return tuple(1000 * (b.work - a.work) / 4 for a, b in zip(few, many, strict=True))


def measure(options: argparse.Namespace) -> Iterator[Row]:
    """Real hosts, then simulated ones, then what both together say."""
    if options.hosts:
        yield from rows("SSH", {n: on_real_hosts(n, options.rounds) for n in options.hosts})
    found = {n: on_simulated_hosts(n, options.rounds) for n in options.simulated}
    yield from rows("simulated", found)
    largest = max(found)
    states = tuple(one.states / one.launch for one in found[largest])
    yield Row(f"simulated, {largest} hosts: states told to a client", "a second", states)
    printing = on_simulated_hosts(largest, options.rounds, LINE_SECONDS)
    label = f"simulated, {largest} hosts, a line from each task every {LINE_SECONDS:g} s"
    lines = f"{printing[0].tasks / LINE_SECONDS:,.0f} lines a second"
    shares = tuple(one.idle for one in printing)
    yield Row(f"{label}: launcher, share of one core", "%", shares, note=lines)
    kills = tuple(one.kill for one in printing)
    yield Row(f"{label}: kill to the receipt", "s", kills)
    if not options.hosts:
        return
    logins = login_seconds(options.rounds)
    yield Row("launcher's processor time for a real host", "ms", logins, note="login, 4 tasks")
    total = median(one.work for one in found[largest]) + largest * median(logins) / 1000
    what = f"model: launcher's processor time to start {largest} real hosts"
    yield Row(what, "s", (total,), note="simulated, and a login each")


def extend(parser: argparse.ArgumentParser) -> None:
    """Adds how many hosts; real ones need root, and `--hosts` alone leaves them out."""
    parser.add_argument("--hosts", type=int, nargs="*", default=[4, 16, 64])
    parser.add_argument("--simulated", type=int, nargs="+", default=[50, 200, 400, 1000])


if __name__ == "__main__":
    run(__doc__, measure, extend)
