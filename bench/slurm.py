"""Runs on Slurm beside the same over SSH, and beside `srun` and `scancel` by hand.

    python -m bench.slurm [--rounds 5]

On the tests' own clusters: a real slurmctld with four slurmd, and four hosts with OpenSSH, each in
namespaces of this machine. From the nodes (or, over SSH, from the launch) to 16 started tasks; from
the kill to the last agent's receipt; and the rate of one node's log. Rounds are paired: what else
the machine does falls on all alike. Left out, with a word, where Slurm is not installed.
"""

# ruff: noqa: T201
from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.kill import until
from launcher.cluster.file import loads
from launcher.run import events as ev
from launcher.session.client import RunClient
from launcher.store.journal import read_journal
from tests.testbed import proc, slurm
from tests.testbed.namespaces import Testbed
from tests.testbed.slurm import SlurmBed

TASKS = 16
NODES = 4
MEGABYTES = 96
DEADLINE = 120.0
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


def over_ssh(hosts: Testbed) -> str:
    """The same on the hosts of the SSH testbed."""
    names = [host.name for host in hosts]
    places = [f"{names[number % NODES]}:auto" for number in range(TASKS)]
    tables = hosts.hosts_toml()
    return f'name = "bench"\n{tables}[jobs.worker]\ntasks = {json.dumps(places)}\n{_RUN}'


def start_and_kill(text: str) -> tuple[float, float]:
    """Seconds from the nodes to the last task's start, and from the kill to the last receipt."""
    client = RunClient.launch(loads(text, "bench", Path.cwd()), text)
    until(lambda: all(view.pid is not None for view in client.snapshot().tasks), DEADLINE)
    time.sleep(0.5)
    client.kill_all()
    client.wait()
    events = read_journal(client.folder.journal).events
    given = [e.time for e in events if isinstance(e, ev.Allocated)]
    began = given[0] if given else next(e.time for e in events if isinstance(e, ev.Begin))
    started = max(e.time for e in events if isinstance(e, ev.TaskStarted))
    pressed = next(e.time for e in events if isinstance(e, ev.KillAll))
    told = max(e.time for e in events if isinstance(e, ev.ReceiptReceived) and e.tasks is None)
    return started - began, told - pressed


def by_hand(bed: SlurmBed) -> tuple[float, float]:
    """The same with `srun -n16` in an allocation that is there, and `scancel` of that."""
    size = (f"-N{NODES}", f"--ntasks-per-node={TASKS // NODES}")
    wrap = ("sbatch", "--parsable", *size, "-t10", "-o/dev/null", "--wrap", "sleep 1000")
    job = bed.run(*wrap).strip()
    until(lambda: f"{job} RUNNING" in bed.jobs(), DEADLINE)
    began = time.perf_counter()
    words = f"srun --jobid={job} --overlap -N{NODES} -n{TASKS} --mpi=none sleep 1001".split()
    with subprocess.Popen(words, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as srun:
        until(lambda: len(_sleepers()) >= TASKS, DEADLINE)
        started = time.perf_counter() - began
        began = time.perf_counter()
        bed.run("scancel", job)
        until(lambda: not _sleepers(), DEADLINE)
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
    events = read_journal(client.folder.journal).events
    started = next(e.time for e in events if isinstance(e, ev.TaskStarted))
    stored = client.folder.path / "worker-0.log"
    if stored.stat().st_size != file.stat().st_size:
        raise SystemExit(f"bytes were lost: {stored.stat().st_size} of {file.stat().st_size}")
    exited = next(e.time for e in events if isinstance(e, ev.TaskExited))
    return MEGABYTES / (exited - started)


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


def main() -> None:
    """Prints medians."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    if reason := slurm.missing():
        print(f"Slurm is left out: {reason}")
        return
    with tempfile.TemporaryDirectory() as home, Testbed() as hosts, SlurmBed(NODES) as bed:
        os.environ["HOME"] = home
        for variable in ("DATA", "CONFIG", "STATE", "CACHE"):
            os.environ[f"XDG_{variable}_HOME"] = f"{home}/{variable.lower()}"
        file = bed.folder / "lines"
        file.write_bytes((b"x" * 99 + b"\n") * (MEGABYTES * 10_000))
        figures: dict[str, list[tuple[float, float]]] = {"Slurm": [], "SSH": [], "by hand": []}
        rates: dict[str, list[float]] = {"tfmux": [], "srun": []}
        for _ in range(rounds):
            figures["Slurm"].append(start_and_kill(on_slurm()))
            bed.wait_empty()
            figures["SSH"].append(start_and_kill(over_ssh(hosts)))
            figures["by hand"].append(by_hand(bed))
            rates["tfmux"].append(log_rate(file))
            bed.wait_empty()
            rates["srun"].append(raw_rate(file))
            bed.wait_empty()
    starts = {name: statistics.median(one for one, _ in them) for name, them in figures.items()}
    kills = {name: statistics.median(one for _, one in them) for name, them in figures.items()}
    ours, raw = statistics.median(rates["tfmux"]), statistics.median(rates["srun"])
    ratio = starts["Slurm"] / starts["SSH"]
    rows = [
        (f"medians of {rounds}", "tfmux on Slurm", "tfmux over SSH", "by hand", "bound"),
        (
            f"from the nodes to {TASKS} tasks started",
            f"{starts['Slurm']:.2f} s",
            f"{starts['SSH']:.2f} s",
            f"srun -n{TASKS} {starts['by hand']:.2f} s",
            f"1.1 × SSH, is {ratio:.2f} ×",
        ),
        (
            "from the kill to the last agent's receipt",
            f"{kills['Slurm'] * 1000:.0f} ms",
            f"{kills['SSH'] * 1000:.0f} ms",
            f"scancel {kills['by hand'] * 1000:.0f} ms",
            "100 ms",
        ),
        ("log of one node", f"{ours:.0f} MB/s", "-", f"srun cat {raw:.0f} MB/s", ""),
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print(
            "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        )


if __name__ == "__main__":
    main()
