"""Runs on Slurm beside the same over SSH, and beside `srun` and `scancel` by hand.

    python -m bench.slurm [--rounds 5]

On the tests' own clusters: a real slurmctld with four slurmd, and four hosts with OpenSSH, each in
namespaces of this machine. From the nodes (or, over SSH, from the launch) to 16 started tasks; from
the kill to the last agent's receipt; and the rate of one node's log. Rounds are paired: what else
the machine does falls on all alike. Left out, with a word, where Slurm is not installed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from bench.hosts import cluster, ssh_hosts
from bench.report import Row, interleave, run
from bench.terminal import until
from launcher.cluster import loads
from launcher.run.snapshot import Receipt, RunView
from launcher.run.states import RunPhase
from launcher.session.client import RunClient
from launcher.store.stream import LineReader
from tests.testbed import proc, slurm
from tests.testbed.slurm import SlurmBed

TASKS = 16
NODES = 4
MEGABYTES = 96
T = TypeVar("T")
_RUN = """
[run]
command = ["sleep", "1000"]
workdir = ""
grace = 1.0
[start]
order = [["worker"]]
[start.ready]
worker = "started"
"""


def on_slurm(tasks: int = TASKS, nodes: int = NODES) -> str:
    """A cluster of tasks on Slurm's nodes."""
    places = [f"node{number % nodes}:auto" for number in range(tasks)]
    return (
        f'name = "bench"\n[slurm]\nnodes = {nodes}\ntime = "10"\n'
        f"python = {json.dumps(sys.executable)}\n"
        f"[jobs.worker]\ntasks = {json.dumps(places)}\n{_RUN}"
    )


def start_and_kill(text: str) -> tuple[float, float]:
    """Seconds from the nodes to the last task's start, and from the kill to the last receipt."""
    client = RunClient.launch(loads(text, "bench", Path.cwd()), text)
    until(lambda: all(view.pid is not None for view in client.snapshot().tasks))
    time.sleep(0.5)
    client.kill_all()
    client.wait()
    records = list(LineReader(client.folder.events).records())
    runs = [one for one in records if isinstance(one, RunView)]
    began = next(run.time for run in runs if run.state is RunPhase.CONNECTING)
    tasks = client.snapshot().tasks
    started = max(attempt.time for view in tasks for attempt in view.attempts)
    pressed = next(run.time for run in runs if run.state is RunPhase.KILLING)
    told = next(one.time for one in records if isinstance(one, Receipt))
    return started - began, told - pressed


def by_hand(bed: SlurmBed) -> tuple[float, float]:
    """The same with `srun -n16` in an allocation that is there, and `scancel` of that."""
    size = (f"-N{NODES}", f"--ntasks-per-node={TASKS // NODES}")
    wrap = ("sbatch", "--parsable", *size, "-t10", "-o/dev/null", "--wrap", "sleep 1000")
    job = bed.run(*wrap).strip()
    until(lambda: f"{job} RUNNING" in bed.jobs())
    began = time.perf_counter()
    words = f"srun --jobid={job} --overlap -N{NODES} -n{TASKS} --mpi=none sleep 1001".split()
    with subprocess.Popen(words, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as srun:
        until(lambda: len(_sleepers()) >= TASKS)
        started = time.perf_counter() - began
        began = time.perf_counter()
        bed.run("scancel", job)
        until(lambda: not _sleepers())
        ended = time.perf_counter() - began
        srun.wait()
    bed.wait_empty()
    return started, ended


def _sleepers() -> list[proc.Process]:
    return [p for p in proc.scan() if p.alive and p.argv[1:] == ("1001",)]


def log_rate(file: Path) -> float:
    """Megabytes a second of one task that prints a file, until all of it is here."""
    text = on_slurm(1, 1).replace('"sleep", "1000"', f'"cat", "{file}"')
    client = RunClient.launch(loads(text, "bench", Path.cwd()), text)
    client.wait()
    (task,) = client.snapshot().tasks
    stored = client.folder.path / "worker-0.log"
    if stored.stat().st_size != file.stat().st_size:
        raise SystemExit(f"bytes were lost: {stored.stat().st_size} of {file.stat().st_size}")
    return MEGABYTES / ((task.ended or 0.0) - task.attempts[0].time)


def raw_rate(file: Path) -> float:
    """The same by `srun cat` in an allocation of its own, without what that takes to start."""
    words = ["srun", "-Q", "-N1", "-n1", "-t10", "-u", "--mpi=none", "cat"]
    seconds = []
    for one in (Path("/dev/null"), file):
        began = time.perf_counter()
        with open(os.devnull, "wb") as sink:
            subprocess.run([*words, str(one)], stdout=sink, check=True)
        seconds.append(time.perf_counter() - began)
    return MEGABYTES / (seconds[1] - seconds[0])


def measure(options: argparse.Namespace) -> Iterator[Row]:
    """Starts, kills and the log of one node."""
    if reason := slurm.missing():
        yield Row("Slurm", skipped=reason)
        return
    with ssh_hosts() as hosts, SlurmBed(NODES) as bed:
        file = bed.folder / "lines"
        file.write_bytes((b"x" * 99 + b"\n") * (MEGABYTES * 10_000))

        def emptied(side: Callable[[], T]) -> Callable[[], T]:
            def both() -> T:
                found = side()
                bed.wait_empty()
                return found

            return both

        sleeps = cluster(hosts, ["sleep", "1000"], TASKS, "grace = 1.0\n")
        sides = {
            "Slurm": emptied(lambda: start_and_kill(on_slurm())),
            "SSH": lambda: start_and_kill(sleeps),
            "hand": emptied(lambda: by_hand(bed)),
        }
        found = interleave(sides, options.rounds)
        logs = {
            "tfmux": emptied(lambda: log_rate(file)),
            "srun": emptied(lambda: raw_rate(file)),
        }
        rates = interleave(logs, options.rounds)
    starts = {who: tuple(start for start, _ in them) for who, them in found.items()}
    kills = {who: tuple(1000 * kill for _, kill in them) for who, them in found.items()}
    what = f"Slurm: nodes given to {TASKS} tasks started"
    yield Row(what, "s", starts["Slurm"], "over SSH", starts["SSH"], at_most=1.1)
    yield Row(what, "s", starts["Slurm"], f"`srun -n{TASKS}`", starts["hand"])
    what = "Slurm: kill to the last agent's receipt"
    yield Row(what, "ms", kills["Slurm"], at_most=100)
    yield Row(what, "ms", kills["Slurm"], "`scancel`, which waits for nothing", kills["hand"])
    ours, theirs = tuple(rates["tfmux"]), tuple(rates["srun"])
    yield Row("Slurm: log of one node", "MB/s", ours, "`srun cat`", theirs)


if __name__ == "__main__":
    run(__doc__, measure)
