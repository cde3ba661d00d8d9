"""The whole way of a flood: task → agent → disk → pane, here and over SSH.

    python -m bench.flood [--tasks 4 16] [--megabytes 1200] [--rounds 5]

Tasks `cat` one prepared file of numbered lines. Here, plain files (`dd` to a file) show what the
machine can do at all, pipes (`cat | dd`) what it can do with a pipe in between; on four hosts
`ssh HOST cat > FILE` does the same. All wait for one gate, so that no start is measured, and each
output is compared with what was written, by its hash. tfmux is timed until its last exit is told,
which it is when the last byte has been stored and counted; its run screen shows the panes
meanwhile, and a key is typed at it ten times a second.

On a busy machine the rates say little: the processor seconds for each GB beside them are to be
trusted. They are those of the programs that carry the bytes, and of `dd`.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

from bench import processor
from bench.hosts import cluster, ssh, ssh_hosts
from bench.report import Row, interleave, run
from bench.terminal import Terminal, Typist, p95, until
from launcher.run.snapshot import TaskView
from launcher.run.states import TaskState
from launcher.store.runs import RunFolder
from launcher.store.stream import LineReader, read_end
from tests.testbed.namespaces import Testbed

LINE = "\x1b[32mINFO\x1b[0m 12:04:11 batch {:07d} of \x1b[1mepoch 3\x1b[0m took 12 ms, queue 4\n"
SSH_TASKS = 4
SSH_MEGABYTES = 400
SETTLE_SECONDS = 0.5
"""For the first frames of the screen, and after the last exit for the last ones."""
PROGRAMS = {
    # `cat FILE > OUT` would let the kernel share the blocks, which no output of a program can have.
    "plain files": "dd if={file} of={out} bs=128K status=none",
    # What is left to gain for anything that stands between a program and its file.
    "`cat | dd`": "cat {file} | dd of={out} bs=128K iflag=fullblock status=none",
}


@dataclass(frozen=True)
class Took:
    """Seconds of a round, the processor seconds of those that carried the bytes, and the
    milliseconds that keys took."""

    seconds: float
    processor: dict[str, float]
    keys: tuple[float, ...] = ()


class Flood:
    """A file that so many tasks print at once, here or on hosts, and the gate before that."""

    def __init__(self, folder: Path, tasks: int, megabytes: float, hosts: Testbed | None) -> None:
        self.hosts = hosts
        self.tasks = tasks
        self.there = folder / "there" if hosts is None else Path("/tmp")
        """The folder with file and gate, as the tasks see it."""
        self._places = [host.disk / "tmp" for host in hosts] if hosts else [self.there]
        lines = folder / "lines"
        count = max(1000, int(megabytes / tasks * 1_000_000) // len(LINE.format(0)))
        lines.write_text("".join(LINE.format(number) for number in range(count)))
        for place in self._places:
            place.mkdir(exist_ok=True)
            shutil.copyfile(lines, place / "lines")
        self._hash = _hash(lines)
        self.gigabytes = lines.stat().st_size * tasks / 1e9

    def wait_and(self, number: object, command: str) -> str:
        """A shell's words: says by a file that it is there, waits at the gate, goes on."""
        ready, go = self.there / f"ready-{number}", self.there / "go"
        return f": > {ready}; while [ ! -e {go} ]; do sleep 0.02; done; {command}"

    def close_gate(self) -> None:
        """Takes away what an earlier round has left."""
        for place in self._places:
            for path in (place / "go", place / "end", *place.glob("ready-*")):
                path.unlink(missing_ok=True)

    def open_gate(self) -> float:
        """Lets all through, when they are there; returns the time of day."""
        until(lambda: sum(len(list(p.glob("ready-*"))) for p in self._places) >= self.tasks + 1)
        began = time.time()
        self.touch("go")
        return began

    def touch(self, name: str) -> None:
        """Makes a file in every place."""
        for place in self._places:
            (place / name).touch()

    def verify(self, outputs: Sequence[Path]) -> None:
        """Ends the program where an output is not what was written, byte for byte."""
        for path in outputs:
            if _hash(path) != self._hash:
                raise SystemExit(f"{path} is not what was written")


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def by_hand(program: str, flood: Flood, folder: Path) -> Took:
    """The flood without tfmux: a program of this machine for each task, or `ssh`."""
    outs = [folder / f"out-{number}" for number in range(flood.tasks)]
    shells = []
    names = [host.name for host in flood.hosts] if flood.hosts else []
    for number, out in enumerate(outs):
        words = flood.wait_and(number, program.format(file=flood.there / "lines", out=out))
        argv = ["sh", "-c", words]
        if flood.hosts:
            argv = ssh(flood.hosts, names[number % len(names)], words)
        with out.open("wb") as sink:
            shells.append(subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=sink))
    flood.touch("ready-last")
    began = flood.open_gate()
    used = 0.0
    for shell in shells:
        _, status, usage = os.wait4(shell.pid, 0)
        shell.returncode = os.waitstatus_to_exitcode(status)
        used += usage.ru_utime + usage.ru_stime
    seconds = time.time() - began
    flood.verify(outs)
    return Took(seconds, {"all": used})


def by_tfmux(flood: Flood, folder: Path) -> Took:
    """`tfmux up` in a terminal; the last task keeps the run alive until all is measured."""
    end = f"while [ ! -e {flood.there / 'end'} ]; do sleep 0.2; done"
    words = flood.wait_and(
        "{index}", f"test {{index}} = {flood.tasks} || exec cat {flood.there / 'lines'}; {end}"
    )
    file, arrivals = folder / "cluster.toml", folder / "arrivals"
    file.write_text(cluster(flood.hosts, ["sh", "-c", words], flood.tasks + 1))
    arrivals.touch()
    env = {"XDG_DATA_HOME": str(folder / "data"), "XDG_STATE_HOME": str(folder / "state")}
    words_of = ["-m", "bench.timed", str(arrivals), "up", str(file)]
    terminal = Terminal([sys.executable, *words_of], env)
    terminal.until(b"running")  # tasks are there before the screen is
    time.sleep(SETTLE_SECONDS)
    began = flood.open_gate()
    (path,) = (folder / "data" / "tfmux" / "runs").iterdir()
    run_folder = RunFolder(path)

    def ends() -> list[float]:
        return [
            record.time
            for record in LineReader(run_folder.events).records()
            if isinstance(record, TaskView) and record.state is TaskState.EXITED
        ]

    typist = Typist(terminal, arrivals)
    processes = processor.of_run(run_folder, terminal.process.pid)
    before = processor.sample(processes)
    until(lambda: len(ends()) == flood.tasks, pace=0.05)
    seconds = max(ends()) - began
    time.sleep(SETTLE_SECONDS)
    after = processor.sample(processes)
    keys = tuple(typist.stop())
    flood.touch("end")
    until(lambda: read_end(run_folder.events, run_folder.run_id) is not None, pace=0.05)
    terminal.close(b"q")
    flood.verify([path / f"worker-{number}.log" for number in range(flood.tasks)])
    return Took(seconds, {name: after[name] - before[name] for name in processes}, keys)


def in_folder(measure_one: Callable[[Flood, Path], Took], flood: Flood) -> Took:
    """Measures with the gate closed, in a folder that goes afterwards."""
    flood.close_gate()
    with tempfile.TemporaryDirectory() as folder:
        return measure_one(flood, Path(folder))


def rows(name: str, flood: Flood, peers: dict[str, str], rounds: int) -> Iterator[Row]:
    """The rate beside each peer, processor seconds, keys."""
    sides = {who: partial(by_hand, program) for who, program in peers.items()}
    runs = {who: partial(in_folder, one, flood) for who, one in sides.items()}
    found = interleave({"tfmux": partial(in_folder, by_tfmux, flood), **runs}, rounds)
    ours = found.pop("tfmux")
    rate = tuple(1000 * flood.gigabytes / one.seconds for one in ours)
    for who, theirs in found.items():
        beside = tuple(1000 * flood.gigabytes / one.seconds for one in theirs)
        yield Row(name, "MB/s", rate, who, beside)
    parts = {
        who: median(one.processor[who] for one in ours) / flood.gigabytes
        for who in ours[0].processor
    }
    yield Row(
        f"{name}: processor seconds a GB",
        "s",
        tuple(sum(one.processor.values()) / flood.gigabytes for one in ours),
        who,
        tuple(one.processor["all"] / flood.gigabytes for one in theirs),
        note=", ".join(f"{who} {seconds:.2f}" for who, seconds in parts.items()),
    )
    keys = tuple(p95(one.keys) for one in ours if one.keys)
    yield Row(f"{name}: key to handler, p95", "ms", keys, at_most=50)


def measure(options: argparse.Namespace) -> Iterator[Row]:
    """Each number of tasks here, then four on four hosts."""
    for tasks in options.tasks:
        with tempfile.TemporaryDirectory() as folder:
            flood = Flood(Path(folder), tasks, options.megabytes, None)
            yield from rows(f"flood, {tasks} tasks", flood, PROGRAMS, options.rounds)
    with ssh_hosts() as hosts:
        flood = Flood(hosts.directory, SSH_TASKS, SSH_MEGABYTES, hosts)
        peers = {"`ssh HOST cat > FILE`": "exec cat {file}"}
        name = f"flood over SSH, 4 hosts, {SSH_TASKS} tasks"
        yield from rows(name, flood, peers, options.rounds)


def extend(parser: argparse.ArgumentParser) -> None:
    """Adds how many tasks, and how much they write."""
    parser.add_argument("--tasks", type=int, nargs="*", default=[4, 16])
    parser.add_argument("--megabytes", type=int, default=1200, help="of all tasks here")


if __name__ == "__main__":
    run(__doc__, measure, extend)
