"""Trees that are copied to a host: workdir, data directories, trainer, tools.

A `data` directory inside the workdir keeps its relative path, so that one path is valid for the
tasks of this machine and of every host; one from elsewhere is put into the workdir under its own
name.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path

from ..agent.tree import WORK
from ..errors import TfmuxError
from ..hosts.frames import Welcome
from ..hosts.programs import Program
from ..paths import installed_scripts, installed_trainer
from ..plan.planner import HostPlan, Plan
from . import staging
from .staging import Manifest, Progress, Tree

TRAINER = "trainer"
TOOLS = "tools"
_SENT = ("executables.py", "pipe.py", "probe.py", "program.py", "reach.py", "transfer.py")
"""Modules of the program that is sent when it is needed."""


class HostFiles:
    """Files that the tasks of a run need on other machines."""

    def __init__(self) -> None:
        self._manifests = staging.Manifests()

    def places(self, plan: Plan, host: HostPlan, welcome: Welcome) -> tuple[str, str, str]:
        """The folders there of workdir, trainer and tools."""
        stage = welcome.stage
        workdir = f"{stage}/{WORK}" if plan.workdir or host.data else welcome.home
        return workdir, f"{stage}/{TRAINER}", f"{stage}/{TOOLS}"

    async def manifest(self, plan: Plan, host: HostPlan) -> Manifest:
        """What a host shall have.

        Raises:
            TfmuxError: two of its data directories would have the same path there.
            OSError: a file cannot be read.
        """
        return await self._manifests.of(trees_of(plan, host))

    async def send(
        self,
        program: Program,
        manifest: Manifest,
        plan: Plan,
        host: HostPlan,
        progress: Callable[[Progress], None],
    ) -> None:
        """Sends what a host lacks of it, by the program there.

        Raises:
            HostError: the host did not take it.
        """
        await staging.stage(program, manifest, stage_key(plan, host.name), progress)


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
