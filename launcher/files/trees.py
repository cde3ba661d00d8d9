"""Trees that are copied to a host: workdir, data directories, trainer.

A `data` directory inside the workdir keeps its relative path, so that one path is valid for the
tasks of this machine and of every host; one from elsewhere is put into the workdir under its own
name.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import posixpath
import stat
from collections.abc import Callable, Sequence
from pathlib import Path

from ..agent.tree import WORK
from ..errors import TfmuxError
from ..hosts.frames import Welcome
from ..hosts.programs import HostProgram
from ..paths import installed_trainer
from ..plan.run_plan import HostPlan, Plan
from . import staging
from .listing import Copied, LeftOut, Listing, Tree, list_tree, walk
from .needed import left_out_command, left_out_note
from .staging import Manifest, Progress

TRAINER = "trainer"
TOOLS = "tools"
"""Folder of the scripts that an agent brings along, beside the trees."""


class HostFiles:
    """Files that the tasks of a run need on other machines."""

    def __init__(self) -> None:
        self._manifests = staging.Manifests()
        self._left_out: dict[LeftOut, bool] = {}
        """Links that are not copied, and whether they have been named."""
        self._notes: dict[str, bool] = {}
        """Sentences about what is copied, and whether they have been said."""

    def places(self, plan: Plan, host: HostPlan, welcome: Welcome) -> tuple[str, str, str]:
        """The folders there of workdir, trainer and tools."""
        stage = welcome.stage
        workdir = f"{stage}/{WORK}" if plan.copies(host) else welcome.home
        return workdir, f"{stage}/{TRAINER}", f"{posixpath.dirname(stage)}/{TOOLS}"

    async def manifest(self, plan: Plan, host: HostPlan) -> Manifest:
        """What a host shall have.

        Raises:
            TfmuxError: a directory is refused, a file cannot be read, two data directories would
                have the same path there, or a task's command is among what is left out.
        """
        manifest = await self._manifests.of(trees_of(plan, host))
        copied = Copied([pair for pair in manifest.listings if pair[0].name == WORK])
        if why := await asyncio.to_thread(left_out_command, plan, host, copied):
            raise TfmuxError(why)
        self._left_out = dict.fromkeys(copied.left_out, False) | self._left_out
        self._notes = dict.fromkeys(copied.notes, False) | self._notes
        return manifest

    def new_note(self) -> str:
        """Sentences about what is copied, such as the links that are not; empty where all have been
        said."""
        notes = [note for note, said in self._notes.items() if not said]
        self._notes |= dict.fromkeys(notes, True)
        found = [link for link, named in self._left_out.items() if not named]
        self._left_out |= dict.fromkeys(found, True)
        return "; ".join([*notes, *([left_out_note(found)] if found else [])])

    async def send(
        self,
        program: HostProgram,
        manifest: Manifest,
        plan: Plan,
        host: HostPlan,
        progress: Callable[[Progress], None],
    ) -> str:
        """Sends what a host lacks of it, by the program there; returns a warning about the disk
        there, if there is reason for one.

        Raises:
            HostError: the host did not take it.
        """
        key = stage_key(plan, host.name)
        disk = await staging.stage(program, manifest, key, progress)
        return "" if disk is None else disk.warning(host.name)


def trees_of(plan: Plan, host: HostPlan) -> tuple[Tree, ...]:
    """Lists the trees of one host.

    Raises:
        TfmuxError: two of its data directories would have the same path there.
    """
    places = data_places(host.data, plan.workdir)
    inside = frozenset(place for place, _ in places)
    trees = [
        Tree(
            WORK,
            path,
            prefix="" if place == "." else f"{place}/",
            filtered=False,
            top=plan.workdir if plan.workdir and path.is_relative_to(plan.workdir) else None,
        )
        for place, path in places
    ]
    if plan.workdir is not None and plan.copies(host) and "." not in inside:
        workdir = Tree(
            WORK,
            plan.workdir,
            plan.exclude,
            skip=inside,
            exclude_places=plan.exclude_places,
            named=plan.workdir_named,
        )
        trees.insert(0, workdir)
    if host.uses_trainer and (trainer := installed_trainer()):
        trees.append(Tree(TRAINER, Path(trainer) / "trainer", prefix="trainer/", git=False))
    return tuple(trees)


def written_since(plan: Plan, host: HostPlan, moment: float) -> list[str]:
    """Paths of files that go to a host and that somebody has written since then, programs first.
    Blocks.

    Raises:
        TfmuxError: what a launch would say: a directory is refused, or cannot be read.
    """
    found = {
        tree.prefix + relative
        for tree in trees_of(plan, host)
        if tree.name == WORK
        for relative, _, info in walk(tree)
        if stat.S_ISREG(info.st_mode) and info.st_mtime > moment
    }
    return sorted(found, key=lambda path: (not path.endswith(_PROGRAMS), path))


_PROGRAMS = (".py", ".sh", ".ipynb", ".toml", ".yaml", ".yml", ".json")
"""Ends of the names of programs and their settings."""


class CopiedFiles:
    """What is copied to the hosts of a plan, read without contents; each tree is read once."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._read: dict[Tree, asyncio.Task[Listing]] = {}
        self.told: set[object] = set()
        """What has been said of one host, and holds for all."""

    async def of(self, host: HostPlan) -> Copied:
        """Lists what goes into the workdir of a host.

        Raises:
            TfmuxError: what a launch would say: a directory is refused, or cannot be read.
        """
        found = []
        for tree in trees_of(self._plan, host) if self._plan.copies(host) else ():
            if tree.name != WORK:
                continue
            if tree not in self._read:
                self._read[tree] = asyncio.create_task(asyncio.to_thread(list_tree, tree))
            found.append((tree, await asyncio.shield(self._read[tree])))
        return Copied(found)


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
