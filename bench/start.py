"""How soon tfmux answers.

    python -m bench.start [--rounds 5]

First paint of `tfmux` beside that of an empty Textual app, and `tfmux --help` beside
`python -c pass`.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence

from bench.report import Row, interleave, own_home, run
from bench.terminal import ROOT, TFMUX, Terminal

EMPTY = (
    "from textual.app import App\n"
    "from textual.widgets import Static\n"
    "class Empty(App):\n"
    "    def compose(self):\n"
    "        yield Static('an-empty-app')\n"
    "Empty().run()\n"
)


def paint(argv: Sequence[str], texts: Sequence[bytes], keys: bytes) -> list[float]:
    """Seconds until each of the texts has been painted, one after the other."""
    terminal = Terminal(argv)
    seconds = [terminal.until(text) for text in texts]
    terminal.close(keys)
    return seconds


def command(*argv: str) -> float:
    """Seconds that a command takes."""
    began = time.perf_counter()
    subprocess.run(argv, stdout=subprocess.DEVNULL, check=True, cwd=ROOT)
    return time.perf_counter() - began


def measure(options: argparse.Namespace) -> Iterator[Row]:
    """First paint, the list of the home screen, `--help`."""
    empty = (sys.executable, "-c", EMPTY)
    with own_home():
        paints = interleave(
            {
                "tfmux": lambda: paint(TFMUX, (b"looking for clusters", b"demos"), b"q"),
                "empty": lambda: paint(empty, (b"an-empty-app",), b"\x11"),
            },
            options.rounds,
        )
        commands = interleave(
            {
                "help": lambda: command(*TFMUX, "--help"),
                "python": lambda: command(sys.executable, "-c", "pass"),
            },
            options.rounds,
        )
    first = tuple(seconds[0] for seconds in paints["tfmux"])
    blank = tuple(seconds[0] for seconds in paints["empty"])
    yield Row("first paint", "s", first, "an empty Textual app", blank, at_most=1.2)
    lists = tuple(seconds[1] for seconds in paints["tfmux"])
    yield Row("its list of clusters, runs and demos", "s", lists)
    helps, bare = tuple(commands["help"]), tuple(commands["python"])
    yield Row("`tfmux --help`", "s", helps, "`python -c pass`", bare, at_most=3)


if __name__ == "__main__":
    run(__doc__, measure)
