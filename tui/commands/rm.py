"""`tfmux rm`: deletes past runs."""

from __future__ import annotations

import argparse

from launcher.errors import RunNotFoundError
from launcher.printable import printable
from launcher.session.deletion import ResultsLeftError, delete_runs
from launcher.store.runs import RunFolder
from tui.exits import Exit
from tui.streams import message, print_lines


def rm(arguments: argparse.Namespace) -> int:
    """Deletes the runs and prints the id of each; what stays is said on stderr, and the code is
    then 1, or 2 where a run is not known."""
    code: int = Exit.SUCCESS
    folders: dict[str, RunFolder] = {}
    for name in arguments.runs:
        try:
            folder = RunFolder.find(name)
            folders[folder.run_id] = folder
        except RunNotFoundError as error:
            message(str(error))
            code = Exit.USAGE
    for folder, problem in delete_runs(list(folders.values()), force=arguments.force):
        if problem is None:
            print_lines([printable(folder.run_id)])
            continue
        code = code or Exit.FAILED
        forced = f"; `tfmux rm --force {folder.run_id}` deletes them"
        message(f"{problem}{forced if isinstance(problem, ResultsLeftError) else ''}")
    return code
