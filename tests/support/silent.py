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


def silent_ranks(folder: Path, how: str, **more: Any) -> str:
    """A cluster file of these ranks, of which the third does something else, or none."""
    site = folder / "site-packages"
    site.mkdir()
    (site / "framework.py").write_text(_FRAMEWORK)
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
