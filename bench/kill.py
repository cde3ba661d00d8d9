"""How long a kill takes until no process is left: on four hosts beside `clush`, and here.

    python -m bench.kill [--rounds 5]

Sixteen tasks on four hosts: from the key to the receipt in which every host confirms that nothing
is left, and our own look at `/proc` after it finds nothing. Beside it `clush pkill` and the look
that confirms it, `clush pgrep`. Tasks are quiet, flood, or write the worst log text known, line
after line. On this machine: sixteen tasks beside one `kill` command a process.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from bench.hosts import TASKS, clush, cluster, ssh_hosts, without_clush
from bench.report import Row, interleave, own_home, run
from bench.terminal import until
from launcher.agent import proc
from launcher.cluster.file import loads
from launcher.session.client import RunClient
from tests.attacks.worst_text import worst_lines
from tests.testbed.namespaces import Testbed

QUIET = "import time\ntime.sleep(1000)"
FLOOD = "import os\nwhile True: os.write(1, b'a line of a flood that never ends\\n' * 1000)"
WORST = (
    "import os\ntext = open('/tmp/worst', 'rb').read()\n"
    "while True:\n    left = memoryview(text)\n    while left: left = left[os.write(1, left):]"
)
SCRIPTS = {"quiet": QUIET, "under a flood": FLOOD, "with the worst log text": WORST}
WORD = "tfmux-bench-kill"
"""On the command line of each task: what `pkill -f` looks for."""
SETTLE_SECONDS = 1.0


def tasks_of(run_id: str) -> list[int]:
    """The pids of a run's tasks."""
    wanted = f"{run_id}/".encode()
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            value = proc.variable(int(name), proc.TAG)
            if value is not None and value.startswith(wanted):
                found.append(int(name))
    return found


def by_key(text: str) -> tuple[float, float]:
    """Seconds from the key until no process is left, and until the receipt."""
    client = RunClient.launch(loads(text, "bench", Path.cwd()), text)
    until(lambda: len(tasks_of(client.run_id)) >= TASKS)
    time.sleep(SETTLE_SECONDS)
    pids = tasks_of(client.run_id)
    began = time.perf_counter()
    client.kill_all()
    until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids), pace=0.0005)
    dead = time.perf_counter() - began
    until(lambda: client.snapshot().receipt is not None, pace=0.0005)
    told = time.perf_counter() - began
    receipt = client.snapshot().receipt
    if receipt is None or not receipt.clean or tasks_of(client.run_id):
        raise SystemExit(f"{client.run_id}: something is left")
    client.wait()
    return dead, told


def by_clush(hosts: Testbed, text: str) -> tuple[float, float]:
    """The same tasks, ended by `clush pkill` and looked for by `clush pgrep` until none is left."""
    client = RunClient.launch(loads(text, "bench", Path.cwd()), text)
    until(lambda: len(tasks_of(client.run_id)) >= TASKS)
    time.sleep(SETTLE_SECONDS)
    began = time.perf_counter()
    # The brackets keep the pattern from finding the shell that carries it.
    subprocess.run(clush(hosts, f"pkill -KILL -f '[t]{WORD[1:]}'"), stderr=subprocess.DEVNULL)
    dead = time.perf_counter() - began
    look = clush(hosts, f"pgrep -f '[t]{WORD[1:]}' || true")
    while subprocess.run(look, capture_output=True).stdout:
        continue
    told = time.perf_counter() - began
    if tasks_of(client.run_id):
        raise SystemExit("something is left")
    client.kill_all()
    client.wait()
    return dead, told


def local(script: str) -> str:
    """Tasks of one script on this machine."""
    places = ", ".join(['"localhost:auto"'] * TASKS)
    command = [sys.executable, "-c", script]
    return (
        f'name = "kill"\n[jobs.worker]\ntasks = [{places}]\n'
        f'[run]\ncommand = {json.dumps(command)}\nworkdir = ""\nlog_limit = 50000000\n'
        f'[start]\norder = [["worker"]]\n[start.ready]\nworker = "started"\n'
    )


def by_hand() -> tuple[float, float]:
    """One `kill` a process, one after the other."""
    sleepers = [subprocess.Popen(["sleep", "1000"]) for _ in range(TASKS)]
    began = time.perf_counter()
    for sleeper in sleepers:
        subprocess.run(["kill", f"-{signal.SIGKILL}", str(sleeper.pid)], check=True)
    for sleeper in sleepers:
        sleeper.wait()
    seconds = time.perf_counter() - began
    return seconds, seconds


def milliseconds(figures: list[tuple[float, float]], at: int) -> tuple[float, ...]:
    """One of the two figures of each round."""
    return tuple(1000 * figure[at] for figure in figures)


def on_hosts(hosts: Testbed, rounds: int) -> Iterator[Row]:
    """Kills on four hosts."""
    for host in hosts:
        (host.disk / "tmp" / "worst").write_bytes(b"\n".join(worst_lines()) + b"\n")
    for name, script in SCRIPTS.items():
        command = ["/usr/bin/python3", "-c", script, WORD]
        text = cluster(hosts, command, run="log_limit = 50000000\n")
        found = interleave(
            {"key": partial(by_key, text), "clush": partial(by_clush, hosts, text)}, rounds
        )
        what = f"kill-all on 4 hosts, {TASKS} tasks {name}"
        ours, theirs = found["key"], found["clush"]
        peer = "`clush pkill`"
        yield Row(
            f"{what}: key to all dead", "ms", milliseconds(ours, 0), peer, milliseconds(theirs, 0)
        )
        told, looked = milliseconds(ours, 1), milliseconds(theirs, 1)
        yield Row(f"{what}: confirmed", "ms", told, f"{peer} and a look", looked, at_most=0.03)


def measure(options: argparse.Namespace) -> Iterator[Row]:
    """On four hosts, then here."""
    if reason := without_clush():
        yield Row("kill-all on 4 hosts", skipped=reason)
    else:
        with ssh_hosts() as hosts:
            yield from on_hosts(hosts, options.rounds)
    with own_home():
        for name in ("quiet", "under a flood"):
            text = local(SCRIPTS[name])
            sides: dict[str, Callable[[], tuple[float, float]]] = {
                "key": partial(by_key, text),
                "hand": by_hand,
            }
            found = interleave(sides, options.rounds)
            dead, theirs = milliseconds(found["key"], 0), milliseconds(found["hand"], 0)
            what = f"kill of {TASKS} tasks here {name}: key to all dead"
            yield Row(what, "ms", dead, "one `kill` after the other", theirs)


if __name__ == "__main__":
    run(__doc__, measure)
