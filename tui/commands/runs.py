"""`tfmux attach` and `logs`: runs that were launched before."""

from __future__ import annotations

import argparse
import sys
import time

from launcher.errors import TaskNotFoundError
from launcher.ids import TaskId
from launcher.session.attach import stored
from launcher.session.log_lines import LogLines
from tui.commands import launch
from tui.exits import Exit
from tui.headless import shown
from tui.stderr import message

_PACE = 0.02


def attach(arguments: argparse.Namespace) -> int:
    """Comes back to a run; returns its exit code."""
    run = stored(arguments.run, arguments.file)
    if run.damage:
        message(run.damage.told(run.folder.run_id))
    if run.over:
        outcome = run.snapshot().outcome
        message(f"{run.folder.run_id} has ended ({outcome})")
        code = run.snapshot().exit_code
        return Exit.SUCCESS if code is None else code
    return launch.attach(run.folder, arguments)


def logs(arguments: argparse.Namespace) -> int:
    """Prints stored logs: one task's bytes as they are, or all tasks' lines with their names.
    On a terminal, lines with pictures of what it would act on, unless `--raw` is given.

    Raises:
        TaskNotFoundError: the run has no such task.
    """
    run = stored(arguments.run)
    tasks = [view.id for view in run.snapshot().tasks]
    if arguments.task:
        wanted = TaskId.parse(arguments.task) if ":" in arguments.task else None
        if wanted not in tasks:
            raise TaskNotFoundError(arguments.task, tasks)
        tasks = [task for task in tasks if task == wanted]
    followers = [LogLines(run.folder.path / f"{task.stem}.log") for task in tasks]
    pictures, out = sys.stdout.isatty() and not arguments.raw, sys.stdout.buffer
    while True:
        more = False
        for task, follower in zip(tasks, followers, strict=True):
            if arguments.task and not pictures:
                data = follower.read()
                out.write(data)
                more = more or bool(data)
                continue
            name = b"" if arguments.task else f"{task} | ".encode()
            for line in follower.lines(last=not arguments.follow):
                text = line if arguments.raw else shown(line, pictures=pictures).encode()
                out.write(name + text + b"\n")
            more = more or follower.behind
        out.flush()
        if not more and not arguments.follow:
            return Exit.SUCCESS
        if not more:
            time.sleep(_PACE)
