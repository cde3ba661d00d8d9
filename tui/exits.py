"""The exit codes, in one place. Where several hold: 4, then 130 and 143, then 1, then 0."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """What the shell is told."""

    SUCCESS = 0
    FAILED = 1
    USAGE = 2
    PREFLIGHT = 3
    UNCONFIRMED = 4
    KILLED = 130
    TERMINATED = 143
