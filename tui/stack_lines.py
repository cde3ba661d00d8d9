"""Stacks of tasks as lines of text, for the command and the screen."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.run.stacks import ProcessStack, TaskStacks


def task_lines(task: TaskStacks) -> Iterator[str]:
    """A task with all threads of all its processes."""
    yield f"{task.task} on {task.host}"
    for process in task.processes:
        yield from process_lines(process)


def process_lines(process: ProcessStack) -> Iterator[str]:
    """A process in full."""
    yield f"  process {process.pid}: {process.command}"
    known = process.state if process.way == "proc" else f"{process.state}; by {process.way}"
    yield f"    {known}{f' ({process.note})' if process.note else ''}"
    for thread in process.threads:
        yield f"    thread {thread.name}"
        for frame in thread.frames:
            yield f"      {frame.where}"
    if process.unlisted:
        yield f"    and {process.unlisted} more"
    if process.files:
        yield f"    open files: {', '.join(process.files)}"
