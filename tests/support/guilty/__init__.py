"""Programs of real frameworks, four ranks each, of which one goes wrong in a known way.

The programs run on hosts, in a folder of their own: they import `fault` and their framework alone.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from tests.support.cluster_texts import cluster_text

FRAMEWORKS = ("torch", "jax", "all-reduce", "async", "sync")
"""Two of their own, and three modes of the trainer."""
FOLDER = Path(__file__).parent / "programs"
STEP = 8
"""Before it are steps enough for a pace."""
PATIENCE = 25
"""Seconds after which the frameworks give a peer up."""


def cluster(
    framework: str, how: str, rank: int, places: int | str = 4, hosts: str = "", **more: Any
) -> str:
    """A cluster file of four ranks, of which `rank` goes wrong at step `STEP`."""
    jobs: dict[str, Any] = {"worker": {"tasks": places}}
    command = ["{python}", "-u", f"in_{framework}.py"]
    settings: dict[str, Any] = {"framework": framework}
    if framework not in ("torch", "jax"):
        command = ["{python}", "-u", "in_trainer.py", "{trainer}", framework]
        command += ["--steps=100000", "--log-every=1", "--batch=10"]
        settings = {}
        if framework != "all-reduce":
            jobs["ps"] = {"tasks": "localhost" if isinstance(places, int) else "tf1"}
    env = {"FAULT": f"{how} {rank} {STEP}", "PATIENCE": str(PATIENCE)}
    return cluster_text(
        jobs,
        f"{framework}-{how}",
        hosts,
        command=command,
        success="all",
        grace=3,
        env=env,
        **settings,
        **more,
    )


def copy_programs(folder: Path) -> None:
    """Puts the programs where the cluster file is."""
    folder.mkdir(exist_ok=True)
    for program in FOLDER.glob("*.py"):
        shutil.copy(program, folder)


def names(verdict: dict[str, Any], how: str, rank: int) -> bool:
    """Whether a verdict names the guilty rank, or says that all are guilty where they are."""
    if how == "alike":
        return len(verdict["tasks"]) == 4 or verdict["kind"] == "raised"
    return bool(verdict["tasks"] == [f"worker:{rank}"])
