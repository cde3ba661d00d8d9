"""Hooks of a run: programs of this machine that are told of its end and of tasks that stall.

Those of the end run when logs and results are here and the exit code is final. Each has a thread of
its own, so that neither a program that hangs nor the disk that it is on holds up the run; only the
end of the launcher process waits for them, at most their ten seconds.
"""

from __future__ import annotations

import asyncio
import json
import os
import selectors
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO, Any, NotRequired, TypedDict

from pydantic import TypeAdapter

from ..cluster.file_model import ClusterModel, hook_problem
from ..frozen import frozen
from ..ids import TaskId
from ..plan.planner import Plan
from ..run.cause import Verdict
from ..run.snapshot import Failure, HangView, Metric, Snapshot, TaskView
from ..run.states import Hang, Outcome, TaskState
from ..store.logs import tail_lines
from ..store.metrics import RECENT, stalled_for
from ..store.stream import Line

HOOK_SECONDS = 10.0
_PACE = 0.05
_KEPT_BYTES = 4096
"""Of the end of what a hook prints."""
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
            process = subprocess.Popen(
                [os.path.expanduser(self.argv[0]), *self.argv[1:]],
                stdin=subprocess.PIPE,
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
            ended, output = _converse(process, text, stopped)
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


def _converse(
    process: subprocess.Popen[bytes], text: bytes, stopped: threading.Event
) -> tuple[bool, bytes]:
    """Feeds a process and reads it: whether it has ended in time and closed its output, and the
    last of that."""
    assert process.stdin is not None and process.stdout is not None
    deadline = time.monotonic() + HOOK_SECONDS
    output, unsent = b"", memoryview(text)
    with selectors.DefaultSelector() as selector:
        for stream, event in ((process.stdin, "w"), (process.stdout, "r")):
            os.set_blocking(stream.fileno(), False)
            what = selectors.EVENT_WRITE if event == "w" else selectors.EVENT_READ
            selector.register(stream, what)
        while time.monotonic() < deadline and not stopped.is_set():
            for key, _ in selector.select(_PACE):
                stream = process.stdin if key.fileobj is process.stdin else process.stdout
                if stream is process.stdin:
                    unsent = unsent[_write(stream, unsent) :]
                    over = not unsent
                else:
                    data = _read(stream)
                    output, over = (output + data)[-_KEPT_BYTES:], not data
                if over:
                    selector.unregister(stream)
                    stream.close()
            if process.stdout.closed and process.poll() is not None:
                return True, output
            if process.stdout.closed:
                stopped.wait(_PACE)
    return False, output


def _write(stream: IO[bytes], data: memoryview) -> int:
    """Number of the bytes that need not be written any more."""
    try:
        return stream.write(data[:65536]) or 0
    except BrokenPipeError:  # it does not read its input
        return len(data)


def _read(stream: IO[bytes]) -> bytes:
    return stream.read(65536) or b""


def _exit_text(code: int) -> str:
    if code < 0:
        with suppress(ValueError):
            return f"ended by {signal.Signals(-code).name.removeprefix('SIG')}"
    return f"ended with exit code {code}"


@cache  # most runs have no hooks
def _failure_type() -> TypeAdapter[Failure]:
    return TypeAdapter(Failure)


@cache
def _verdict_type() -> TypeAdapter[Verdict]:
    return TypeAdapter(Verdict)


_TICK = 1.0
_LATE_SECONDS = 1.0
"""Time beyond a hook's own for its thread to see that it was killed."""
_EXIT_CODES_OF_FAILURE = (1, 3, 4)


class StalledTask(TypedDict):
    """A task whose next metric line is overdue."""

    task: str
    host: str
    seconds: float
    """Since its last metric line."""


class ReceiptSummary(TypedDict):
    """The receipt of a run in short; the whole is in `events.jsonl`."""

    clean: bool
    survivors: int
    unconfirmed: list[str]
    """Hosts that could not confirm that nothing is left."""


class HookEvent(TypedDict):
    """Standard input of a hook: one JSON object."""

    event: str
    """`success`, `failure`, `end` or `stall`."""
    time: float
    run: str
    name: str
    """The cluster's."""
    folder: str
    """The run's folder on this machine, with `events.jsonl` and the logs."""
    outcome: str | None
    """`success`, `failed`, `preflight`, `killed` or `terminated`; null while the run goes on."""
    exit_code: int | None
    attempt: int
    """Number of the start of all tasks."""
    first_failure: dict[str, Any] | None
    """As in the record of the run."""
    verdict: dict[str, Any] | None
    """Which task is guilty of the failure, and why, as in the record of the run."""
    receipt: ReceiptSummary | None
    stalled: NotRequired[list[StalledTask]]
    """With `stall`."""
    stacks: NotRequired[str]
    """With `stall`: who stands where, in a sentence; absent where no task has answered."""
    stacks_file: NotRequired[str]
    """With `stacks`: the file of the run's folder that has all of them."""


class HookRunner:
    """Runs the hooks of one run. Everything belongs to the launcher's loop."""

    def __init__(
        self,
        cluster: ClusterModel,
        plan: Plan,
        folder: Path,
        snapshot: Callable[[], Snapshot | None],
        note: Callable[[str], None],
        look: Callable[[Hang, Collection[TaskId]], Awaitable[HangView | None]] | None = None,
    ) -> None:
        """`note` gets what a hook printed, and why it failed; `look` finds out where the tasks
        stand when some have stalled."""
        self._commands: dict[str, Sequence[str]] = {
            name.removeprefix("on_"): command
            for name, command in cluster.hooks
            if command is not None
        }
        self._base = cluster.base
        self._secrets = {name for task in plan.tasks for name in task.env_from}
        self._folder = folder
        self._snapshot = snapshot
        self._note = note
        self._look = look
        self._running: set[asyncio.Task[None]] = set()
        self._watching: asyncio.Task[None] | None = None
        self._stopped = threading.Event()
        self._times: dict[str, deque[float]] = {}
        """Times of the last metric lines of each live task."""
        self._heard: dict[str, float] = {}
        """When the last one came, on a clock that nobody sets: that of the times may be set, or go
        on while the machine is asleep."""
        self._hosts: dict[str, str] = {}
        self._stalled: set[str] = set()
        """Tasks that have been told of, and have written no metric line since."""
        self._finishing = False

    def begin(self) -> None:
        """Looks for the programs, and watches for stalls."""
        for event in self._commands:
            self._start(self._check(event))
        if "stall" in self._commands or self._look is not None:
            self._watching = asyncio.create_task(self._watch(), name="stalls")

    def observe(self, line: Line) -> None:
        """Takes a record; returns at once."""
        if "stall" not in self._commands and self._look is None:
            return
        if isinstance(line, Metric):
            self._on_metric(line)
        elif isinstance(line, TaskView):
            self._on_task(line)

    def stalls(self, now: float) -> list[StalledTask]:
        """The tasks that have stalled since this was asked last; `now` is on the clock that nobody
        sets."""
        found: list[StalledTask] = []
        for task, times in self._times.items():
            late = stalled_for(list(times), times[-1] + now - self._heard[task])
            if late is not None and task not in self._stalled:
                self._stalled.add(task)
                found.append({"task": task, "host": self._hosts[task], "seconds": round(late, 1)})
        return found

    def stop(self) -> None:
        """Kills the hooks of the run's end: nobody waits for them any more."""
        if self._finishing:
            self._stopped.set()

    async def finish(self, final: Snapshot) -> None:
        """Runs the hooks of the run's end and waits for all that are under way."""
        if self._watching is not None:
            self._watching.cancel()
        if not self._finishing:
            self._finishing = True
            self._end(final)
        if self._running:
            await asyncio.wait(self._running, timeout=HOOK_SECONDS + _LATE_SECONDS)

    # --- inside ---------------------------------------------------------------------------

    def _on_metric(self, metric: Metric) -> None:
        task = str(metric.id)
        self._heard[task] = time.monotonic()
        self._times.setdefault(task, deque(maxlen=RECENT)).append(metric.time)
        self._hosts[task] = metric.host
        self._stalled.discard(task)

    def _on_task(self, view: TaskView) -> None:
        if not view.state.live or view.state is TaskState.STARTING:
            self._times.pop(str(view.id), None)
            self._stalled.discard(str(view.id))

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_TICK)
            if stalled := self.stalls(time.monotonic()):
                about = [TaskId.parse(one["task"]) for one in stalled]
                hang = await self._look(Hang.STALLED, about) if self._look is not None else None
                snapshot = self._snapshot()
                if snapshot is not None:
                    run = self._run("stall", snapshot, stalled, hang)
                    await asyncio.wait([self._start(run)])

    async def _check(self, event: str) -> None:
        """Notes a program that is not there, long before it is needed."""
        if problem := await _in_thread(self._program(event).problem):
            self._note(f"hook on_{event}: {problem}; it will not run")

    def _end(self, final: Snapshot) -> None:
        if final.outcome is Outcome.DETACHED:
            return  # the launcher that has taken the run over tells of its end
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

    async def _run(
        self,
        event: str,
        snapshot: Snapshot,
        stalled: list[StalledTask] | None = None,
        hang: HangView | None = None,
    ) -> None:
        if event not in self._commands:
            return
        document = hook_event(event, snapshot, self._folder, time.time())
        if stalled is not None:
            document["stalled"] = stalled
        if hang is not None:
            document["stacks"] = hang.text
            document["stacks_file"] = hang.file
        environ = {name: text for name, text in os.environ.items() if name not in self._secrets}
        environ |= {"TFMUX_EVENT": event, "TFMUX_RUN": snapshot.run_id}
        environ["TFMUX_OUTCOME"] = document["outcome"] or ""
        program, text = self._program(event), json.dumps(document).encode() + b"\n"
        said = await _in_thread(lambda: program.run(text, environ, self._stopped))
        if said:
            self._note(f"hook on_{event}: {said}")


def hook_event(event: str, snapshot: Snapshot, folder: Path, now: float) -> HookEvent:
    """Event of a run for a hook, as JSON."""
    receipt, failure = snapshot.receipt, snapshot.first_failure
    summary: ReceiptSummary | None = None
    if receipt is not None:
        summary = {
            "clean": snapshot.clean,
            "survivors": sum(host.left for host in receipt.hosts),
            "unconfirmed": [host.host for host in receipt.hosts if not host.confirmed],
        }
    return {
        "event": event,
        "time": now,
        "run": snapshot.run_id,
        "name": snapshot.name,
        "folder": str(folder),
        "outcome": None if snapshot.outcome is None else str(snapshot.outcome),
        "exit_code": snapshot.exit_code,
        "attempt": snapshot.attempt,
        "first_failure": None
        if failure is None
        else _failure_type().dump_python(failure, mode="json"),
        "verdict": None
        if snapshot.verdict is None
        else _verdict_type().dump_python(snapshot.verdict, mode="json"),
        "receipt": summary,
    }


async def _in_thread(work: Callable[[], str]) -> str:
    """Result of `work`, on a thread that is left behind when it does not come back: the program
    may be on a disk that does not answer."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[str] = loop.create_future()

    def run() -> None:
        try:
            text = work()
        except Exception as error:  # a fault of ours must not end the launcher
            text = f"{type(error).__name__}: {error}"

        def settle() -> None:
            if not done.done():
                done.set_result(text)

        try:
            loop.call_soon_threadsafe(settle)
        except RuntimeError:
            return  # the loop has ended

    try:
        threading.Thread(target=run, name="hook", daemon=True).start()
    except RuntimeError as error:
        return f"this machine starts no more threads ({error})"
    return await done
