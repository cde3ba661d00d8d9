"""`tfmux attach` and `logs`: runs that were launched before."""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import suppress

from launcher.client.launcher_link import has_launcher
from launcher.errors import TaskNotFoundError, TfmuxError
from launcher.history.following import LogLines, RunLogs
from launcher.history.stored import StoredRun
from launcher.store.runs import removed_text
from launcher.store.stream import read_end
from tui.commands import launch
from tui.commands.which_run import named_latest_run, named_or_active, run_and_tasks
from tui.exits import Exit
from tui.headless import display_line
from tui.streams import message

_PACE = 0.02
_LOOK = 0.25
"""Seconds between two looks whether the run that is followed has ended."""


def attach(arguments: argparse.Namespace) -> int:
    """Comes back to a run; returns its exit code."""
    folder = named_or_active(arguments)
    if not has_launcher(folder):
        run = StoredRun(folder)
        if run.damage:
            message(run.damage.describe(folder.run_id))
        if run.over:
            outcome = run.snapshot().outcome
            message(f"{folder.run_id} has ended ({outcome})")
            code = run.snapshot().exit_code
            return Exit.SUCCESS if code is None else code
        with suppress(OSError):
            folder.forget(yes=False)
    elif not folder.is_there:  # where events and logs would be
        message(removed_text(folder.run_id, (), living=True))
    return launch.attach(folder, arguments)


def logs(arguments: argparse.Namespace) -> int:
    """Prints stored logs: one task's bytes as they are, or all tasks' lines with their names.
    On a terminal, lines with pictures of what it would act on, unless `--raw` is given. To follow
    them ends when the run has ended and all that was written is printed.

    Raises:
        TaskNotFoundError: the run has no such task.
        TfmuxError: two tasks were named.
    """
    words = [arguments.task] if arguments.task is not None else []
    command = arguments.command
    folder, names = run_and_tasks(
        arguments.run, words, command, lambda word: named_latest_run(word, command)
    )
    if len(names) > 1:
        raise TfmuxError("logs prints one task or all: name one")
    run = StoredRun(folder)
    tasks = {view.id: view.host for view in run.snapshot().tasks}
    for name in names:
        wanted = next((task for task in tasks if str(task) == name), None)
        if wanted is None:
            raise TaskNotFoundError(name, list(tasks))
        tasks = {wanted: tasks[wanted]}
    pictures, out = sys.stdout.isatty() and not arguments.raw, sys.stdout.buffer
    follower: LogLines | RunLogs = RunLogs(run.folder.path, tasks, from_end=False)
    if names and not pictures:
        (task,) = tasks
        follower = LogLines(run.folder.path / f"{task.stem}.log")
    ended, looked = not arguments.follow, 0.0
    while True:
        if isinstance(follower, LogLines):
            out.write(follower.read())
        else:
            for task, line in follower.read(last=ended, raw=arguments.raw):
                title = b"" if names else f"{task} | ".encode()
                text = line if arguments.raw else display_line(line, pictures=pictures).encode()
                out.write(title + text + b"\n")
        out.flush()
        if follower.behind:
            continue
        if ended:
            return Exit.SUCCESS
        if time.monotonic() >= looked + _LOOK:
            # All logs are whole before the run's end is recorded: what is read after this look is
            # all that there will ever be.
            ended, looked = (
                read_end(run.folder.events, run.folder.run_id) is not None,
                time.monotonic(),
            )
        if not ended:
            time.sleep(_PACE)
