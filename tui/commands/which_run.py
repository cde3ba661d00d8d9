"""The run that a command means where the command line names none: the one active run."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

from launcher.errors import RunNotFoundError, TfmuxError
from launcher.printable import printable
from launcher.session.run_list import active_runs
from launcher.store.runs import RunFolder
from tui.commands.ps import print_unreadable, table
from tui.streams import message, write_line

_MOST_LISTED = 10


def run_and_tasks(run: str | None, tasks: Sequence[str], command: str) -> tuple[str, list[str]]:
    """The run and the tasks that `RUN TASK …` mean. Where the first word is no run and has a colon,
    as no id has, it is a task of the one active run.

    Raises:
        RunNotFoundError: no run was named, and none or several are active.
    """
    if run is not None and ":" in run:
        try:
            RunFolder.find(run)
        except RunNotFoundError:
            return active_run(command), [run, *tasks]
    return (active_run(command) if run is None else run), list(tasks)


def run_and_patterns(
    run: str | None, patterns: Sequence[str], command: str
) -> tuple[str, list[str]]:
    """The run and the patterns that `RUN PATTERN …` mean. Where the first word is no run it is a
    pattern for the one active run, which is said.

    Raises:
        RunNotFoundError: no run was named, and none or several are active.
    """
    if run is None:
        return active_run(command), list(patterns)
    try:
        return RunFolder.find(run).run_id, list(patterns)
    except RunNotFoundError as error:
        active = active_runs()
        if len(active.runs) != 1 or _may_begin(run):
            raise error
        name = active.runs[0].folder.run_id
        message(
            f"{printable(run)} is not a run; using it as a path in the workdir of {printable(name)}"
        )
        return name, [run, *patterns]


def _may_begin(word: str) -> bool:
    """The word is the beginning of several runs."""
    return any(folder.run_id.startswith(word) for folder in RunFolder.all())


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


def named_or_active(arguments: argparse.Namespace) -> str:
    """The run of a command that takes `RUN` and `--file`.

    Raises:
        TfmuxError: a cluster file was given without a run.
        RunNotFoundError: no run was named, and none or several are active.
    """
    if arguments.run is not None:
        return str(arguments.run)
    if arguments.file is not None:
        raise TfmuxError("--file needs the run's whole id, too: the TFMUX_RUN_ID of its tasks")
    return active_run(arguments.command)


def active_run(command: str) -> str:
    """The id of the one active run. Several are listed on stderr.

    Raises:
        RunNotFoundError: there are none or several; for `kill`, also where a run cannot be read,
            which may be the one that is meant.
    """
    found = active_runs()
    print_unreadable(found)
    active = [run.folder.run_id for run in found.runs]
    if not active:
        raise RunNotFoundError(_none_active(command))
    unclear = command == "kill" and bool(found.unreadable)
    if len(active) == 1 and not unclear:
        return active[0]
    if found.runs:
        write_line(table(found.runs[:_MOST_LISTED], time.time()).rstrip("\n"))
    if len(found.runs) > _MOST_LISTED:
        message(f"these are the newest {_MOST_LISTED}; `tfmux ps` lists all")
    those = f"{len(active)} runs are active"
    if len(active) == 1:
        those = "1 run is active, and another may be"
    raise RunNotFoundError(f"{those}: name one, such as `tfmux {command} {printable(active[0])}`")


def _none_active(command: str) -> str:
    newest = next(iter(RunFolder.all()), None)
    if newest is None or command == "kill":
        return "no active runs"
    last = printable(newest.run_id)
    return f"no active runs; the last one was {last}: `tfmux {command} {last}`"
