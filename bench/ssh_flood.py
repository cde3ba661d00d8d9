"""A flood that comes over SSH from four hosts, beside `ssh HOST cat` into files.

    python -m bench.ssh_flood [--tasks 4 16] [--megabytes 400] [--rounds 5]

As in `bench.flood`, with the file on the hosts: tasks wait for a gate, and each log is compared by
its hash. By hand one connection a task is opened beforehand and waits for the same gate; the
cipher is what OpenSSH and tfmux choose by themselves. Processor seconds are those of the whole
machine, which has nothing else to do.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from bench import processor
from bench.flood import Flood, Measure, Screen, Took, costs_a_gigabyte, parts, write_lines
from bench.hosts import cluster, ssh, ssh_hosts
from bench.report import Row, interleave, run
from bench.terminal import p95, until
from tests.testbed.namespaces import Testbed

_LAST = """last = "started"
[jobs.last]
tasks = ["{host}:auto"]
command = ["sh", "-c", "while [ ! -e /tmp/end ]; do sleep 0.2; done"]
"""
"""Keeps the run alive until all is measured."""
_WAIT = ": > /tmp/ready-{number}; while [ ! -e /tmp/go ]; do sleep 0.02; done; exec cat /tmp/lines"


def lay_out(hosts: Testbed, file: Path) -> None:
    """Brings the file to all hosts, without a gate."""
    for host in hosts:
        shutil.copyfile(file, host.disk / "tmp" / "lines")
    close_gate(hosts)


def close_gate(hosts: Testbed) -> None:
    """Takes away what an earlier round has left."""
    for host in hosts:
        for path in (host.disk / "tmp").glob("ready-*"):
            path.unlink()
        for name in ("go", "end"):
            (host.disk / "tmp" / name).unlink(missing_ok=True)


def open_gate(hosts: Testbed, tasks: int) -> float:
    """Lets all through that wait, when they are there; returns the time of day."""
    each = tasks // len(hosts.hosts)
    folders = [host.disk / "tmp" for host in hosts]
    until(lambda: all(len(list(folder.glob("ready-*"))) >= each for folder in folders))
    began = time.time()
    for folder in folders:
        (folder / "go").touch()
    return began


def tfmux(hosts: Testbed, flood: Flood, folder: Path) -> Took:
    """The run screen on tasks of four hosts."""
    command = ["sh", "-c", _WAIT.format(number="{index}")]
    file = folder / "cluster.toml"
    first = next(iter(hosts))
    file.write_text(cluster(hosts, command, flood.tasks, tables=_LAST.format(host=first.name)))
    screen = Screen(file, folder)
    before = 0.0

    def begin() -> float:
        nonlocal before
        began = open_gate(hosts, flood.tasks)
        before = processor.machine()
        return began

    took = screen.measure(begin, flood.tasks)
    used = {**took.processor, "all": processor.machine() - before}
    (first.disk / "tmp" / "end").touch()
    screen.close()
    flood.verify(screen.logs(flood.tasks))
    return replace(took, processor=used)


def by_hand(hosts: Testbed, flood: Flood, folder: Path) -> Took:
    """`ssh HOST cat > FILE`, one a task."""
    names = [host.name for host in hosts]
    outs = [folder / f"out-{number}" for number in range(flood.tasks)]
    running = []
    for number, out in enumerate(outs):
        words = ssh(hosts, names[number % len(names)], _WAIT.format(number=number))
        with out.open("wb") as sink:
            running.append(subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=sink))
    began = open_gate(hosts, flood.tasks)
    before = processor.machine()
    for process in running:
        if process.wait():
            raise SystemExit(f"ssh ended with {process.returncode}")
    took = Took(time.time() - began, {"all": processor.machine() - before})
    flood.verify(outs)
    return took


def in_folder(hosts: Testbed, measure_one: Measure, flood: Flood) -> Took:
    """Measures in a folder that goes afterwards, with the gate closed."""
    close_gate(hosts)
    with tempfile.TemporaryDirectory() as folder:
        return measure_one(flood, Path(folder))


def measure(options: argparse.Namespace) -> Iterator[Row]:
    """Each number of tasks: the rate, and keys."""
    with ssh_hosts() as hosts:
        for tasks in options.tasks:
            file = write_lines(hosts.directory / "lines", options.megabytes / tasks)
            lay_out(hosts, file)
            flood = Flood(file, tasks)
            sides: dict[str, Measure] = {
                "tfmux": partial(tfmux, hosts),
                "ssh": partial(by_hand, hosts),
            }
            runs = {name: partial(in_folder, hosts, one, flood) for name, one in sides.items()}
            found = interleave(runs, options.rounds)
            rates = {
                name: tuple(1000 * flood.gigabytes / one.seconds for one in them)
                for name, them in found.items()
            }
            what = f"flood over SSH, 4 hosts, {tasks} tasks"
            peer = "`ssh HOST cat > FILE`"
            yield Row(what, "MB/s", rates["tfmux"], peer, rates["ssh"], at_least=0.5)
            costs = costs_a_gigabyte(flood, found)
            yield Row(
                f"{what}: processor seconds of the machine a GB",
                "s",
                tuple(cost["all"] for cost in costs["tfmux"]),
                peer,
                tuple(cost["all"] for cost in costs["ssh"]),
                note=f"{parts(costs['tfmux'])}; the others are sshd and the tasks",
            )
            keys = [one.keys for one in found["tfmux"] if one.keys]
            name = f"{what}: key to handler"
            yield Row(f"{name}, p95", "ms", tuple(map(p95, keys)))
            yield Row(f"{name}, the latest of all rounds", "ms", (max(map(max, keys)),), at_most=50)


def extend(parser: argparse.ArgumentParser) -> None:
    """Adds how many tasks, and how much they write."""
    parser.add_argument("--tasks", type=int, nargs="*", default=[4, 16])
    parser.add_argument("--megabytes", type=int, default=400, help="of all tasks")


if __name__ == "__main__":
    run(__doc__, measure, extend)
