"""What the trainer says in one line instead of a traceback.

TrainerError            exit status 1: the run cannot go on
├── UsageError          exit status 2: flags or TF_CONFIG are wrong, nothing was started
├── DataError           a data file is missing, broken or does not fit its neighbour
└── CheckpointError     a checkpoint is stale, foreign, unreadable or cannot be written
"""

from __future__ import annotations

import re

_PREAMBLE = re.compile(r"From /job:|Graph execution error:|\d+ root error")


class TrainerError(Exception):
    """A failure whose message is complete in itself: path or host, and the reason."""

    exit_status = 1


class UsageError(TrainerError):
    """Wrong flags or a wrong TF_CONFIG."""

    exit_status = 2


class DataError(TrainerError):
    """A data file that cannot be used."""


class CheckpointError(TrainerError):
    """A checkpoint that cannot be used or written."""


def reason(error: BaseException) -> str:
    """The one line of a TensorFlow error that says what is wrong.

    Its messages begin with where in the program an operation was made, or with a count of "root
    errors", and go on with the names of nodes.
    """
    text = str(getattr(error, "message", "") or getattr(error, "strerror", "") or error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    nodes = [number for number, line in enumerate(lines[:-1]) if line.startswith("Node: ")]
    lines = lines[nodes[-1] + 1 :] if nodes else lines
    while len(lines) > 1 and _PREAMBLE.match(lines[0]):
        lines = lines[1:]
    line = re.sub(r"^\(\d+\) (\w+: )?", "", lines[0] if lines else type(error).__name__)
    return re.sub(r"\{\{.*?\}\} | \[Op:.*", "", line)
