"""Limit of the agent's open files, and how many of them are kept free of tasks.

Each task takes three descriptors. The kernel gives the lowest number that is free: while no task
has one of the last numbers, a kill, a scan of `/proc` and a launcher's channel find one there.
"""

from __future__ import annotations

import errno
import os
import resource
from contextlib import suppress
from typing import Sequence

EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""Errors of a call that would succeed at another time: they say nothing of the file."""
_MOST = 1 << 16
"""Where there is no hard limit. A program that the agent runs may close all that it could have."""
_KEPT = 64

_of_login: tuple[int, int] | None = None
_limit = _MOST


def raise_limit() -> None:
    """Raises the soft limit of this process to the hard one."""
    global _of_login, _limit
    _of_login = soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    _limit = _number(soft, resource.RLIM_INFINITY)
    wanted = min(_MOST, _number(hard, resource.RLIM_INFINITY))
    if wanted > _limit:
        with suppress(OSError, ValueError):  # the kernel's own limit has been lowered since
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            _limit = wanted


def _number(limit: int, infinity: int) -> int:
    return _MOST if limit == infinity else limit


def restore_limit() -> None:
    """Restores the login's limit in a process that the agent has forked."""
    if _of_login is not None:
        resource.setrlimit(resource.RLIMIT_NOFILE, _of_login)


def close_others(keep: Sequence[int]) -> None:
    """Closes all descriptors but these."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in keep:
            with suppress(OSError):  # the listing's own descriptor
                os.close(int(name))


def check_for_task(fd: int) -> None:
    """Checks that a task may have this descriptor.

    Raises:
        OSError: it is one of the last.
    """
    if fd >= _limit - min(_KEPT, _limit // 2):
        raise OSError(
            "too many open files: each task takes 3, and the hard limit of this login "
            f"(ulimit -Hn) is {_limit}"
        )
