"""How long a kill takes until no process is left: on four hosts, beside `clush`.

    python -m bench.kill [--rounds 5]

Sixteen tasks on four hosts and a run screen in a terminal: from F9 until none of the processes is
left, until a client has the receipt in which every host confirms it, and until the screen shows it;
our own look at `/proc` after it finds nothing. Beside it the same programs, started by `clush` with
their output to `/dev/null`, ended by `clush pkill`, and the look that confirms it, `clush pgrep`.
Tasks are quiet, or flood.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import partial

from bench.hosts import TASKS, Commands, clush, cluster, ssh_hosts, without_clush
from bench.report import Row, interleave, run
from bench.terminal import TFMUX, Terminal, until
from launcher.client.run_client import RunClient
from launcher.paths import runs_home
from launcher.store.runs import RunFolder
from tests.testbed.namespaces import Testbed

SCRIPTS = {
    "quiet": "import time\ntime.sleep(1000)",
    "under a flood": "import os\nwhile True: os.write(1, b'a line of a flood\\n' * 1000)",
}
WORD = "tfmux-bench-kill"
"""On the command line of each task: what `pkill -f` looks for."""
SETTLE_SECONDS = 1.0
LIMIT = "log_limit = 1000000000\n"
"""Bound of each log: more than a task writes within the time of a round."""
F9, RECEIPT = b"\x1b[20~", b"no process is left"


def started(command: Sequence[str]) -> list[int]:
    """The pids of all tasks, once they run and have had time to write."""
    tasks = Commands(*command)
    until(lambda: len(tasks.pids()) == TASKS)
    time.sleep(SETTLE_SECONDS)
    return tasks.pids()


def gone(pids: Sequence[int]) -> bool:
    """None of the processes is there."""
    return not any(os.path.exists(f"/proc/{pid}") for pid in pids)


def by_key(text: str, command: Sequence[str]) -> tuple[float, ...]:
    """Seconds from the key until no process is left, until another client of the run has the
    receipt, and until it is painted."""
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write(text)
        file.flush()
        terminal = Terminal([*TFMUX, "up", file.name])
        terminal.until(b"running")  # a person presses the key on a screen that shows the run
        pids = started(command)
        client = RunClient.attach(RunFolder(max(runs_home().iterdir())))
        began = time.perf_counter()
        terminal.type(F9)
        until(lambda: gone(pids), pace=0.0005)
        dead = time.perf_counter() - began
        until(lambda: client.snapshot().receipt is not None, pace=0.0005)
        told = time.perf_counter() - began
        terminal.until(RECEIPT)
        painted = time.perf_counter() - began
        receipt = client.snapshot().receipt
        if receipt is None or not receipt.clean or Commands(*command).pids():
            raise SystemExit("something is left")
        client.wait()
        terminal.close(b"q")
    return dead, told, painted


def by_clush(hosts: Testbed, command: Sequence[str]) -> tuple[float, ...]:
    """Times of these programs when they are started by `clush`, ended by `clush pkill` and looked
    for by `clush pgrep` until none is left."""
    one = f"setsid {shlex.join(command)} > /dev/null 2>&1 < /dev/null &"
    subprocess.run(clush(hosts, " ".join([one] * (TASKS // len(hosts.hosts)))), check=True)
    pids = started(command)
    began = time.perf_counter()
    # The brackets keep the pattern from finding the shell that carries it.
    subprocess.run(clush(hosts, f"pkill -KILL -f '[t]{WORD[1:]}'"), stderr=subprocess.DEVNULL)
    until(lambda: gone(pids), pace=0.0005)
    dead = time.perf_counter() - began
    look = clush(hosts, f"pgrep -f '[t]{WORD[1:]}' || true")
    while subprocess.run(look, capture_output=True).stdout:
        continue
    return dead, time.perf_counter() - began


def measure(options: argparse.Namespace) -> Iterator[Row]:
    """Quiet tasks, then a flood."""
    if reason := without_clush():
        yield Row("kill-all on 4 hosts", skipped=reason)
        return
    with ssh_hosts() as hosts:
        for name, script in SCRIPTS.items():
            command = ["/usr/bin/python3", "-c", script, WORD]
            sides = {
                "key": partial(by_key, cluster(hosts, command, run=LIMIT), command),
                "clush": partial(by_clush, hosts, command),
            }
            found = interleave(sides, options.rounds)
            ours, theirs = (
                [
                    tuple(1000 * seconds for seconds in figures)
                    for figures in zip(*side, strict=True)
                ]
                for side in found.values()
            )
            what = f"kill-all on 4 hosts, {TASKS} tasks {name}"
            yield Row(f"{what}: key to all dead", "ms", ours[0], "`clush pkill`", theirs[0])
            look = "`clush pkill` and a look"
            yield Row(f"{what}: confirmed", "ms", ours[1], look, theirs[1])
            yield Row(f"{what}: key to the receipt on the screen", "ms", ours[2])


if __name__ == "__main__":
    run(__doc__, measure)
