"""The exit codes, in one place. Where several hold: 70, 4, then 130 and 143, then 1, then 0."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """Exit code of a command."""

    SUCCESS = 0
    FAILED = 1
    USAGE = 2
    PREFLIGHT = 3
    UNCONFIRMED = 4
    CRASHED = 70
    """The screen failed, a fault of the program (`EX_SOFTWARE` of sysexits.h); the run goes on."""
    KILLED = 130
    TERMINATED = 143


def exit_code(code: int | None, *, detached: bool) -> int:
    """The exit code after a run; `code` is the run's own, None while it has no outcome."""
    if detached:
        return Exit.SUCCESS
    return Exit.FAILED if code is None else code
