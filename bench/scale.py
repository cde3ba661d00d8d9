"""How tfmux grows: real hosts in namespaces, and hundreds of simulated ones.

    python -m bench.scale [--hosts 4 16] [--simulated 16 64 256] [--rounds 5]

Real: OpenSSH in a namespace a host, four `sleep`s on each. Launch to all started, kill to the
receipt, the launcher's processor time and memory, and its share of a core while nothing happens.

Simulated: eight tasks a host, a process that speaks for all agents over Unix sockets
(`bench.simulator`), at most three rounds. Each task is in the cluster spec, so that its `TF_CONFIG`
holds the addresses of all. Logins are no part of it. Rows say with which power of the number of
tasks each figure grows. A host that is lost, or a receipt that is not clean, ends the benchmark
with an error.
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

from bench import processor
from bench.hosts import cluster, ssh_hosts
from bench.report import Row, own_home, run
from bench.terminal import until
from launcher.client.launcher_process import LauncherProcess
from launcher.client.run_client import RunClient
from launcher.cluster.read import loads
from launcher.run.states import HostState

TASKS_A_HOST = 4
SIMULATED_TASKS = 8
SIMULATED_ROUNDS = 3
SETTLE_SECONDS = 2.0
IDLE_SECONDS = 6.0


@dataclass(frozen=True)
class Measured:
    """One run. Seconds; processor seconds of the launcher process until all tasks had started;
    megabytes of the launcher; percent of a core while nothing happens."""

    tasks: int
    hosts: int
    launch: float
    work: float
    kill: float
    memory: float
    idle: float


def one_run(text: str, process: LauncherProcess | None = None) -> Measured:
    """Launches a cluster, looks at it while it is quiet, kills it."""
    spec = loads(text, "bench", Path.cwd())
    began = time.perf_counter()
    client = RunClient.launch(spec, text, process=process)
    client.await_state()

    def started() -> bool:
        snapshot = client.snapshot()
        if snapshot.first_failure is not None or snapshot.launcher_error or snapshot.notes:
            raise SystemExit(f"{snapshot.first_failure} {snapshot.launcher_error} {snapshot.notes}")
        return all(view.pid is not None for view in snapshot.tasks)

    until(started, pace=0.02)
    launched = time.perf_counter() - began
    launcher = client.folder.launcher_pid()
    assert launcher is not None
    work = processor.seconds(launcher)
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
    return Measured(len(end.tasks), len(end.hosts), launched, work, killed, memory, idle)


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


def on_simulated_hosts(count: int, rounds: int) -> list[Measured]:
    """Runs on so many simulated hosts."""
    hosts = "".join(f'[hosts.h{number}]\nssh = "h{number}"\n' for number in range(count))
    places = [f"h{n}:{2222 + k}" for n in range(count) for k in range(SIMULATED_TASKS)]
    text = (
        f'name = "scale"\n{hosts}[jobs.worker]\ntasks = {json.dumps(places)}\n'
        f'[run]\ncommand = ["sleep", "98765"]\nworkdir = ""\ngrace = 1.0\nsuccess = "all"\n'
        f'[start]\norder = [["worker"]]\n[start.ready]\nworker = "started"\n'
    )
    with own_home() as home, simulator(home) as path:
        return [
            one_run(text, SimulatedLauncher(path)) for _ in range(min(rounds, SIMULATED_ROUNDS))
        ]


FIGURES = (
    ("launch to all started", "s", "launch"),
    ("processor time of the launcher until then", "s", "work"),
    ("kill to the receipt", "s", "kill"),
    ("memory of the launcher", "MB", "memory"),
    ("launcher while nothing happens, share of one core", "%", "idle"),
)


def rows(kind: str, found: dict[int, list[Measured]]) -> Iterator[Row]:
    """Each figure for each number of hosts; of three numbers, how it grows."""
    for what, unit, name in FIGURES:
        for hosts, rounds in found.items():
            figures = tuple(getattr(one, name) for one in rounds)
            yield Row(f"{kind}, {hosts} hosts, {rounds[0].tasks} tasks: {what}", unit, figures)
        if len(found) > 2:
            powers = [exponent(rounds, name) for rounds in zip(*found.values(), strict=True)]
            known = tuple(power for power in powers if power is not None)
            note = "1 is linear; from what is added to the smallest"
            lacks = "" if known else "the second number of hosts took no more than the first"
            label = f"{kind}: exponent of {what}"
            yield Row(label, "", known, at_most=1.1, note=note, skipped=lacks)
    few, many = found[min(found)], found[max(found)]
    if few is not many:
        more = tuple(
            1000 * (b.work - a.work) / (b.hosts - a.hosts) for a, b in zip(few, many, strict=True)
        )
        what = f"{kind}: processor time of the launcher for a host"
        yield Row(what, "ms", more, note="from the difference")


def exponent(rounds: Sequence[Measured], name: str) -> float | None:
    """Growth of a figure from the second number of hosts to the last, each without what the first
    took, for that is mostly the start of a process; None where the second took no more."""
    first, second, *_, last = rounds
    begin, more, most = (getattr(one, name) for one in (first, second, last))
    if more <= begin or most <= begin:
        return None
    tasks = (last.tasks - first.tasks) / (second.tasks - first.tasks)
    return math.log((most - begin) / (more - begin)) / math.log(tasks)


def measure(options: argparse.Namespace) -> Iterator[Row]:
    """Real hosts, then simulated ones."""
    if options.hosts:
        yield from rows("SSH", {n: on_real_hosts(n, options.rounds) for n in options.hosts})
    found = {n: on_simulated_hosts(n, options.rounds) for n in options.simulated}
    yield from rows("simulated", found)


def extend(parser: argparse.ArgumentParser) -> None:
    """Adds how many hosts; real ones need root, and `--hosts` alone leaves them out."""
    parser.add_argument("--hosts", type=int, nargs="*", default=[4, 16])
    parser.add_argument("--simulated", type=int, nargs="+", default=[16, 64, 256])


if __name__ == "__main__":
    run(__doc__, measure, extend)
