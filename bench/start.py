"""How soon tfmux answers, and what it costs while nothing happens.

    python -m bench.start [--rounds 5]

First paint of `tfmux` beside that of an empty Textual app, and when its list has been filled,
`tfmux --help` beside `python -c pass`, and the processor time of UI, launcher process and agent
with 16 quiet tasks.
"""

# ruff: noqa: T201
from __future__ import annotations

import argparse
import fcntl
import os
import pty
import select
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path

from bench import processor
from launcher.paths import runs_home
from launcher.store.runs import RunFolder

EMPTY = (
    "from textual.app import App\n"
    "from textual.widgets import Static\n"
    "class Empty(App):\n"
    "    def compose(self):\n"
    "        yield Static('an-empty-app')\n"
    "Empty().run()\n"
)
ROOT = Path(__file__).resolve().parent.parent
IDLE_SECONDS = 20.0
DEADLINE = 60.0


class Screen:
    """A program in a pseudo-terminal of 200×50."""

    def __init__(self, argv: list[str]) -> None:
        self.began = time.perf_counter()
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(ROOT)
            os.environ["TERM"] = "xterm-256color"
            os.execv(argv[0], argv)
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 200, 0, 0))
        self._seen = b""

    def until(self, text: bytes) -> float:
        """Seconds from the start until the text has been painted."""
        while text not in self._seen:
            if time.perf_counter() - self.began > DEADLINE:
                raise SystemExit(f"never painted: {text!r}")
            self.read(1.0)
        return time.perf_counter() - self.began

    def read(self, seconds: float) -> None:
        """Takes what is painted within so many seconds."""
        if select.select([self.fd], [], [], seconds)[0]:
            self._seen = (self._seen + os.read(self.fd, 1 << 16))[-(1 << 20) :]

    def close(self, keys: bytes) -> None:
        """Presses keys until it has ended."""
        deadline = time.monotonic() + 20
        while os.waitpid(self.pid, os.WNOHANG)[0] == 0:
            if time.monotonic() > deadline:
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
                break
            try:
                os.write(self.fd, keys)
                self.read(0.2)
            except OSError:  # the terminal has been let go
                time.sleep(0.1)
        os.close(self.fd)


def paint(argv: list[str], texts: list[bytes], keys: bytes) -> list[float]:
    """Seconds until each of the texts has been painted, one after the other."""
    screen = Screen(argv)
    seconds = [screen.until(text) for text in texts]
    screen.close(keys)
    return seconds


def command(argv: list[str]) -> float:
    """Seconds that a command takes."""
    began = time.perf_counter()
    subprocess.run(argv, stdout=subprocess.DEVNULL, check=True, cwd=ROOT)
    return time.perf_counter() - began


def idle(folder: Path) -> dict[str, float]:
    """The shares of one core that the processes of a run with 16 quiet tasks take."""
    places = ", ".join(['"localhost:auto"'] * 16)
    file = folder / "idle.toml"
    file.write_text(
        f'name = "idle"\n[jobs.worker]\ntasks = [{places}]\n[run]\n'
        'command = ["sleep", "1000"]\nworkdir = ""\n[start]\norder = [["worker"]]\n'
        '[start.ready]\nworker = "started"\n'
    )
    screen = Screen([sys.executable, "-m", "tui.main", "up", str(file)])
    screen.until(b"worker:15")
    settled = time.monotonic() + 5
    while time.monotonic() < settled:
        screen.read(0.5)
    (path,) = runs_home().iterdir()
    processes = processor.of_run(RunFolder(path), screen.pid)
    before, began = processor.sample(processes), time.monotonic()
    while time.monotonic() - began < IDLE_SECONDS:
        screen.read(0.5)
    passed, after = time.monotonic() - began, processor.sample(processes)
    screen.close(b"\x1b[20~q")  # F9, then q
    return {name: (after[name] - before[name]) / passed for name in processes}


def main() -> None:
    """Prints medians."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = range(parser.parse_args().rounds)
    with tempfile.TemporaryDirectory() as name:
        for variable in ("DATA", "CONFIG", "STATE", "CACHE"):
            os.environ[f"XDG_{variable}_HOME"] = f"{name}/{variable.lower()}"
        tfmux = [sys.executable, "-m", "tui.main"]
        empty = [sys.executable, "-c", EMPTY]
        ours, lists, theirs, helps, bare = [], [], [], [], []
        for _ in rounds:  # paired: the machine's noise falls on all alike
            frame, rows = paint(tfmux, [b"looking for clusters", b"Demos"], b"q")
            ours.append(frame)
            lists.append(rows)
            theirs += paint(empty, [b"an-empty-app"], b"\x11")
            helps.append(command([*tfmux, "--help"]))
            bare.append(command([sys.executable, "-c", "pass"]))
        first, blank = statistics.median(ours), statistics.median(theirs)
        print(
            f"first paint: tfmux {first:.2f} s, an empty app {blank:.2f} s: {first / blank:.2f} ×"
        )
        print(f"its list of clusters, runs and demos: {statistics.median(lists):.2f} s")
        helped, started = statistics.median(helps), statistics.median(bare)
        print(f"tfmux --help: {helped:.3f} s, an interpreter alone {started:.3f} s")
        shares = ", ".join(f"{who} {part:.2%}" for who, part in idle(Path(name)).items())
        print(f"16 quiet tasks, of one core: {shares}")


if __name__ == "__main__":
    main()
