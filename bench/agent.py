"""What a host's agent costs: 16 quiet tasks, and 16 that flood, without a launcher that reads.

    python -m bench.agent [--rounds 5] [--megabytes 1200]

An agent on this machine is spoken to with bare frames. Its share of a core and its memory while
16 tasks sleep; the rate at which 16 tasks get a file of lines into their logs, beside `cat | dd`,
with outputs that are compared by their hashes.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from bench import processor
from bench.flood import Flood, Gate, Took, in_folder, piped, write_lines
from bench.report import Row, interleave, own_home, run
from launcher.agent import wire
from launcher.ids import new_run_id
from tests.support.agent_client import Client, family, state_folder, watchdog_and_agent

TASKS = 16
SETTLE_SECONDS = 3.0
SECONDS = 20.0
BEAT_SECONDS = 1.0


def of_agent(run_id: str) -> list[int]:
    """Everything of tfmux on the host: watchdog, agent, bridge."""
    return [process.pid for process in family(run_id) if process.argv[0] != "sleep"]


def idle() -> tuple[float, float]:
    """Percent of a core, megabytes."""
    run_id = new_run_id("idle")
    with Client(run_id) as client:
        client.hello()
        for number in range(TASKS):
            client.start(f"worker:{number}", ["sleep", "1000"])
        time.sleep(SETTLE_SECONDS)
        pids = of_agent(run_id)
        before, began = sum(map(processor.seconds, pids)), time.monotonic()
        end = began + SECONDS
        while time.monotonic() < end:
            client.send(wire.BEAT)
            client.receive(0.0)
            time.sleep(BEAT_SECONDS)
        share = 100 * (sum(map(processor.seconds, pids)) - before) / (time.monotonic() - began)
        size = sum(map(processor.own_megabytes, pids))
        client.kill()
        client.leave()
    return share, size


def flood(work: Flood, folder: Path) -> Took:
    """From the gate until the last task has exited and its output is in its log."""
    gate = Gate(folder, "go")
    run_id = new_run_id("flood")
    ready = [folder / f"ready-{number}" for number in range(work.tasks)]
    with Client(run_id) as client:
        client.hello()
        for number, path in enumerate(ready):
            cat = gate.wait_and(str(path), f"cat {work.file}")
            client.start(f"worker:{number}", ["sh", "-c", cat])
        pids = [process.pid for process in watchdog_and_agent(run_id)]
        before = sum(map(processor.seconds, pids))
        began = gate.open(ready)
        for number in range(work.tasks):
            client.get(wire.EOF, task=f"worker:{number}")
        seconds = time.time() - began
        used = sum(map(processor.seconds, pids)) - before
        logs = list(state_folder(run_id).rglob("worker-*.log"))
        if len(logs) != work.tasks:
            raise SystemExit(f"{len(logs)} logs of {work.tasks} tasks")
        work.verify(logs)
        client.kill()
        client.leave()
    return Took(seconds, {"agent": used})


def measure(options: argparse.Namespace) -> Iterator[Row]:
    """Quiet, then under a flood."""
    with own_home():
        quiet = [idle() for _ in range(options.rounds)]
        shares, whole = (tuple(one[at] for one in quiet) for at in range(2))
        name = f"agent on a host, {TASKS} quiet tasks"
        yield Row(name, "%", shares, at_most=0.5, note="share of one core, all its processes")
        yield Row(f"{name}: memory", "MB", whole, at_most=20, note="all its processes")
        with tempfile.TemporaryDirectory() as folder:
            file = write_lines(Path(folder) / "lines", options.megabytes / TASKS)
            work = Flood(file, TASKS)
            sides = {"agent": flood, "piped": piped}
            runs = {who: partial(in_folder, one, work) for who, one in sides.items()}
            found = interleave(runs, options.rounds)
            rates = {
                who: tuple(work.gigabytes / one.seconds for one in them)
                for who, them in found.items()
            }
            costs = ", ".join(
                f"{one.processor['agent'] / work.gigabytes:.2f}" for one in found["agent"]
            )
            yield Row(
                f"agent on a host, {TASKS} flooding tasks",
                "GB/s",
                rates["agent"],
                "`cat | dd`",
                rates["piped"],
                at_least=0.9,
                note=f"processor seconds of the agent a GB: {costs}",
            )


def extend(parser: argparse.ArgumentParser) -> None:
    """Adds how much they write."""
    parser.add_argument("--megabytes", type=int, default=1200, help="of all tasks")


if __name__ == "__main__":
    run(__doc__, measure, extend)
