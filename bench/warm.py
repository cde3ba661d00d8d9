"""How long a cluster takes from its launch until all its workers train, warm beside cold.

    python -m bench.warm [--rounds 3]

The demo's cluster (1 ps, then 2 workers of which the chief is first) in strict order: warm, every
task imports TensorFlow at once and waits for its stage; cold, each stage pays for its own import.
The rounds are paired: the machine's noise falls on both alike.
"""

# ruff: noqa: T201
from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

from bench.kill import until
from launcher.cluster.file import loads
from launcher.ids import TaskId
from launcher.run.states import TaskState
from launcher.session.client import RunClient

WORKERS = (TaskId("worker", 0), TaskId("worker", 1))
CLUSTER = """
name = "{name}"
[jobs.ps]
tasks = ["localhost:auto"]
[jobs.worker]
tasks = ["localhost:auto", "localhost:auto"]
[run]
command = ["{{python}}", "{{trainer}}", "async", "--job_name={{job}}", "--task_index={{index}}",
           "--ps_hosts={{ps_hosts}}", "--worker_hosts={{worker_hosts}}", "--steps=1000000",
           "--log-every=10", "--logdir={folder}/{{run_id}}"]
workdir = ""
env = {{ TF_CPP_MIN_LOG_LEVEL = "2" }}
[start]
warm = {warm}
"""


def until_training(folder: Path, *, warm: bool) -> float:
    """Seconds from the launch until both workers have named a step."""
    name = "warm" if warm else "cold"
    text = CLUSTER.format(name=name, folder=folder, warm=str(warm).lower())
    began = time.perf_counter()
    session = RunClient.launch(loads(text, "bench", Path.cwd()), text)
    states = (TaskState.RUNNING, TaskState.FAILED)
    until(lambda: all(session.snapshot().task(task).state in states for task in WORKERS))
    seconds = time.perf_counter() - began
    failure = session.snapshot().first_failure
    session.kill_all()
    session.wait()
    if failure is not None:
        raise SystemExit(f"{failure.task}: {failure.how}")
    return seconds


def main() -> None:
    """Prints medians, and that of the ratios of each pair."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for variable in ("DATA", "STATE", "CACHE"):
            os.environ[f"XDG_{variable}_HOME"] = f"{name}/{variable.lower()}"
        warm, cold = [], []
        for _ in range(rounds):
            warm.append(until_training(folder, warm=True))
            cold.append(until_training(folder, warm=False))
    ratio = statistics.median(one / other for one, other in zip(warm, cold, strict=True))
    print(
        f"1 ps + 2 workers, launch to all training: warm {statistics.median(warm):.1f} s, cold "
        f"{statistics.median(cold):.1f} s: {ratio:.2f} ×"
    )


if __name__ == "__main__":
    main()
