"""Trees that are copied to a host: workdir, data directories, trainer, tools.

A `data` directory inside the workdir keeps its relative path, so that one path is valid for the
tasks of this machine and of every host; one from elsewhere is put into the workdir under its own
name.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from ..errors import TfmuxError
from ..paths import installed_scripts, installed_trainer
from ..plan.plan import HostPlan, Plan
from .staging import Tree

WORK = "work"
TRAINER = "trainer"
TOOLS = "tools"
_SENT = ("executables.py", "pipe.py", "probe.py", "program.py", "reach.py", "transfer.py")
"""Modules of the program that is sent when it is needed."""


def trees_of(plan: Plan, host: HostPlan) -> tuple[Tree, ...]:
    """Lists the trees of one host.

    Raises:
        TfmuxError: two of its data directories would have the same path there.
    """
    places = data_places(host.data, plan.workdir)
    trees = [
        Tree(WORK, path, prefix="" if place == "." else f"{place}/", filtered=False)
        for place, path in places
    ]
    inside = frozenset(place for place, _ in places)
    if plan.workdir is not None and "." not in inside:
        trees.insert(0, Tree(WORK, plan.workdir, plan.exclude, skip=inside))
    trainer = installed_trainer()
    if trainer:
        trees.append(Tree(TRAINER, Path(trainer) / "trainer", prefix="trainer/"))
    trees.append(Tree(TOOLS, Path(installed_scripts()), exclude=_SENT))
    return tuple(trees)


def stage_key(plan: Plan, host: str) -> str:
    """Makes the key under which consecutive launches of a cluster share files on a host."""
    parts = json.dumps([plan.name, str(plan.workdir), host])
    return hashlib.sha256(parts.encode()).hexdigest()[:32]


def data_places(data: Sequence[Path], workdir: Path | None) -> list[tuple[str, Path]]:
    """Pairs each data directory's path below the host's workdir with its path here.

    Raises:
        TfmuxError: two would have the same path, or one that of something in the workdir.
    """
    places: dict[str, Path] = {}
    for path in data:
        within = workdir is not None and path.is_relative_to(workdir)
        place = path.relative_to(workdir).as_posix() if within and workdir else path.name
        other = places.get(place)
        if other is None and not within and workdir is not None and (workdir / place).exists():
            other = workdir / place
        if other is not None:
            raise TfmuxError(
                f"data: {other} and {path} would both be {place!r} in the workdir of a host: "
                "rename one of them"
            )
        places[place] = path
    return list(places.items())
