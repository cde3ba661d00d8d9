"""A past run as it can be launched again: its stored cluster file, and what has changed since."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ..cluster import library
from ..cluster.file_model import ClusterModel
from ..cluster.key_lines import KeyPath
from ..cluster.read import load, loads, read_text, without_file_name
from ..errors import ClusterFileError, TfmuxError
from ..files.listing import Tree, walk
from ..frozen import frozen
from ..plan.planner import make_plan
from ..preflight.repairs import key_of_refusal
from ..printable import escaped, printable
from ..quantities import counted
from ..run.cause import Kind
from ..run.snapshot import Snapshot
from ..run.states import HostState
from ..store.runs import RunFolder
from ..store.stream import read_stream

_LOOK_SECONDS = 2.0
"""Longest look at a workdir, which may be a home."""
_MOST_FILES = 200
"""Cluster files of one directory among which that of a run is looked for."""
_BLAMED_ON_HOST = (Kind.HOST_LOST, Kind.GPU)


@frozen
class EarlierRun:
    """What was launched once."""

    folder: RunFolder
    cluster: ClusterModel
    text: str
    """The cluster file as it ran."""

    @classmethod
    def read(cls, folder: RunFolder) -> EarlierRun:
        """Reads the stored cluster file of a run, for a launch.

        Raises:
            ClusterFileError: the file cannot be read, or names what is not there any more.
        """
        text = read_text(folder.cluster_file)
        source = escaped(str(folder.cluster_file))
        return cls(folder, loads(text, source, folder.origin, for_launch=True), text)

    @property
    def resumed(self) -> str | None:
        """The run in whose log directory this one went on."""
        resume = read_stream(self.folder.events, self.folder.run_id).views.run.resume
        return None if resume is None else resume.run_id

    def changes(self) -> list[str]:
        """Sentences on what has changed since the run was launched: its cluster file, which runs
        again as it was, and files of its workdir, which are taken as they are now. Blocking."""
        file = find_file(self.folder, self.text, self.cluster.name)
        return [*_changed_file(file), *self._changed_workdir(file)]

    def _changed_workdir(self, file: OwnFile | None) -> Iterator[str]:
        plan = make_plan(self.cluster, self.folder.run_id)
        if plan.workdir is None:
            return
        launched = self.folder.launched
        tree = Tree("", plan.workdir, plan.exclude, exclude_places=plan.exclude_places)
        changed: list[str] = []
        count, deadline = 0, time.monotonic() + _LOOK_SECONDS
        try:
            for relative, path, info in walk(tree):
                if time.monotonic() > deadline:
                    break
                # Not the time that a program may set: a copy keeps that of the file it is of.
                other = file is None or path != str(file.path)
                if info.st_ctime > launched and other and not os.path.isdir(path):
                    count += 1
                    changed += [relative] if count == 1 else []
        except TfmuxError:
            return  # the launch says so
        if changed:
            others, have, them = "", "has", "it as it is"
            if count > 1:
                others, have = f" and {counted(count - 1, 'other file')}", "have"
                them = "them as they are"
            first = printable(changed[0])
            yield f"{first}{others} of the workdir {have} changed since: this run has {them} now"


@frozen
class OwnFile:
    """The cluster file that a run was launched from."""

    path: Path
    unchanged: bool
    """The file still says what ran."""


def _changed_file(file: OwnFile | None) -> Iterator[str]:
    if file is not None and not file.unchanged:
        yield f"{printable(file.path.name)} has changed since: this run has it as it was"


def find_file(folder: RunFolder, text: str, name: str) -> OwnFile | None:
    """Finds the cluster file that a run was launched from: one with this text in the directory of
    the launch, else one of the same cluster. None: `tfmux run` has launched it, or the file has
    been removed."""
    wanted, changed = without_file_name(text), None
    try:
        paths = sorted(path for path in folder.origin.glob("*.toml") if path.is_file())
    except OSError:
        return None
    for path in paths[:_MOST_FILES]:
        try:
            found = read_text(path)
            if found.removeprefix("\ufeff") == wanted:
                return OwnFile(path, unchanged=True)
            if changed is None and load(path).name == name:
                changed = OwnFile(path, unchanged=False)
        except ClusterFileError:
            changed = changed or (OwnFile(path, unchanged=False) if path.stem == name else None)
    return changed


class EditableFile(NamedTuple):
    """The file in which the cluster of a run can be changed."""

    path: Path
    text: str | None
    """The text of a new file, where that of the launch has gone."""
    note: str
    """A sentence about it."""


def editable_file(folder: RunFolder) -> EditableFile:
    """Finds the file in which the cluster of a run can be changed; where there is none any more, a
    new one beside where it was. Blocking: it reads the cluster files of a directory.

    Raises:
        ClusterFileError: the stored cluster file cannot be read.
    """
    text = read_text(folder.cluster_file)
    cluster = loads(text, escaped(str(folder.cluster_file)), folder.origin)
    file = find_file(folder, text, cluster.name)
    if file is None:
        place = folder.origin if folder.origin.is_dir() else library.folder()
        path = library.free_path(place, cluster.name)
        note = f"the cluster file as {folder.run_id} had it, not saved yet"
        return EditableFile(path, text, note)
    if file.unchanged:
        return EditableFile(file.path, None, f"{folder.run_id} was launched from {file.path.name}")
    note = f"{file.path.name} has changed since {folder.run_id} was launched"
    return EditableFile(file.path, None, note)


def place_to_edit(snapshot: Snapshot) -> KeyPath:
    """Path of the entry of the cluster file that the trouble of a run is about: the place of the
    guilty task, or the host where that is to blame, and of one that was refused the key that is
    about the reason; empty without trouble."""
    task, verdict = snapshot.trouble, snapshot.verdict
    if task is None:
        refused = [host for host in snapshot.hosts if host.state is HostState.REFUSED]
        return ("hosts", refused[0].name, key_of_refusal(refused[0].code)) if refused else ()
    if verdict is not None and verdict.kind in _BLAMED_ON_HOST:
        return ("hosts", snapshot.task(task).host)
    return ("jobs", task.job, "tasks", task.index)
