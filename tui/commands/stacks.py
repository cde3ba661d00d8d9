"""`tfmux stacks`: where the tasks of a run stand, in groups."""

from __future__ import annotations

import argparse
import concurrent.futures
from collections.abc import Iterator, Sequence

from launcher.client.launcher_link import has_launcher
from launcher.client.run_client import RunClient
from launcher.errors import LauncherError, TaskNotFoundError
from launcher.history.control import STACKS_SECONDS
from launcher.ids import TaskId
from launcher.run.stack_groups import Stacks, record
from launcher.store.stream import read_end
from tui.commands.which_run import named_active_run, run_and_tasks
from tui.exits import Exit
from tui.streams import message, write_json

_UNSUPERVISED = (
    "has no launcher process that could ask its hosts; `tfmux attach {run}` starts another one"
)


def stacks(arguments: argparse.Namespace) -> int:
    """Prints the groups of all tasks, the smallest first, or all stacks of the named ones.

    Raises:
        LauncherError: nobody supervises the run.
        TaskNotFoundError: the run has no such task.
    """
    command = arguments.command
    folder, names = run_and_tasks(
        arguments.run, arguments.tasks, command, lambda word: named_active_run(word, command)
    )
    if not has_launcher(folder):
        ended = read_end(folder.events, folder.run_id) is not None
        kept = ", ".join(str(file) for file in sorted(folder.path.glob("stacks-*.json")))
        raise LauncherError(
            f"{folder.run_id} "
            + ("has ended" if ended else _UNSUPERVISED.format(run=folder.run_id))
            + (f"; what was seen when it seemed to hang is in {kept}" if kept else "")
        )
    client = RunClient.attach(folder, screen=False)
    try:
        tasks = [view.id for view in client.snapshot().tasks]
        wanted = _wanted(names, tasks) if names else None
        found = client.request_stacks(wanted).result(STACKS_SECONDS)
    except concurrent.futures.TimeoutError:
        raise LauncherError(
            f"{folder.run_id}: its launcher process has not answered within {STACKS_SECONDS:.0f} s"
        ) from None
    finally:
        client.close()
    if arguments.json:
        write_json(record(found))
    else:
        for line in lines(found, full=wanted is not None):
            print(line)
    for missing in found.unanswered:
        message(f"{missing.name}: {missing.reason}")
    return Exit.SUCCESS if found.tasks else Exit.FAILED


def _wanted(names: Sequence[str], tasks: Sequence[TaskId]) -> list[TaskId]:
    by_name = {str(task): task for task in tasks}
    for name in names:
        if name not in by_name:
            raise TaskNotFoundError(name, list(tasks))
    return [by_name[name] for name in dict.fromkeys(names)]


def lines(found: Stacks, *, full: bool) -> Iterator[str]:
    """A line for each group, or all processes, threads and frames of each task."""
    if not full:
        if found.verdict is not None:
            yield f"cause: {found.verdict.text}"
        for group in found.groups:
            mark = "! " if found.blames(group) else ""
            yield f"{mark}{group.title} — {group.where}"
        return
    for task in found.tasks:
        yield from task.lines()
