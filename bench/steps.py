"""Training under tfmux beside the same processes by hand, with their output in files.

    python -m bench.steps [--rounds 5] [--seconds 15]

1 ps and 2 workers of the bundled trainer in `async` mode. Global steps a second, from the last
lines of the workers' outputs (one in 100 steps) at the beginning and the end of the time; under
tfmux the run screen shows them meanwhile.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from bench.report import Row, interleave, own_home, run
from bench.terminal import ROOT, TFMUX, Terminal, until
from launcher.paths import runs_home
from tests.support.ports import free_ports

COMMAND = (
    "async",
    "--job_name={job}",
    "--task_index={index}",
    "--ps_hosts={ps_hosts}",
    "--worker_hosts={worker_hosts}",
    "--steps=1000000",
    "--logdir={logdir}",
)
ENV = {"TF_CPP_MIN_LOG_LEVEL": "2", "PYTHONUNBUFFERED": "1"}
STEP = re.compile(rb"After \d+ training steps \((\d+) global steps?\)")
SETTLE_SECONDS = 2.0


def cluster(workers: int, logdir: Path, *flags: str, warm: bool = True) -> str:
    """The cluster file of 1 ps and so many workers, with further flags of the trainer."""
    command = json.dumps(["{python}", "{trainer}", *COMMAND, *flags])
    places = json.dumps(["localhost:auto"] * workers)
    return (
        f'name = "bench"\n[jobs.ps]\ntasks = ["localhost:auto"]\n[jobs.worker]\ntasks = {places}\n'
        f'[run]\ncommand = {command}\nworkdir = ""\nlogdir = "{logdir}/{{run_id}}"\n'
        f'env = {{ TF_CPP_MIN_LOG_LEVEL = "2" }}\n[start]\nwarm = {str(warm).lower()}\n'
    )


class ByHand:
    """The same commands started at once, with their output in files."""

    def __init__(self, workers: int, *flags: str) -> None:
        self._folder = tempfile.TemporaryDirectory()
        logdir = Path(self._folder.name)
        ps, *others = (f"localhost:{port}" for port in free_ports(workers + 1))
        names = ["ps:0", *(f"worker:{number}" for number in range(workers))]
        self.logs = [logdir / name for name in names[1:]]
        self._running = []
        for name in names:
            job, _, index = name.partition(":")
            fields = {"job": job, "index": index, "ps_hosts": ps, "logdir": logdir}
            words = [
                word.format(**fields, worker_hosts=",".join(others)) for word in (*COMMAND, *flags)
            ]
            with (logdir / name).open("wb") as out:
                self._running.append(
                    subprocess.Popen(
                        [sys.executable, "-m", "trainer", *words],
                        cwd=ROOT,
                        env={**os.environ, **ENV},
                        stdin=subprocess.DEVNULL,
                        stdout=out,
                        stderr=subprocess.STDOUT,
                    )
                )

    def close(self) -> None:
        """Ends them."""
        for process in self._running:
            process.send_signal(signal.SIGKILL)
            process.wait()
        self._folder.cleanup()


def step_of(log: Path) -> int:
    """The last global step that a log names; 0 before the first."""
    found = STEP.findall(log.read_bytes()) if log.exists() else []
    return int(found[-1]) if found else 0


def train(logs: Sequence[Path]) -> bool:
    """All workers have named a step."""
    return all(map(step_of, logs))


def rate(logs: Sequence[Path], seconds: float) -> float:
    """Global steps a second, once all workers train."""
    until(lambda: train(logs), pace=0.1)
    time.sleep(SETTLE_SECONDS)
    before, began = max(map(step_of, logs)), time.monotonic()
    time.sleep(seconds)
    return (max(map(step_of, logs)) - before) / (time.monotonic() - began)


def by_hand(seconds: float) -> float:
    """Global steps a second of the processes alone."""
    running = ByHand(2)
    try:
        return rate(running.logs, seconds)
    finally:
        running.close()


def under_tfmux(seconds: float) -> float:
    """Global steps a second in a run whose screen is shown."""
    with own_home() as home:
        file = home / "bench.toml"
        file.write_text(cluster(2, home))
        terminal = Terminal([*TFMUX, "up", str(file)])
        until(lambda: runs_home().exists() and any(runs_home().iterdir()))
        (run_folder,) = runs_home().iterdir()
        found = rate([run_folder / f"worker-{number}.log" for number in range(2)], seconds)
        terminal.close(b"\x1b[20~q")  # F9, then q
    return found


def measure(options: argparse.Namespace) -> Iterator[Row]:
    """Both, in turn."""
    sides = {"tfmux": under_tfmux, "hand": by_hand}
    found = interleave(
        {name: partial(one, options.seconds) for name, one in sides.items()}, options.rounds
    )
    ours, theirs = tuple(found["tfmux"]), tuple(found["hand"])
    what = "training, 1 ps + 2 workers: global steps/s"
    yield Row(what, "", ours, "the same processes by hand", theirs, at_least=0.98)


def extend(parser: argparse.ArgumentParser) -> None:
    """Adds for how long."""
    parser.add_argument("--seconds", type=float, default=15.0, help="of training")


if __name__ == "__main__":
    run(__doc__, measure, extend)
