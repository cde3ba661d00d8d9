"""The whole way of a flood: task → agent → disk → pane, beside other tools on the same machine.

    python -m bench.flood [--tasks 1 4 16] [--megabytes 200]

`cat` of one prepared file by 1, 4 and 16 tasks at once. Plain files (`dd` to a file) show what
the machine can do at all, pipes (`cat | dd`) what it can do with a pipe in between; mprocs (npm)
and honcho (PyPI) are fetched into a temporary folder and left out, with a word, where that fails.
They get a fiftieth of the lines, for they are slow. What a tool takes to start and stop (the same
with an empty file) is subtracted.
"""

# ruff: noqa: T201
from __future__ import annotations

import argparse
import fcntl
import json
import os
import pty
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from launcher.store.runs import RunFolder

LINE = "\x1b[32mINFO\x1b[0m 12:04:11 batch {:07d} of \x1b[1mepoch 3\x1b[0m took 12 ms, queue 4\n"
SLOW_SHARE = 50
ROUNDS = 3
DEADLINE = 300.0


Measure = Callable[[Path, int, Path], float]
"""Seconds for so many tasks that each print a file, with a folder to work in."""


class Terminal:
    """A program in a pseudo-terminal of 200×50 whose screen is read and thrown away."""

    def __init__(self, argv: Sequence[str], env: dict[str, str], cwd: Path) -> None:
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 200, 0, 0))
        self.process = subprocess.Popen(
            argv,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**os.environ, "TERM": "xterm-256color", **env},
            cwd=cwd,
            start_new_session=True,
        )
        os.close(theirs)
        self._fd = ours
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def type(self, keys: bytes) -> None:
        """Presses keys."""
        os.write(self._fd, keys)

    def wait(self) -> None:
        """Waits for the program's end."""
        try:
            self.process.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGKILL)
            raise

    def _read(self) -> None:
        try:
            while os.read(self._fd, 1 << 16):
                continue
        except OSError:  # the program has closed the terminal
            return


def plain(file: Path, tasks: int, folder: Path) -> float:
    """`dd` from the file into another one, as many at once: a read and a write of every byte.

    `cat FILE > OUT` would let the kernel share or copy the blocks, which no output of a program
    can have.
    """
    began = time.perf_counter()
    cats = []
    for number in range(tasks):
        with (folder / f"out-{number}").open("wb") as out:
            argv = ["dd", f"if={file}", "bs=128K", "status=none"]
            cats.append(subprocess.Popen(argv, stdout=out))
    for cat in cats:
        cat.wait()
    return time.perf_counter() - began


def piped(file: Path, tasks: int, folder: Path) -> float:
    """`cat FILE | dd of=OUT`, as many at once: what is left to gain for anything that stands
    between a program and its file, so that a full disk or a limit does not reach the program."""
    began = time.perf_counter()
    ends = []
    for number in range(tasks):
        cat = subprocess.Popen(["cat", str(file)], stdout=subprocess.PIPE)
        argv = ["dd", f"of={folder / f'out-{number}'}", "bs=128K", "status=none"]
        ends.append(subprocess.Popen(argv, stdin=cat.stdout))
        assert cat.stdout is not None
        cat.stdout.close()
        ends.append(cat)
    for end in ends:
        end.wait()
    return time.perf_counter() - began


def tfmux(file: Path, tasks: int, folder: Path) -> float:
    """The run screen on a cluster of `cat`s; from the first start to the last exit."""
    places = ", ".join(['"localhost:auto"'] * tasks)
    cluster = folder / "cluster.toml"
    cluster.write_text(
        f'name = "flood"\n[jobs.worker]\ntasks = [{places}]\n[run]\n'
        f'command = ["cat", "{file}"]\nworkdir = ""\nsuccess = "all"\n'
        f'[start]\norder = [["worker"]]\n[start.ready]\nworker = "started"\n'
    )
    env = {"XDG_DATA_HOME": str(folder / "data"), "XDG_STATE_HOME": str(folder / "state")}
    root = Path(__file__).resolve().parent.parent
    argv = [sys.executable, "-m", "tui.main", "up", str(cluster)]
    window = Terminal(argv, env, root)
    runs = folder / "data" / "tfmux" / "runs"
    records = _until_ended(runs)
    while window.process.poll() is None:  # a key that comes before the screen is lost
        window.type(b"q")
        time.sleep(0.2)
    run = RunFolder(next(runs.iterdir()))
    for number in range(tasks):
        stored = (run.path / f"worker-{number}.log").stat().st_size if file.stat().st_size else 0
        if stored != file.stat().st_size:
            raise SystemExit(f"worker:{number} lost bytes: {stored} of {file.stat().st_size}")
    times = {
        state: [r["time"] for r in records if r["event"] == "task" and r["state"] == state]
        for state in ("starting", "exited")
    }
    return float(max(times["exited"]) - min(times["starting"]))


def _until_ended(runs: Path) -> list[dict[str, Any]]:
    deadline = time.monotonic() + DEADLINE
    while time.monotonic() < deadline:
        for path in runs.glob("*"):
            records = list(RunFolder(path).records())
            if any(r["event"] == "run" and r["state"] == "ended" for r in records):
                return records
        time.sleep(0.05)
    raise SystemExit("the run did not end")


def mprocs(program: Path) -> Measure:
    """mprocs in its terminal until all processes have finished."""

    def measure(file: Path, tasks: int, folder: Path) -> float:
        commands = [f"cat {file}"] * tasks
        argv = [str(program), "--on-all-finished", "{c: quit}", *commands]
        began = time.perf_counter()
        Terminal(argv, {}, folder).wait()
        return time.perf_counter() - began

    return measure


def honcho(program: Path) -> Measure:
    """honcho with its merged output into a file."""

    def measure(file: Path, tasks: int, folder: Path) -> float:
        lines = [f"task{number}: cat {file}; sleep 0.2" for number in range(tasks)]
        (folder / "Procfile").write_text("\n".join(lines) + "\n")
        began = time.perf_counter()
        with (folder / "out").open("wb") as out:
            subprocess.run([str(program), "start"], stdout=out, cwd=folder, timeout=DEADLINE)
        return time.perf_counter() - began

    return measure


def others(folder: Path) -> dict[str, Measure]:
    """The tools to compare with, as far as they can be had."""
    found: dict[str, Measure] = {}
    npm = shutil.which("npm")
    if npm:
        subprocess.run([npm, "install", "--silent", "mprocs@0.9.6"], cwd=folder, check=False)
        program = folder / "node_modules" / ".bin" / "mprocs"
        if program.exists():
            found["mprocs"] = mprocs(program)
    subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
    pip = [str(folder / "venv" / "bin" / "pip"), "install", "--quiet", "honcho==2.0.0"]
    if subprocess.run(pip, check=False).returncode == 0:
        found["honcho"] = honcho(folder / "venv" / "bin" / "honcho")
    for name in ("mprocs", "honcho"):
        if name not in found:
            print(f"{name} could not be had here and is left out")
    return found


def rate(measure: Measure, file: Path, empty: Path, lines: int, tasks: int) -> float:
    """Lines a second: the median of three rounds, less what an empty file takes."""
    rates = []
    for _ in range(ROUNDS):
        with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
            idle = measure(empty, tasks, Path(one))
            busy = measure(file, tasks, Path(two))
        rates.append(lines * tasks / max(1e-6, busy - idle))
    return statistics.median(rates)


def main() -> None:
    """Prints a table: tool × number of tasks, lines a second and the ratios."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tasks", type=int, nargs="*", default=[1, 4, 16])
    parser.add_argument("--megabytes", type=int, default=200, help="in all, for the fast ones")
    arguments = parser.parse_args()
    results: dict[str, dict[int, float]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        empty = folder / "empty"
        empty.write_bytes(b"")
        slow = others(folder)
        for tasks in arguments.tasks:
            whole = arguments.megabytes * 1_000_000 // len(LINE.format(0)) // tasks
            few = max(1000, whole // SLOW_SHARE)
            large, small = folder / "large", folder / "small"
            large.write_text("".join(LINE.format(i) for i in range(whole)))
            small.write_text("".join(LINE.format(i) for i in range(few)))
            fast: dict[str, Measure] = {"plain files": plain, "pipes": piped, "tfmux": tfmux}
            for tool, measure in fast.items():
                results.setdefault(tool, {})[tasks] = rate(measure, large, empty, whole, tasks)
            for tool, measure in slow.items():
                results.setdefault(tool, {})[tasks] = rate(measure, small, empty, few, tasks)
    print(
        json.dumps({tool: {t: round(r) for t, r in row.items()} for tool, row in results.items()})
    )
    print(f"{'lines/s':<14}" + "".join(f"{tasks:>14} tasks" for tasks in arguments.tasks))
    for tool, row in results.items():
        print(f"{tool:<14}" + "".join(f"{row[tasks]:>20,.0f}" for tasks in arguments.tasks))
    for tool in results:
        if tool != "tfmux":
            ratios = [results["tfmux"][t] / results[tool][t] for t in arguments.tasks]
            print(f"tfmux / {tool:<12}" + "".join(f"{ratio:>14.2f}" for ratio in ratios))


if __name__ == "__main__":
    main()
