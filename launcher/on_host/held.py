"""Disk space that runs hold on a host when they have ended: counted, and freed.

The folders of runs lie side by side, and a home may be one for many hosts: of a run that may go on,
here or on another one, nothing is counted.
"""

from __future__ import annotations

import os
import stat
import time
from contextlib import suppress
from typing import Any, Iterator

from ..agent import tree
from ..agent.folders import ABOVE, OWN, Folders, booted_since, lock_within, remove_tree

_STEPS = 500
"""Files between two looks at the clock."""
_OWN_SECONDS = 10.0
_LAUNCH_SECONDS = 0.5
"""Longest time for which a launch counts."""


def held(folders: Folders, seconds: float) -> dict[str, Any]:
    """How many runs that have ended hold how many bytes here; `cut`: at least so many, since there
    was no time to look at all."""
    until = time.monotonic() + seconds
    runs = size = 0
    cut = False
    for run in _ended_runs(folders):
        found, whole = _size_of(run, until)
        runs += found > 0
        size += found
        cut = cut or not whole
    return {"runs": runs, "bytes": size, "cut": cut}


def own(folders: Folders) -> dict[str, Any]:
    """How many files, of how many bytes, this run holds here as results, wherever they lie;
    `problem` says why there may be more."""
    until = time.monotonic() + _OWN_SECONDS
    problems: list[str] = []
    names: dict[str, int] = {}
    cut = False
    results = (file for file in tree.workdir_files(folders.stage, problems) if file.result)
    for found in (results, tree.kept_files(folders.results, problems)):
        for number, file in enumerate(found):
            names[file.inside] = file.info.st_size
            if not number % _STEPS and time.monotonic() > until:
                cut = True
                break
    problem = "not all were looked at" if cut else "; ".join(problems[:3])
    moved = os.path.lexists(folders.results)
    return {
        "files": len(names),
        "bytes": sum(names.values()),
        "above": sum(name.startswith(f"{ABOVE}/") for name in names),
        "folder": folders.results if moved else os.path.join(folders.stage, tree.WORK),
        "problem": problem,
    }


def free(folders: Folders) -> dict[str, Any]:
    """Removes what this run holds here, but for what proves its end; `why` says what stays."""
    try:
        watch = os.open(folders.watch, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        pass  # no agent of it is on this host
    else:
        try:
            if not lock_within(watch, 0.0):
                return {"why": "an agent of the run is still there"}
        finally:
            os.close(watch)
    with suppress(OSError), os.scandir(folders.run) as listing:
        for item in list(listing):
            first = item.name.partition(".")[0]
            if first in ("results", "stage") or first not in OWN:
                if item.is_dir(follow_symlinks=False):
                    remove_tree(item.path)
                else:
                    os.unlink(item.path)
    with suppress(OSError):  # it has a proof, or a doubt, about the end
        os.rmdir(folders.run)
    left = [path for path in (folders.results, folders.stage) if os.path.lexists(path)]
    return {"why": f"{left[0]} has files of another user" if left else ""}


def after_staging(folders: Folders) -> dict[str, Any]:
    """The free bytes and all bytes of the disk with the runs' folders, and the last run of this
    cluster that has ended, with what it holds here."""
    info = os.statvfs(os.path.dirname(folders.run))
    last, size = "", 0
    name = _cluster_of(os.path.basename(folders.run))
    newest = [run for run in _ended_runs(folders) if _cluster_of(os.path.basename(run)) == name]
    if newest:
        last = max(newest, key=_time_of)
        size = _size_of(last, time.monotonic() + _LAUNCH_SECONDS)[0]
    return {
        "free": info.f_bavail * info.f_frsize,
        "total": info.f_blocks * info.f_frsize,
        "last": os.path.basename(last).partition(".")[0],
        "left": size,
    }


def _cluster_of(folder: str) -> tuple[str, str]:
    """The name of a run's cluster, and of its host."""
    run, _, host = folder.partition(".")
    return run.rsplit("-", 3)[0], host


def _time_of(run: str) -> float:
    times = [0.0]
    for name in ("results", "stage", "exit"):
        with suppress(OSError):
            times.append(os.lstat(os.path.join(run, name)).st_mtime)
    return max(times)


def _ended_runs(folders: Folders) -> Iterator[str]:
    """The folders of other runs that have ended: their agents have left word of that, or have gone
    with all but the results, or were those of another boot of this host."""
    base, host = os.path.dirname(folders.run), os.path.basename(folders.run).partition(".")[2]
    with suppress(OSError):
        for name in os.listdir(base):
            run = os.path.join(base, name)
            if run == folders.run or not os.path.isdir(run) or os.path.islink(run):
                continue
            began = os.path.join(run, "began")
            if os.path.lexists(os.path.join(run, "exit")) or not os.path.lexists(began):
                yield run
            elif name.partition(".")[2] == host and _has_rebooted(began):
                yield run


def _has_rebooted(began: str) -> bool:
    try:
        with open(began) as file:
            return booted_since(file.read(400))
    except (OSError, ValueError):
        return False


def _size_of(run: str, until: float) -> tuple[int, bool]:
    """Bytes of the disk that a folder holds, of a file with two names once; whether all of it was
    looked at."""
    size, seen, number = 0, set(), 0
    todo = [run]
    while todo:
        with suppress(OSError), os.scandir(todo.pop()) as listing:
            for item in listing:
                number += 1
                if not number % _STEPS and time.monotonic() > until:
                    return size, False
                info = item.stat(follow_symlinks=False)
                if stat.S_ISDIR(info.st_mode):
                    todo.append(item.path)
                    continue
                if info.st_nlink > 1:
                    if (info.st_dev, info.st_ino) in seen:
                        continue
                    seen.add((info.st_dev, info.st_ino))
                size += info.st_blocks * 512
    return size, True
