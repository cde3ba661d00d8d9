"""Four ranks that print no figures: what each does is known by where it is alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.cluster_texts import cluster_text
from tests.support.command import python_task

# What they wait in is a framework's, installed beside them.
_FRAMEWORK = """
import time

def all_reduce():
    time.sleep(1000)
"""
_PROGRAM = """
import os, sys, time
sys.path.insert(0, sys.argv[2])
from framework import all_reduce

def next_batch():
    time.sleep(1000)

def evaluate():
    while True:
        sum(range(1000))

rank = int(os.environ["RANK"])
print("begins", flush=True)
if rank == 2 and sys.argv[1] == "sleeps":
    next_batch()
if rank == 2 and sys.argv[1] == "stopped":
    os.kill(os.getpid(), 19)
if rank == 2 and sys.argv[1] == "works":
    evaluate()
if sys.argv[1] == "serves":
    time.sleep(1000)
all_reduce()
"""


# Its place is that of torchrun's agent, by which a launcher of ranks is known.
_STARTER = """
import os, subprocess, sys, time

def run(node, program):
    for local in range(2):
        env = {**os.environ, "RANK": str(2 * node + local)}
        subprocess.Popen([sys.executable, *program], env=env)
    while True:
        time.sleep(1)

run(int(sys.argv[1]), sys.argv[2:])
"""


def silent_ranks_below_launchers(folder: Path, how: str, **more: Any) -> str:
    """A cluster file of two tasks, each of which starts two of these ranks."""
    site = _framework(folder)
    starter = site / "torch" / "distributed" / "elastic" / "agent.py"
    starter.parent.mkdir(parents=True)
    starter.write_text(_STARTER)
    (folder / "ranks.py").write_text(_PROGRAM)
    ranks = [str(folder / "ranks.py"), how, str(site)]
    return cluster_text(
        {"worker": 2},
        command=["{python}", str(starter), "{index}", *ranks],
        success="all",
        workdir="",
        grace=1,
        start={"order": [["worker"]], "ready": {"worker": "started"}},
        **more,
    )


def _framework(folder: Path) -> Path:
    site = folder / "site-packages"
    site.mkdir()
    (site / "framework.py").write_text(_FRAMEWORK)
    return site


def silent_ranks(folder: Path, how: str, **more: Any) -> str:
    """A cluster file of these ranks, of which the third does something else, or none."""
    site = _framework(folder)
    return cluster_text(
        {"worker": 4},
        command=[*python_task(_PROGRAM), how, str(site)],
        framework="torch",
        success="all",
        workdir="",
        grace=1,
        start={"order": [["worker"]], "ready": {"worker": "started"}},
        **more,
    )
