"""How long a kill takes until no process is left: on four hosts beside `clush`, and here.

    python -m bench.kill [--rounds 5]

Sixteen tasks on four hosts and a run screen in a terminal: from F9 until none of the processes is
left, until a client has the receipt in which every host confirms it, and until the screen shows it;
our own look at `/proc` after it finds nothing. Beside it the same programs, started by `clush` with
their output to `/dev/null`, ended by `clush pkill`, and the look that confirms it, `clush pgrep`.
Tasks are quiet, flood, or write the worst log text known, line after line. On this machine: sixteen
tasks beside the same programs and one `kill` for each.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from bench.hosts import TASKS, Commands, clush, cluster, ssh_hosts, without_clush
from bench.report import Row, interleave, own_home, run
from bench.terminal import TFMUX, Terminal, until
from launcher.paths import runs_home
from launcher.session.client import RunClient
from launcher.store.runs import RunFolder
from tests.support.worst_text import worst_lines
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
LIMIT = "log_limit = 1000000000\n"
"""Of each log: more than a task writes within the time of a round."""
F9, RECEIPT = b"\x1b[20~", b"nothing is left"


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
    """The same programs, started by `clush`, ended by `clush pkill` and looked for by `clush
    pgrep` until none is left."""
    one = f"setsid {shlex.join(command)} > /dev/null 2>&1 < /dev/null &"
    subprocess.run(clush(hosts, " ".join([one] * (TASKS // len(list(hosts))))), check=True)
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


def local(command: Sequence[str]) -> str:
    """Tasks of one command on this machine."""
    places = ", ".join(['"localhost:auto"'] * TASKS)
    return (
        f'name = "kill"\n[jobs.worker]\ntasks = [{places}]\n'
        f'[run]\ncommand = {json.dumps(list(command))}\nworkdir = ""\n{LIMIT}'
        f'[start]\norder = [["worker"]]\n[start.ready]\nworker = "started"\n'
    )


def by_hand(command: Sequence[str]) -> tuple[float, ...]:
    """The same programs and one `kill` for each, one after the other."""
    programs = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for _ in range(TASKS)]
    started(command)
    began = time.perf_counter()
    for program in programs:
        subprocess.run(["kill", f"-{signal.SIGKILL}", str(program.pid)], check=True)
    for program in programs:
        program.wait()
    seconds = time.perf_counter() - began
    return seconds, seconds


def milliseconds(figures: Sequence[tuple[float, ...]], at: int) -> tuple[float, ...]:
    """One figure of each round."""
    return tuple(1000 * figure[at] for figure in figures)


def on_hosts(hosts: Testbed, rounds: int) -> Iterator[Row]:
    """Kills on four hosts."""
    for host in hosts:
        (host.disk / "tmp" / "worst").write_bytes(b"\n".join(worst_lines()) + b"\n")
    for name, script in SCRIPTS.items():
        command = ["/usr/bin/python3", "-c", script, WORD]
        text = cluster(hosts, command, run=LIMIT)
        found = interleave(
            {"key": partial(by_key, text, command), "clush": partial(by_clush, hosts, command)},
            rounds,
        )
        what = f"kill-all on 4 hosts, {TASKS} tasks {name}"
        ours, theirs = found["key"], found["clush"]
        peer = "`clush pkill`"
        yield Row(
            f"{what}: key to all dead", "ms", milliseconds(ours, 0), peer, milliseconds(theirs, 0)
        )
        told, looked = milliseconds(ours, 1), milliseconds(theirs, 1)
        yield Row(f"{what}: confirmed", "ms", told, f"{peer} and a look", looked, at_most=0.03)
        yield Row(f"{what}: key to the receipt on the screen", "ms", milliseconds(ours, 2))


def measure(options: argparse.Namespace) -> Iterator[Row]:
    """On four hosts, then here."""
    if reason := without_clush():
        yield Row("kill-all on 4 hosts", skipped=reason)
    else:
        with ssh_hosts() as hosts:
            yield from on_hosts(hosts, options.rounds)
    with own_home():
        for name in ("quiet", "under a flood"):
            command = [sys.executable, "-c", SCRIPTS[name], WORD]
            sides: dict[str, Callable[[], tuple[float, ...]]] = {
                "key": partial(by_key, local(command), command),
                "hand": partial(by_hand, command),
            }
            found = interleave(sides, options.rounds)
            dead, theirs = milliseconds(found["key"], 0), milliseconds(found["hand"], 0)
            what = f"kill of {TASKS} tasks here {name}: key to all dead"
            yield Row(what, "ms", dead, "one `kill` after the other", theirs)


if __name__ == "__main__":
    run(__doc__, measure)
