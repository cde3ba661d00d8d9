"""How soon tfmux answers, and how soon tasks run.

    python -m bench.start [--rounds 5]

First paint of `tfmux` beside that of an empty Textual app, and `tfmux --help` beside
`python -c pass`. Then, from the command to sixteen `sleep`s on four hosts, as `/proc` shows them:
`tfmux up` beside `clush`; and beside `clush` once more from the key that launches the cluster which
the screen shows.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from bench.hosts import TASKS, Commands, clush, cluster, ssh_hosts, without_clush
from bench.report import Row, interleave, own_home, run
from bench.terminal import ROOT, TFMUX, Terminal, until
from tests.testbed.namespaces import Testbed

EMPTY = (
    "from textual.app import App\n"
    "from textual.widgets import Static\n"
    "class Empty(App):\n"
    "    def compose(self):\n"
    "        yield Static('an-empty-app')\n"
    "Empty().run()\n"
)
SLEEP = ("sleep", "98765")
LOOK_SECONDS = 3.0
"""For so long a person looks at a cluster before the key that launches it."""


def paint(argv: Sequence[str], text: bytes, keys: bytes) -> float:
    """Seconds until a text has been painted."""
    terminal = Terminal(argv)
    seconds = terminal.until(text)
    terminal.close(keys)
    return seconds


def command(*argv: str) -> float:
    """Seconds that a command takes."""
    began = time.perf_counter()
    subprocess.run(argv, stdout=subprocess.DEVNULL, check=True, cwd=ROOT)
    return time.perf_counter() - began


def until_started(*argv: str) -> float:
    """Seconds from a command until all tasks run; it is ended then, and so are they."""
    sleeps = Commands(*SLEEP)
    began = time.perf_counter()
    running = subprocess.Popen(
        argv,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    until(lambda: len(sleeps.pids()) >= TASKS, pace=0.005)
    seconds = time.perf_counter() - began
    running.send_signal(signal.SIGTERM)
    running.wait()
    for pid in sleeps.pids():  # `clush` leaves them
        os.kill(pid, signal.SIGKILL)
    until(lambda: not sleeps.pids())
    return seconds


def from_key(file: Path) -> float:
    """Seconds from the key that launches the cluster on the screen until all tasks run."""
    sleeps = Commands(*SLEEP)
    terminal = Terminal((*TFMUX, str(file)))
    terminal.until(b"bench")
    time.sleep(LOOK_SECONDS)
    began = time.perf_counter()
    terminal.type(b"l")
    until(lambda: len(sleeps.pids()) >= TASKS, pace=0.005)
    seconds = time.perf_counter() - began
    terminal.process.send_signal(signal.SIGTERM)
    until(lambda: not sleeps.pids())
    terminal.close(b"")
    return seconds


def on_hosts(hosts: Testbed, rounds: int) -> Iterator[Row]:
    """From the command to the tasks, and from the key."""
    file = hosts.directory / "bench.toml"
    file.write_text(cluster(hosts, SLEEP, run="grace = 1.0\n"))
    sleeps = " & ".join([" ".join(SLEEP)] * (TASKS // len(hosts.hosts)))
    peer = partial(until_started, *clush(hosts, f"{sleeps} & wait"))
    for moment, measure_one, bound in (
        ("command", partial(until_started, *TFMUX, "up", str(file), "--headless"), 1.9),
        ("key on a screen", partial(from_key, file), 1.2),
    ):
        sides = {"tfmux": measure_one, "clush": peer}
        ours, theirs = (tuple(side) for side in interleave(sides, rounds).values())
        what = f"{TASKS} tasks on 4 SSH hosts started, from the {moment}"
        yield Row(what, "s", ours, "`clush`", theirs, at_most=bound)


def measure(options: argparse.Namespace) -> Iterator[Row]:
    """First paint, `--help`, tasks on hosts."""
    with own_home():
        for what, ours, peer, theirs, bound in (
            (
                "first paint",
                partial(paint, TFMUX, b"looking for clusters", b"q"),
                "an empty Textual app",
                partial(paint, (sys.executable, "-c", EMPTY), b"an-empty-app", b"\x11"),
                1.2,
            ),
            (
                "`tfmux --help`",
                partial(command, *TFMUX, "--help"),
                "`python -c pass`",
                partial(command, sys.executable, "-c", "pass"),
                3,
            ),
        ):
            found = interleave({"ours": ours, "theirs": theirs}, options.rounds)
            yield Row(what, "s", tuple(found["ours"]), peer, tuple(found["theirs"]), at_most=bound)
    if reason := without_clush():
        yield Row(f"{TASKS} tasks on 4 SSH hosts started", skipped=reason)
        return
    with ssh_hosts() as hosts:
        yield from on_hosts(hosts, options.rounds)


if __name__ == "__main__":
    run(__doc__, measure)
