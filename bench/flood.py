"""The whole way of a flood: task → agent → disk → pane, beside other tools on the same machine.

    python -m bench.flood [--tasks 1 4 16] [--megabytes 400] [--rounds 5] [--alone]

`cat` of one prepared file of numbered lines by 1, 4 and 16 tasks at once. Plain files (`dd` to a
file) show what the machine can do at all, pipes (`cat | dd`) what it can do with a pipe in between.
All three wait for one gate, so that no start is measured, and each output is compared with what was
written, by its hash. tfmux is timed until its last exit is told, which it is when the last byte has
been stored and counted; its run screen shows the panes meanwhile. Rounds are interleaved after one
that does not count; ratios are those of a round, their median, lowest and highest are printed.

On a busy machine the ratios say little: the processor seconds beside them are to be trusted. They
are those of the programs that carry the bytes, and of `dd`, for each GB; the kernel's writing to
the disk, which comes later, is in none of them.

mprocs (npm) and honcho (PyPI) are fetched into a temporary folder and left out, with a word, where
that fails, or with `--alone`. They get a fiftieth of the lines, for they are slow, and keep no file
that could be verified; what they take with an empty file is subtracted.
"""

# ruff: noqa: T201
from __future__ import annotations

import argparse
import fcntl
import hashlib
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
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bench import processor
from bench.kill import until
from launcher.store.runs import RunFolder

LINE = "\x1b[32mINFO\x1b[0m 12:04:11 batch {:07d} of \x1b[1mepoch 3\x1b[0m took 12 ms, queue 4\n"
SLOW_SHARE = 50
DEADLINE = 300.0
SETTLE_SECONDS = 0.5
"""After the last exit, for the last frames of the screen."""


@dataclass(frozen=True)
class Flood:
    """Work of one round: a file that so many tasks print at once."""

    file: Path
    tasks: int

    @property
    def gigabytes(self) -> float:
        return self.file.stat().st_size * self.tasks / 1e9

    def verify(self, logs: Sequence[Path]) -> None:
        """Ends the program where an output is not what was written, byte for byte."""
        wanted = _hash(self.file)
        for log in logs:
            if _hash(log) != wanted:
                raise SystemExit(f"{log} is not what was written")


@dataclass(frozen=True)
class Took:
    """Seconds of a round, and the processor seconds of those that carried the bytes."""

    seconds: float
    processor: dict[str, float]


Measure = Callable[[Flood, Path], Took]
"""Does the work in an empty folder."""


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class Gate:
    """Named pipe at which programs wait until it is opened."""

    def __init__(self, folder: Path, name: str) -> None:
        self.path = folder / name
        os.mkfifo(self.path)

    def wait_and(self, ready: str, command: str) -> str:
        """A shell's words: says by a file that it is there, waits, becomes the command."""
        return f": > {ready}; read -r _ < {self.path}; exec {command}"

    def open(self, ready: Sequence[Path]) -> float:
        """Lets all through that wait, when they are there; returns the time of day."""
        until(lambda: all(path.exists() for path in ready), DEADLINE)
        time.sleep(0.2)  # from the file to the opening of the pipe
        began = time.time()
        os.close(os.open(self.path, os.O_WRONLY))
        return began


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
        with suppress(OSError):  # it has just ended
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


def plain(flood: Flood, folder: Path) -> Took:
    """`dd` from the file into another one, as many at once: a read and a write of every byte.

    `cat FILE > OUT` would let the kernel share or copy the blocks, which no output of a program
    can have.
    """
    return _by_hand(flood, folder, "dd if={file} of={out} bs=128K status=none")


def piped(flood: Flood, folder: Path) -> Took:
    """`cat FILE | dd of=OUT`, as many at once: what is left to gain for anything that stands
    between a program and its file, so that a full disk or a limit does not reach the program."""
    return _by_hand(flood, folder, "sh -c 'cat {file} | dd of={out} bs=128K status=none'")


def _by_hand(flood: Flood, folder: Path, command: str) -> Took:
    gate = Gate(folder, "go")
    outs = [folder / f"out-{number}" for number in range(flood.tasks)]
    shells = []
    for out in outs:
        words = command.format(file=flood.file, out=out)
        argv = ["sh", "-c", gate.wait_and(f"{out}.ready", words)]
        shells.append(subprocess.Popen(argv))
    began = gate.open([out.with_suffix(".ready") for out in outs])
    used = 0.0
    for shell in shells:
        _, status, usage = os.wait4(shell.pid, 0)
        shell.returncode = os.waitstatus_to_exitcode(status)
        used += usage.ru_utime + usage.ru_stime
    seconds = time.time() - began
    flood.verify(outs)
    return Took(seconds, {"all": used})


def tfmux(flood: Flood, folder: Path) -> Took:
    """The run screen on a cluster of `cat`s; from the gate to the last exit that is told."""
    go, end = Gate(folder, "go"), Gate(folder, "end")
    places = ", ".join(['"localhost:auto"'] * flood.tasks)
    ready = [folder / f"ready-{number}" for number in range(flood.tasks)]
    cat = ["sh", "-c", go.wait_and(f"{folder}/ready-{{index}}", f"cat {flood.file}")]
    wait = ["sh", "-c", f"read -r _ < {end.path}"]  # keeps the run alive until all is measured
    cluster = folder / "cluster.toml"
    cluster.write_text(
        f'name = "flood"\n[jobs.worker]\ntasks = [{places}]\ncommand = {json.dumps(cat)}\n'
        f'[jobs.last]\ntasks = ["localhost:auto"]\ncommand = {json.dumps(wait)}\n'
        f'[run]\nworkdir = ""\nsuccess = "all"\n'
        f'[start]\norder = [["worker", "last"]]\n'
        f'[start.ready]\nworker = "started"\nlast = "started"\n'
    )
    env = {"XDG_DATA_HOME": str(folder / "data"), "XDG_STATE_HOME": str(folder / "state")}
    root = Path(__file__).resolve().parent.parent
    argv = [sys.executable, "-m", "tui.main", "up", str(cluster)]
    window = Terminal(argv, env, root)
    began = go.open(ready)
    (path,) = (folder / "data" / "tfmux" / "runs").iterdir()
    run = RunFolder(path)
    processes = processor.of_run(run, window.process.pid)
    before = processor.sample(processes)
    until(lambda: len(_ends(run)) == flood.tasks, DEADLINE, 0.05)
    time.sleep(SETTLE_SECONDS)
    after = processor.sample(processes)
    ends = _ends(run)
    end.open([])
    until(lambda: _has_ended(run), DEADLINE, 0.05)
    while window.process.poll() is None:
        window.type(b"q")
        time.sleep(0.2)
    flood.verify([run.path / f"worker-{number}.log" for number in range(flood.tasks)])
    return Took(max(ends) - began, {name: after[name] - before[name] for name in processes})


def _ends(run: RunFolder) -> list[float]:
    """Times at which the exits of the flooding tasks were told."""
    return [
        record["time"]
        for record in run.records()
        if record["event"] == "task"
        and record["task"].startswith("worker")
        and record["state"] == "exited"
    ]


def _has_ended(run: RunFolder) -> bool:
    return any(r["event"] == "run" and r["state"] == "ended" for r in run.records())


def mprocs(program: Path) -> Measure:
    """mprocs in its terminal until all processes have finished."""

    def measure(flood: Flood, folder: Path) -> Took:
        commands = [f"cat {flood.file}"] * flood.tasks
        argv = [str(program), "--on-all-finished", "{c: quit}", *commands]
        began = time.perf_counter()
        Terminal(argv, {}, folder).wait()
        return Took(time.perf_counter() - began, {})

    return measure


def honcho(program: Path) -> Measure:
    """honcho with its merged output into a file."""

    def measure(flood: Flood, folder: Path) -> Took:
        lines = [f"task{number}: cat {flood.file}; sleep 0.2" for number in range(flood.tasks)]
        (folder / "Procfile").write_text("\n".join(lines) + "\n")
        began = time.perf_counter()
        with (folder / "out").open("wb") as out:
            subprocess.run([str(program), "start"], stdout=out, cwd=folder, timeout=DEADLINE)
        return Took(time.perf_counter() - began, {})

    return measure


def fetched(folder: Path) -> dict[str, Measure]:
    """The other tools, as far as they can be had."""
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


def in_folder(measure: Measure, flood: Flood) -> Took:
    """Measures in a folder that goes afterwards, with what was written there."""
    with tempfile.TemporaryDirectory() as folder:
        return measure(flood, Path(folder))


def less_start(measure: Measure) -> Measure:
    """The same without what it takes with an empty file."""

    def both(flood: Flood, folder: Path) -> Took:
        empty = folder / "empty"
        empty.write_bytes(b"")
        idle = in_folder(measure, Flood(empty, flood.tasks))
        return Took(max(1e-6, in_folder(measure, flood).seconds - idle.seconds), {})

    return both


def write_lines(path: Path, megabytes: float) -> Flood:
    """Writes numbered lines into a file for one task."""
    count = max(1000, int(megabytes * 1_000_000) // len(LINE.format(0)))
    path.write_text("".join(LINE.format(number) for number in range(count)))
    return Flood(path, 1)


Rounds = dict[str, list[tuple[Flood, Took]]]


def measure_all(tools: dict[str, Measure], slow: set[str], options: argparse.Namespace) -> None:
    """Measures and prints, one number of tasks after the other."""
    with tempfile.TemporaryDirectory() as name:
        for tasks in options.tasks:
            share = options.megabytes / tasks
            large = Flood(write_lines(Path(name) / "large", share).file, tasks)
            small = Flood(write_lines(Path(name) / "small", share / SLOW_SHARE).file, tasks)
            rounds: Rounds = {tool: [] for tool in tools}
            for number in range(options.rounds + 1):
                for tool, measure in tools.items():
                    flood = small if tool in slow else large
                    took = in_folder(measure, flood)
                    if number:  # the first warms up: imports, caches, the processor's clock
                        rounds[tool].append((flood, took))
            print_table(tasks, rounds)


def print_table(tasks: int, rounds: Rounds) -> None:
    """GB a second of each tool, tfmux beside it, processor seconds a GB."""
    print(f"\n{tasks} tasks      {'GB/s':>24}  {'tfmux / it':>20}  processor seconds a GB")
    speeds = {
        tool: [flood.gigabytes / took.seconds for flood, took in rows]
        for tool, rows in rounds.items()
    }
    for tool, rows in rounds.items():
        ratios = [ours / its for ours, its in zip(speeds["tfmux"], speeds[tool], strict=True)]
        print(f"{tool:<12} {spread(speeds[tool]):>28} {spread(ratios):>22}", end="  ")
        for name in rows[0][1].processor:
            used = [took.processor[name] / flood.gigabytes for flood, took in rows]
            print(f"{name} {spread(used)}", end="  ")
        print(flush=True)


def spread(figures: Sequence[float]) -> str:
    """The median, the lowest and the highest."""
    return f"{statistics.median(figures):.2f} ({min(figures):.2f}–{max(figures):.2f})"


def main() -> None:
    """Prints a table a number of tasks."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tasks", type=int, nargs="*", default=[1, 4, 16])
    parser.add_argument("--megabytes", type=int, default=400, help="of all tasks, for fast tools")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--alone", action="store_true", help="without mprocs and honcho")
    options = parser.parse_args()
    tools: dict[str, Measure] = {"plain files": plain, "cat | dd": piped, "tfmux": tfmux}
    with tempfile.TemporaryDirectory() as folder:
        slow = {} if options.alone else fetched(Path(folder))
        tools |= {name: less_start(measure) for name, measure in slow.items()}
        measure_all(tools, set(slow), options)


if __name__ == "__main__":
    main()
