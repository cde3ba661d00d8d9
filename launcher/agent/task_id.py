"""Name of a task, as TensorFlow writes it."""

from __future__ import annotations

import re
from typing import NamedTuple

_FRAME_FORM = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}:(?:0|[1-9][0-9]{0,8})")


class TaskId(NamedTuple):
    """One task of a job, `worker:0`, as TensorFlow writes it."""

    job: str
    index: int  # type: ignore[assignment]  # hides the method of tuples

    def __str__(self) -> str:
        return f"{self.job}:{self.index}"

    @property
    def stem(self) -> str:
        """The name of the task's files (`worker-0`): a colon is no good in a file name."""
        return f"{self.job}-{self.index}"

    @classmethod
    def parse(cls, text: str) -> TaskId:
        """Reads `worker:0`.

        Raises:
            ValueError: the text is no `job:index`.
        """
        job, colon, index = text.rpartition(":")
        if not colon or not job or not index.isdecimal():
            raise ValueError(f"{text!r} is not a task: write job:index, such as worker:0")
        return cls(job, int(index))

    @classmethod
    def from_frame(cls, text: str) -> TaskId | None:
        """The task that a frame or a process's environment names in its one accepted form; it
        becomes the name of a file."""
        return cls.parse(text) if _FRAME_FORM.fullmatch(text) else None
