"""Deletion of past runs, and what would be lost with one."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from ..errors import TfmuxError
from ..frozen import frozen
from ..paths import tilde
from ..printable import printable
from ..quantities import counted, size
from ..store.runs import RunFolder
from ..store.stream import read_stream
from .run_list import ListedRun, active_runs

_COLLECTED = "collected"
_MOST_COUNTED = 1_000_000


class ResultsLeftError(TfmuxError):
    """A run has results that nobody has taken to another place."""


@frozen
class _Results:
    """Files below a directory."""

    files: int = 0
    bytes: int = 0

    @classmethod
    def below(cls, folder: Path) -> _Results:
        """Counts files; no link is followed."""
        files = total = 0
        for place, _, names in os.walk(folder) if not folder.is_symlink() else ():
            for name in names:
                files += 1
                total += os.lstat(os.path.join(place, name)).st_size
            if files > _MOST_COUNTED:
                break
        return cls(files, total)


def results_of(folder: RunFolder) -> list[str]:
    """Sentences on the results that would be lost with a run: those that have been collected lie in
    its folder, and those that have not can be brought no more."""
    return list(_results(folder))


def _results(folder: RunFolder) -> Iterator[str]:
    collected = folder.path / _COLLECTED
    here = _Results.below(collected)
    if here.files:
        what = f"{counted(here.files, 'collected file')}, {size(here.bytes)}"
        yield f"{what}, in {printable(tilde(collected))}: move them to keep them"
    run = read_stream(folder.events, folder.run_id).views.run
    yield from map(printable, run.results_missing)
    for kept in run.results_kept:
        brought = _Results.below(collected / Path(kept.host).name)
        if kept.problem or kept.cut or kept.files > brought.files:
            yield printable(kept.text(folder.run_id))


def delete_runs(
    folders: Sequence[RunFolder], *, force: bool = False
) -> Iterator[tuple[RunFolder, TfmuxError | None]]:
    """Deletes past runs, one after the other; yields each, with what has prevented it. A run that
    is active stays in any case; one with results unless `force`. Blocking: the hosts of runs whose
    end is not recorded are asked."""
    found = active_runs(folders)
    active = {run.folder.run_id: _why_active(run) for run in found.runs}
    unclear = {
        run.run_id: f"{run.run_id} could not be read, and may be active: {run.reason}"
        for run in found.unreadable
    }
    for folder in folders:
        try:
            if why := active.get(folder.run_id) or unclear.get(folder.run_id):
                raise TfmuxError(printable(why))
            if not force and (lost := results_of(folder)):
                raise ResultsLeftError(f"{folder.run_id} has results: {'; '.join(lost)}")
            folder.delete()
        except TfmuxError as error:
            yield folder, error
        except OSError as error:
            yield folder, TfmuxError(f"{error.filename}: {error.strerror}")
        else:
            yield folder, None


def _why_active(run: ListedRun) -> str:
    name = run.folder.run_id
    ends = f"`tfmux kill {name}` ends it"
    doubts = [host.name for host in run.hosts if host.unreachable or host.doubt]
    if run.launcher is None and doubts:
        where = ", ".join(doubts)
        forget = f"`tfmux kill --forget {name}` takes it from the list of active runs"
        return f"{name} may have processes on {where}: {ends}; {forget}"
    return f"{name} is active: {ends}"
