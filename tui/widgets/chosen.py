"""What any widget that shows tasks says when one of them is clicked."""

from __future__ import annotations

from textual.message import Message

from launcher.ids import TaskId


class TaskChosen(Message):
    """A task was clicked."""

    def __init__(self, task: TaskId) -> None:
        self.task = task
        super().__init__()
