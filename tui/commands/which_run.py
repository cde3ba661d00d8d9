"""The run that a command line means: that of a word, or without one the one active run."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence

from launcher.errors import RunNotFoundError, TfmuxError
from launcher.history.named_runs import SeveralRunsError, active_run, latest_run
from launcher.history.run_list import ListedRun, active_runs
from launcher.history.stored import stored_folder
from launcher.printable import printable
from launcher.store.runs import RunFolder
from tui.commands.ps import print_unreadable, table
from tui.streams import message, write_line

_MOST_LISTED = 10


def run_and_tasks(
    run: str | None, tasks: Sequence[str], command: str, find: Callable[[str], RunFolder]
) -> tuple[RunFolder, list[str]]:
    """The run and the tasks that `RUN TASK …` mean. Where the first word is no run and has a colon,
    as no id has, it is a task of the one active run.

    Raises:
        RunNotFoundError: no run was named, and none or several are active, or `find` has none.
    """
    if run is None:
        return only_active_run(command), list(tasks)
    try:
        return find(run), list(tasks)
    except RunNotFoundError:
        if ":" not in run:
            raise
    return only_active_run(command), [run, *tasks]


def run_and_patterns(
    run: str | None, patterns: Sequence[str], command: str
) -> tuple[RunFolder, list[str]]:
    """The run and the patterns that `RUN PATTERN …` mean. Where the first word is no run it is a
    pattern for the one active run, which is said.

    Raises:
        RunNotFoundError: no run was named, and none or several are active.
    """
    if run is None:
        return only_active_run(command), list(patterns)
    try:
        return named_latest_run(run, command), list(patterns)
    except RunNotFoundError as error:
        active = active_runs()
        if len(active.runs) != 1 or isinstance(error, SeveralRunsError):
            raise error
        folder = active.runs[0].folder
        message(
            f"{printable(run)} is not a run; using it as a path in the workdir of "
            f"{printable(folder.run_id)}"
        )
        return folder, [run, *patterns]


def named_latest_run(word: str, command: str) -> RunFolder:
    """The run to read that a word means, which is said on stderr.

    Raises:
        RunNotFoundError: none is called so, or several active ones are, which are listed.
    """
    try:
        folder, sentence = latest_run(word)
    except SeveralRunsError as error:
        raise _listed(error, command) from None
    if sentence:
        message(sentence)
    return folder


def named_active_run(word: str, command: str) -> RunFolder:
    """The active run that a word means.

    Raises:
        RunNotFoundError: none is called so, or several are, which are listed.
    """
    try:
        return active_run(word)
    except SeveralRunsError as error:
        raise _listed(error, command) from None


def _listed(error: SeveralRunsError, command: str) -> SeveralRunsError:
    """Lists the runs of an error, and says how one of them is named."""
    _print_list(error.runs)
    example = printable(error.runs[0].folder.run_id)
    return SeveralRunsError(f"{error}: name one, such as `tfmux {command} {example}`", error.runs)


def _print_list(runs: Sequence[ListedRun]) -> None:
    write_line(table(tuple(runs[:_MOST_LISTED]), time.time()).rstrip("\n"))
    if len(runs) > _MOST_LISTED:
        message(f"these are the newest {_MOST_LISTED}; `tfmux ps` lists all")


def last_run() -> RunFolder:
    """The run that was launched last, which has ended.

    Raises:
        RunNotFoundError: there is none, or it is active.
    """
    newest = next(iter(RunFolder.all()), None)
    if newest is None:
        raise RunNotFoundError("no run has been launched here: `tfmux up FILE` launches one")
    found = active_runs([newest])
    if found.runs or found.unreadable:
        name = printable(newest.run_id)
        raise RunNotFoundError(
            f"{name} is active: `tfmux kill {name}` ends it; `tfmux up --again {name}` launches it "
            "a second time"
        )
    return newest


def named_or_active(arguments: argparse.Namespace) -> RunFolder:
    """The run of a command that takes `RUN` and `--file`.

    Raises:
        TfmuxError: a cluster file was given without a run, or cannot be used.
        RunNotFoundError: no active run is called so; no run was named, and none or several are
            active.
    """
    run, file = arguments.run, arguments.file
    if run is not None and file is not None:
        return stored_folder(run, file, removed=True)
    if run is not None:
        return named_active_run(run, arguments.command)
    if file is not None:
        raise TfmuxError("--file needs the run's whole id, too: the TFMUX_RUN_ID of its tasks")
    return only_active_run(arguments.command)


def only_active_run(command: str) -> RunFolder:
    """The one active run. Several are listed on stderr.

    Raises:
        RunNotFoundError: there are none or several; for `kill`, also where a run cannot be read,
            which may be the one that is meant.
    """
    found = active_runs()
    print_unreadable(found)
    active = [run.folder for run in found.runs]
    if not active:
        raise RunNotFoundError(_none_active(command))
    unclear = command == "kill" and bool(found.unreadable)
    if len(active) == 1 and not unclear:
        return active[0]
    _print_list(found.runs)
    those = f"{len(active)} runs are active"
    if len(active) == 1:
        those = "1 run is active, and another may be"
    example = printable(active[0].run_id)
    raise RunNotFoundError(f"{those}: name one, such as `tfmux {command} {example}`")


def _none_active(command: str) -> str:
    newest = next(iter(RunFolder.all()), None)
    if newest is None or command == "kill":
        return "no active runs"
    last = printable(newest.run_id)
    return f"no active runs; the last one was {last}: `tfmux {command} {last}`"
