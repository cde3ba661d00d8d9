"""How long the kill key takes until no process is left, quiet and under a flood.

    python -m bench.kill [--tasks 16] [--rounds 5]

The time from the key to the last process's end, by our own scan of `/proc`, beside what people do
by hand: one `kill` command a process, one after the other.
"""

# ruff: noqa: T201
from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from launcher.agent import proc
from launcher.cluster.file import loads
from launcher.session.client import RunClient

QUIET = "import time; time.sleep(1000)"
FLOOD = "import os\nwhile True: os.write(1, b'a line of a flood that never ends\\n' * 1000)"
DEADLINE = 60.0


def cluster(script: str, tasks: int) -> str:
    """So many tasks of one script on this machine."""
    places = ", ".join(['"localhost:auto"'] * tasks)
    return (
        f'name = "kill"\n[jobs.worker]\ntasks = [{places}]\n[run]\n'
        f'command = {json.dumps(["{python}", "-c", script])}\nworkdir = ""\n'
        f'log_limit = 50000000\n[start]\norder = [["worker"]]\n'
        f'[start.ready]\nworker = "started"\n'
    )


def living(run_id: str) -> list[int]:
    """The pids of a run's tasks."""
    wanted = f"{run_id}/".encode()
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            value = proc.variable(int(name), proc.TAG)
            if value is not None and value.startswith(wanted):
                found.append(int(name))
    return found


def by_key(script: str, tasks: int) -> tuple[float, float]:
    """Seconds from the key until no process is left, and until the receipt."""
    text = cluster(script, tasks)
    session = RunClient.launch(loads(text, "bench", Path.cwd()), text)
    until(lambda: len(living(session.snapshot().run_id)) >= tasks)
    time.sleep(1.0)
    began = time.perf_counter()
    session.kill_all()
    until(lambda: not living(session.snapshot().run_id))
    dead = time.perf_counter() - began
    until(lambda: session.snapshot().receipt is not None)
    told = time.perf_counter() - began
    session.wait()
    return dead, told


def by_hand(tasks: int) -> float:
    """One `kill` a process, one after the other."""
    sleepers = [subprocess.Popen(["sleep", "1000"]) for _ in range(tasks)]
    began = time.perf_counter()
    for sleeper in sleepers:
        subprocess.run(["kill", "-9", str(sleeper.pid)], check=True)
    for sleeper in sleepers:
        sleeper.wait()
    return time.perf_counter() - began


def until(condition: Callable[[], object], seconds: float = DEADLINE, pace: float = 0.002) -> None:
    """Waits for a condition; ends the program when it does not come."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit("it did not come to an end")
        time.sleep(pace)


def main() -> None:
    """Prints medians in milliseconds."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tasks", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_DATA_HOME"] = folder
        hand = statistics.median(by_hand(arguments.tasks) for _ in range(arguments.rounds))
        print(f"{arguments.tasks} processes, one `kill` after the other: {hand * 1000:.0f} ms")
        for name, script in (("quiet", QUIET), ("under a flood", FLOOD)):
            rounds = [by_key(script, arguments.tasks) for _ in range(arguments.rounds)]
            dead = statistics.median(one for one, _ in rounds)
            told = statistics.median(one for _, one in rounds)
            print(
                f"{arguments.tasks} tasks {name}: dead {dead * 1000:.0f} ms, receipt "
                f"{told * 1000:.0f} ms after the key; {dead / hand:.2f} × by hand"
            )


if __name__ == "__main__":
    main()
