"""What a run costs while nothing happens: 16 quiet tasks on this machine.

    python -m bench.idle [--rounds 5]

Each round is a new run; after five seconds for settling, the processor seconds of UI, launcher
process and agent within twenty more.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

from bench import processor
from bench.hosts import TASKS, cluster
from bench.report import Row, own_home, run
from bench.terminal import TFMUX, Terminal, until
from launcher.paths import runs_home
from launcher.store.runs import RunFolder

SETTLE_SECONDS = 5.0
SECONDS = 20.0
BOUNDS = {"UI": 1.0, "agent": 0.5}
"""Percent of one core."""


def shares() -> tuple[dict[str, float], float]:
    """Percent of one core that each kind of process takes; megabytes of the agent with
    its watchdog and bridge."""
    with own_home() as folder:
        file = folder / "idle.toml"
        file.write_text(cluster(None, ["sleep", "1000"]))
        terminal = Terminal([*TFMUX, "up", str(file)])
        terminal.until(b"worker:15")
        until(lambda: any(runs_home().iterdir()))
        time.sleep(SETTLE_SECONDS)
        (path,) = runs_home().iterdir()
        processes = processor.of_run(RunFolder(path), terminal.process.pid)
        before, began = processor.sample(processes), time.monotonic()
        time.sleep(SECONDS)
        passed, after = time.monotonic() - began, processor.sample(processes)
        megabytes = sum(map(processor.own_megabytes, processes["agent"]))
        terminal.close(b"\x1b[20~q")  # F9, then q
    used = {name: 100 * (after[name] - before[name]) / passed for name in processes}
    return used, megabytes


def measure(options: argparse.Namespace) -> Iterator[Row]:
    """The shares of each kind of process, and the agent's memory."""
    rounds = [shares() for _ in range(options.rounds)]
    for name in rounds[0][0]:
        figures = tuple(used[name] for used, _ in rounds)
        note = "share of one core"
        yield Row(f"{TASKS} quiet tasks: {name}", "%", figures, at_most=BOUNDS.get(name), note=note)
    yield Row(
        f"{TASKS} quiet tasks here: memory of all processes of the agent",
        "MB",
        tuple(megabytes for _, megabytes in rounds),
        at_most=20,
        note="shared pages counted by share",
    )


if __name__ == "__main__":
    run(__doc__, measure)
