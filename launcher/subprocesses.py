"""Programs and threads that the launcher runs on its own machine."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import shutil
import signal
import sys
import time
from asyncio.subprocess import Process
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, ParamSpec, TypeVar

_END_SECONDS = 1.0
_LOOK = 0.005
_login_limit: tuple[int, int] | None = None
"""Limit of open files for the programs; None where it is this process's."""


def raise_limit(needed: int) -> None:
    """Raises the soft limit of open files of this process where it needs more; 1,024 is usual.
    Programs that it starts keep the login's: tasks of this machine inherit it."""
    global _login_limit
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY:
        needed = min(needed, hard)
    if soft != resource.RLIM_INFINITY and soft < needed:
        with suppress(OSError, ValueError):  # macOS has a limit below the hard one
            resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
            _login_limit = _login_limit or (soft, hard)


_P = ParamSpec("_P")
_T = TypeVar("_T")


class Workers(ThreadPoolExecutor):
    """Threads of an event loop. Where the machine gives no more of them, that is an `OSError` of
    who needs one, as a full disk is, and no fault of the program."""

    def submit(self, fn: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> Future[_T]:
        """Has a thread do some work.

        Raises:
            OSError: no thread can be started for it.
        """
        try:
            return super().submit(fn, *args, **kwargs)
        except RuntimeError as error:
            raise OSError(errno.EAGAIN, f"this machine starts no more threads ({error})") from error


async def wait_ended(process: Process, output: asyncio.Future[Any]) -> None:
    """Waits until a program has ended and `output` is read to its end; what others have that hold
    it open is waited for no more than a second."""
    # Its `wait` waits for whoever holds the output open.
    while process.returncode is None:  # noqa: ASYNC110
        await asyncio.sleep(_LOOK)
    await asyncio.wait([output], timeout=_END_SECONDS)


async def end_session(process: Process) -> None:
    """Kills a program that has not ended, and what it has started in its session, and lets go of
    its pipes. One that waits for a disk does not end: it is left."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        deadline = time.monotonic() + _END_SECONDS
        while process.returncode is None and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(_LOOK)
    let_go(process)


def let_go(process: Process) -> None:
    """Closes the pipes of a program, and kills it if it has not ended. The public way waits for
    the end of its output, which others may hold open for ever."""
    process._transport.close()  # type: ignore[attr-defined]


async def start_session(*argv: str, **options: Any) -> Process:
    """Starts a program in a session of its own; `options` are those of `create_subprocess_exec`.
    Its limit of open files is the login's a moment later: before it reads what is sent to it.

    Whoever is cancelled meanwhile leaves nothing of the session: asyncio would kill the program
    alone, and wait without end for what that has started, which holds the pipes.

    Raises:
        FileNotFoundError: there is no such program, or its interpreter is missing. Also where the
            system says that it may not look: into a folder of PATH, for a program that is in none.
        OSError: it cannot be started.
    """
    starting = asyncio.ensure_future(
        asyncio.create_subprocess_exec(*argv, start_new_session=True, **options)
    )
    try:
        process = await asyncio.shield(starting)
        if sys.platform == "linux" and _login_limit is not None:
            with suppress(OSError):  # it has ended already
                resource.prlimit(process.pid, resource.RLIMIT_NOFILE, _login_limit)
        return process
    except PermissionError as error:
        if "/" not in argv[0] and shutil.which(argv[0], os.F_OK) is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), argv[0]) from error
        raise
    except asyncio.CancelledError:
        with suppress(OSError, TimeoutError):
            process = await starting
            os.killpg(process.pid, signal.SIGKILL)
            await end_session(process)
        raise
