"""Runs by what people call them: the id, the beginning of an id, or the name of the cluster.

A word that is the whole name of some cluster is a name, whatever ids begin with it. The beginning
of a name is none: `kill mnist` must not end a run of `mnist-large`. The beginning of an id has at
least the year behind the name, since `mnist-2` is rather the name of another cluster.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from ..errors import LockError, RunNotFoundError, TfmuxError
from ..frozen import frozen
from ..ids import split_run_id
from ..paths import runs_home
from ..printable import printable
from ..store.living_runs import LivingRun, without_folder
from ..store.runs import RunFolder, UnreadableRun, one_of_copies
from .run_list import ListedRun, active_runs, read_run, removed_run

_YEAR = 4
"""Digits of the year, with which what comes behind the name in an id begins."""
_MOST_NAMED = 5


class SeveralRunsError(RunNotFoundError):
    """Several active runs are called so."""

    def __init__(self, text: str, runs: Sequence[ListedRun]) -> None:
        super().__init__(text)
        self.runs = tuple(runs)


def active_run(word: str) -> RunFolder:
    """The active run that a word means: its id, the whole name of its cluster, or the beginning of
    its id. Of a whole id the run may have ended.

    Raises:
        SeveralRunsError: several are active.
        RunNotFoundError: none is, or one that may be meant cannot be read.
    """
    known = _KnownRuns.read()
    if not word or known.has(word):
        return RunFolder.find(word, removed=True)
    for run in known.unreadable:
        if _is_name(run.run_id, word) or _begins_id(run.run_id, word):
            name = printable(run.run_id)
            raise RunNotFoundError(f"{name} may be meant, and could not be read: {run.reason}")
    called = known.called(word)
    if not called:
        return _only_by_id(known, word)
    maybe = [folder for folder in called if _may_be_active(folder)]
    if len(maybe) == 1:
        return maybe[0]  # no host is asked: a kill does not wait for another one's answer
    runs = known.active(maybe)
    if len(runs) == 1:
        return runs[0].folder
    if runs:
        raise SeveralRunsError(f"{len(runs)} active runs are called {printable(word)!r}", runs)
    for folder in called:
        if folder.path.name == word:  # somebody has renamed it
            return folder
    newest = printable(called[0].run_id)
    raise RunNotFoundError(
        f"no active run is called {printable(word)!r}; the last one was {newest}"
    )


def any_run(word: str) -> RunFolder:
    """The one run, active or not, that a word means.

    Raises:
        RunNotFoundError: no run, or several.
    """
    known = _KnownRuns.read()
    called = [] if known.has(word) else [one for one in known.called(word) if one.is_there]
    if not called:
        return _only_by_id(known, word)
    if len(called) > 1:
        raise RunNotFoundError(
            f"{printable(word)!r} is the name or the beginning of several runs: {_ids(called)}"
        )
    return called[0]


def latest_run(word: str) -> tuple[RunFolder, str]:
    """The run to read that a word means, which may be the beginning of a name, too: the active one,
    else the newest. A sentence says which one, unless the word is its id.

    Raises:
        SeveralRunsError: several are active.
        RunNotFoundError: none is called so.
    """
    known = _KnownRuns.read()
    if not word or known.has(word):
        return RunFolder.find(word), ""
    called = known.called(word) or known.beginning_with(word)
    there = [folder for folder in called if folder.is_there]
    if not there:
        # Whatever else is known of it: its folder has been removed, or is in another data home.
        return RunFolder.find(called[0].run_id if called else word), ""
    taken, why = there[0], f"the newest of {len(there)} such runs" if len(there) > 1 else ""
    if len(there) > 1 and (maybe := [folder for folder in there if _may_be_active(folder)]):
        runs = known.active(maybe)
        if len(runs) > 1:
            raise SeveralRunsError(f"{len(runs)} active runs are called {printable(word)!r}", runs)
        if runs:
            taken, why = runs[0].folder, "the active run"
    return taken, f"using {printable(taken.run_id)}{f', {why}' if why else ''}"


@frozen
class _KnownRuns:
    """The runs that this machine's folder of runs has, the newest first, and those that live
    although their folder was removed."""

    folders: tuple[RunFolder, ...]
    removed: tuple[LivingRun, ...]
    unreadable: tuple[UnreadableRun, ...]

    @classmethod
    def read(cls) -> _KnownRuns:
        """Looks at the folder of runs."""
        folders, unreadable = RunFolder.scan()
        copies: dict[str, list[RunFolder]] = {}
        for folder in folders:
            copies.setdefault(folder.run_id, []).append(folder)
        removed: list[LivingRun] = []
        with suppress(OSError):  # an index that does not answer keeps no kill from a run's folder
            removed = [run for run in without_folder(copies, runs_home()) if run.living]
        found = [one_of_copies(some) for some in copies.values()]
        found += [RunFolder(run.folder, run.run_id) for run in removed]
        return cls(tuple(found), tuple(removed), tuple(unreadable))

    def has(self, run_id: str) -> bool:
        """Whether a run has this id."""
        return any(folder.run_id == run_id for folder in self.folders)

    def called(self, word: str) -> list[RunFolder]:
        """The runs whose cluster or folder has this name; where there are none, those whose id
        begins so."""
        named = [one for one in self.folders if word == one.path.name or _is_name(one.run_id, word)]
        return named or [one for one in self.folders if _begins_id(one.run_id, word)]

    def beginning_with(self, word: str) -> list[RunFolder]:
        """The runs whose id or folder begins with a word."""
        return [
            one
            for one in self.folders
            if word and (one.run_id.startswith(word) or one.path.name.startswith(word))
        ]

    def active(self, folders: Sequence[RunFolder]) -> list[ListedRun]:
        """Picks the runs that are active, and those that cannot be read and may be. Hosts of runs
        without a launcher process are asked."""
        ids = {folder.run_id for folder in folders}
        listed = active_runs([folder for folder in folders if folder.is_there])
        lost = {run.run_id for run in listed.unreadable}
        found = [*listed.runs, *(read_run(one) for one in folders if one.run_id in lost)]
        return found + [removed_run(run) for run in self.removed if run.run_id in ids]


def _only_by_id(known: _KnownRuns, word: str) -> RunFolder:
    """The run of this whole id, which may be in another data home, or the folder of this name.

    Raises:
        RunNotFoundError: there is none; those whose ids begin so are named.
    """
    try:
        return RunFolder.find(word, removed=True)
    except RunNotFoundError as error:
        if near := known.beginning_with(word):
            raise RunNotFoundError(
                f"no run {printable(word)!r} here: write the whole name of a cluster, or an id such"
                f" as {_ids(near)}"
            ) from None
        raise error


def _is_name(run_id: str, word: str) -> bool:
    """Whether a word is the whole name of a run's cluster."""
    return word == split_run_id(run_id)[0]


def _begins_id(run_id: str, word: str) -> bool:
    """Whether a run's id begins with a word that goes beyond the name of its cluster."""
    name, stamp = split_run_id(run_id)
    return bool(stamp) and run_id.startswith(word) and len(word) > len(name) + _YEAR


def _may_be_active(folder: RunFolder) -> bool:
    """Whether a run is active as far as this machine knows; no host is asked."""
    try:
        if not folder.is_there or folder.launcher_pid() is not None:
            return True
        return not (folder.forgotten or read_run(folder).over)
    except (TfmuxError, LockError, OSError):
        return True


def _ids(folders: Sequence[RunFolder]) -> str:
    ids = [printable(folder.run_id) for folder in folders]
    return ", ".join(ids if len(ids) <= _MOST_NAMED else [*ids[:_MOST_NAMED], "…"])
