"""The exit codes, in one place. Where several hold: 70, 4, 5, then 130 and 143, then 1, then 0."""

from __future__ import annotations

from collections.abc import Collection
from enum import IntEnum


class Exit(IntEnum):
    """Exit code of a command, with its meaning for people."""

    meaning: str

    def __new__(cls, code: int, meaning: str) -> Exit:
        member = int.__new__(cls, code)
        member._value_ = code
        member.meaning = meaning
        return member

    SUCCESS = (
        0,
        "success, and no process is left; also after detaching from a launcher process that lives",
    )
    FAILED = 1, "a task failed"
    USAGE = 2, "wrong usage or cluster file; nothing was started"
    PREFLIGHT = 3, "the preflight failed; nothing was started"
    UNCONFIRMED = (
        4,
        "a host could not confirm that no process is left, or nobody knows whether a run goes on",
    )
    TAKEN_OVER = (
        5,
        "another launcher has taken the run over (`attach` elsewhere); its end is known there",
    )
    CRASHED = (
        70,
        "the screen failed twice (`EX_SOFTWARE` of sysexits.h); the run was left to its launcher",
    )
    KILLED = 130, "killed by a user (F9, Ctrl-C, `tfmux kill`), here or elsewhere"
    TERMINATED = 143, "ended by SIGTERM"


_PRECEDENCE = (
    Exit.CRASHED,
    Exit.UNCONFIRMED,
    Exit.TAKEN_OVER,
    Exit.KILLED,
    Exit.TERMINATED,
    Exit.FAILED,
)


def first_of(codes: Collection[int]) -> int:
    """The exit code that says most where several hold: what nobody knows comes first."""
    return next((code for code in _PRECEDENCE if code in codes), Exit.SUCCESS)


def exit_code(code: int | None, *, detached: bool, doubt: str = "") -> int:
    """The exit code after a run; `code` is the run's own, None while it has no outcome. `doubt`:
    why a run that was detached may not go on."""
    if detached:
        return Exit.UNCONFIRMED if doubt else Exit.SUCCESS
    return Exit.FAILED if code is None else code
