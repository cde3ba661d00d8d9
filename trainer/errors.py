"""What the trainer says in one line instead of a traceback.

TrainerError            exit status 1: the run cannot go on
├── UsageError          exit status 2: flags or TF_CONFIG are wrong, nothing was started
├── DataError           a data file is missing, broken or does not fit its neighbour
└── CheckpointError     a checkpoint is stale, foreign, unreadable or cannot be written
"""

from __future__ import annotations


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
