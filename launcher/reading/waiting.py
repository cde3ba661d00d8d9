"""Lines by which a program says again and again that it waits for another task.

They are no output: a task that waits for one that has ended prints them for ever, and would never
count as silent.
"""

from __future__ import annotations

import re

from ..ids import TaskId
from ..lines import versions

_LONGEST = 4096
"""Bytes: what comes in one piece is mostly one line, a line for each task that is missing."""
_LINE = re.compile(
    rb"CreateSession still waiting for response from worker: "
    rb"/job:(?P<job>\w{1,64})/replica:\d{1,9}/task:(?P<index>\d{1,9})\s*$"
)


def awaited_in(data: bytes) -> TaskId | None:
    """The task that new output says is waited for, where it says nothing else."""
    if not data or len(data) > _LONGEST:
        return None
    matches = [_LINE.search(line) for line in versions(data).splitlines() if line.strip()]
    if not matches or matches[0] is None or None in matches:
        return None
    return TaskId(matches[0]["job"].decode(), int(matches[0]["index"]))
