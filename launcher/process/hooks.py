"""Hooks of a run: programs of this machine that are told of its end and of tasks that stall.

Those of the end run when logs and results are here and the exit code is final. Each has a thread of
its own, so that neither a program that hangs nor the disk that it is on holds up the run; only the
end of the launcher process waits for them, at most their ten seconds.
"""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from ..cluster.file_model import hook_problem
from ..crossing import awaited
from ..frozen import frozen
from ..ids import TaskId
from ..masking import masked_json
from ..run.snapshot import Snapshot
from ..run.views import Views
from ..store.logs import tail_lines
from ..store.stream import plain
from .core import Core

HOOK_SECONDS = 10.0
_PACE = 0.05
_KEPT_BYTES = 4096
"""Bytes that are kept of the end of a hook's output."""
_SHOWN_LINES = 3


@frozen
class HookProgram:
    """Program and arguments of a hook; relative paths start from `base`."""

    argv: Sequence[str]
    base: Path

    def problem(self) -> str:
        """Reason for which the program cannot be run; empty if it can."""
        return hook_problem(self.argv, self.base)

    def run(self, text: bytes, environ: Mapping[str, str], stopped: threading.Event) -> str:
        """Runs it to its end; returns what is to be noted, or nothing. Blocks.

        Args:
            text: goes to its standard input.
            stopped: when set, it is killed before its time.
        """
        if problem := self.problem():  # before a fork that would wait for a disk
            return problem
        try:
            with _file(text) as file:
                process = subprocess.Popen(
                    [os.path.expanduser(self.argv[0]), *self.argv[1:]],
                    stdin=file,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    cwd=self.base if self.base.is_dir() else "/",
                    env=dict(environ),
                    start_new_session=True,
                    bufsize=0,
                )
        except OSError as error:
            return f"{self.argv[0]}: {error.strerror}"
        with process:
            ended, output = _read(process, stopped)
            if not ended:  # its id is nobody else's before it is reaped
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
        said = "; ".join(tail_lines(output)[-_SHOWN_LINES:])
        if ended and process.returncode == 0:
            return said
        if ended:
            how = _exit_text(process.returncode)
        else:
            how = "killed" if stopped.is_set() else f"killed after {HOOK_SECONDS:g} s"
        return f"{self.argv[0]} {how}: {said}" if said else f"{self.argv[0]} {how}"


def _file(text: bytes) -> IO[bytes]:
    """A file without a name that has this text: a program may read it or not."""
    if sys.platform == "linux":
        file = os.fdopen(os.memfd_create("hook"), "w+b")
    else:
        file = tempfile.TemporaryFile()
    file.write(text)
    file.seek(0)
    return file


def _read(process: subprocess.Popen[bytes], stopped: threading.Event) -> tuple[bool, bytes]:
    """Whether a process has ended in time and closed its output, and the last of that.
    `communicate` would keep all of a flood."""
    assert process.stdout is not None
    deadline = time.monotonic() + HOOK_SECONDS
    output, closed, poll = b"", False, select.poll()
    poll.register(process.stdout, select.POLLIN)
    while time.monotonic() < deadline and not stopped.is_set():
        if closed and process.poll() is not None:
            return True, output
        if closed:
            stopped.wait(_PACE)
        elif poll.poll(_PACE * 1000):
            data = process.stdout.read(65536) or b""
            output, closed = (output + data)[-_KEPT_BYTES:], not data
    return False, output


def _exit_text(code: int) -> str:
    if code < 0:
        with suppress(ValueError):
            return f"ended by {signal.Signals(-code).name.removeprefix('SIG')}"
    return f"ended with exit code {code}"


_LATE_SECONDS = 1.0
"""Time beyond a hook's own for its thread to see that it was killed."""
_EXIT_CODES_OF_FAILURE = (1, 3, 4)


_NULL = ("outcome", "exit_code", "first_failure", "verdict", "receipt")
"""Keys that a document always has."""


class HookRunner:
    """Runs the hooks of one run. Everything belongs to the launcher's loop."""

    def __init__(self, core: Core, folder: Path) -> None:
        cluster, plan = core.data.cluster, core.data.plan
        self._core, self._folder = core, folder
        self._commands: dict[str, Sequence[str]] = {
            name.removeprefix("on_"): command
            for name, command in cluster.hooks
            if command is not None
        }
        self._base = cluster.base
        self._secrets = {name for task in plan.tasks for name in task.env_from}
        self._running: set[asyncio.Task[None]] = set()
        self._stopped = threading.Event()
        self._finishing = False

    def begin(self) -> None:
        """Looks for the programs."""
        for event in self._commands:
            self._start(self._check(event))

    def stalled(self, tasks: Collection[TaskId]) -> None:
        """Tells the hook for it that tasks have stalled."""
        if "stall" in self._commands and not self._finishing:
            self._core.gauges.waiting(None)
            self._start(self._run("stall", self._core.data.snapshot(), tasks))

    def stop(self) -> None:
        """Kills the hooks of the run's end, if it has come: nobody waits for them any more."""
        if self._finishing:
            self._stopped.set()

    async def finish(self, final: Snapshot) -> None:
        """Runs the hooks of the run's end and waits for all that are under way."""
        if not self._finishing:
            self._finishing = True
            self._end(final)
        if self._running:
            await asyncio.wait(self._running, timeout=HOOK_SECONDS + _LATE_SECONDS)

    # --- inside ---------------------------------------------------------------------------

    async def _check(self, event: str) -> None:
        """Notes a program that is not there, long before it is needed."""
        if problem := await _in_thread(self._program(event).problem):
            self._core.note(f"hook on_{event}: {problem}; it will not run")

    def _end(self, final: Snapshot) -> None:
        if final.exit_code == 0:
            self._start(self._run("success", final))
        elif final.exit_code in _EXIT_CODES_OF_FAILURE:
            self._start(self._run("failure", final))
        self._start(self._run("end", final))

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name="hook")
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    def _program(self, event: str) -> HookProgram:
        return HookProgram(self._commands[event], self._base)

    async def _run(self, event: str, snapshot: Snapshot, stalled: Collection[TaskId] = ()) -> None:
        if event not in self._commands:
            return
        document = hook_document(event, snapshot, self._folder, time.time(), stalled)
        environ = {name: text for name, text in os.environ.items() if name not in self._secrets}
        environ |= {"TFMUX_EVENT": event, "TFMUX_RUN": snapshot.run_id}
        environ["TFMUX_OUTCOME"] = document["outcome"] or ""
        program = self._program(event)

        def run() -> str:
            text = json.dumps(masked_json(document)).encode() + b"\n"
            return program.run(text, environ, self._stopped)

        said = await _in_thread(run)
        if said:
            self._core.note(f"hook on_{event}: {said}")


def hook_document(
    event: str, snapshot: Snapshot, folder: Path, now: float, stalled: Collection[TaskId] = ()
) -> dict[str, Any]:
    """Standard input of a hook: the record of the run, and beside it those of its receipt and of
    the tasks that have stalled."""
    views = Views.of(snapshot)
    document: dict[str, Any] = {**dict.fromkeys(_NULL), **plain(views.run)}
    document |= {"event": event, "time": now, "folder": str(folder)}
    if views.receipt is not None:
        document["receipt"] = {**plain(views.receipt), "clean": snapshot.clean}
    if event == "stall":
        document["stalled"] = [plain(views.tasks[task]) for task in stalled]
    return document


async def _in_thread(work: Callable[[], str]) -> str:
    """Result of `work`, on a thread that is left behind when it does not come back: the program
    may be on a disk that does not answer."""
    done, settle = awaited(str)

    def run() -> None:
        try:
            text = work()
        except Exception as error:  # a fault of ours must not end the launcher
            text = f"{type(error).__name__}: {error}"
        settle(text)

    try:
        threading.Thread(target=run, name="hook", daemon=True).start()
    except RuntimeError as error:
        return f"this machine starts no more threads ({error})"
    return await done
