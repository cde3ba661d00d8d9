"""Message of widgets that show tasks: one of them was clicked."""

from __future__ import annotations

from textual.message import Message

from launcher.ids import TaskId


class TaskClicked(Message):
    """A task was clicked."""

    def __init__(self, task: TaskId) -> None:
        self.task = task
        super().__init__()
