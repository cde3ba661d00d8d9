"""Limit of open files of this process, which has connections to many hosts at the same time."""

from __future__ import annotations

from ..subprocesses import raise_limit

_ALWAYS, _EACH_HOST = 600, 4
"""Open files that are enough: a way by a command (`via`) has three pipes."""


def allow_connections(hosts: int) -> None:
    """Raises the soft limit of open files where so many hosts need more; 1,024 is usual."""
    raise_limit(_ALWAYS + _EACH_HOST * hosts)
