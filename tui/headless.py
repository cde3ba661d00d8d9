"""A run without a screen: the merged log or the events on stdout, the rest on stderr.

Lines are read from the log store, not handed over: a stdout that nobody reads blocks this
thread only, never the launcher's.
"""

from __future__ import annotations

import asyncio
import errno
import json
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager, suppress
from importlib import import_module
from types import FrameType
from typing import TextIO

from launcher.api import Run
from launcher.client.run_client import RunClient
from launcher.decision import Decision
from launcher.errors import LauncherError
from launcher.history.following import RunLogs, line_text
from launcher.ids import TaskId
from launcher.printable import pictured, without_escapes
from launcher.quantities import size
from launcher.run.snapshot import AllocationView
from launcher.run.states import RunPhase, TaskState
from launcher.store.stream import PublicEvent
from tui.exits import Exit, exit_code
from tui.job_signals import pass_on_signals
from tui.log.guesses import say_faults
from tui.outcome import NEEDED_LATE, queue_text, receipt_lines, report
from tui.streams import message, write_line, write_some

_PACE = 0.05
_PAUSES, _LONGEST_PAUSE = 4, 1.0
"""Times as long as it takes to look through all logs, and seconds, until that is done again."""
_PROGRESS_SECONDS = 2.0
_RECEIPT_SECONDS = 0.5
_AFTER_KILL_SECONDS = 2.0
_AT_ONCE = 1 << 18
"""Bytes that are written together when there are more."""


def run_headless(
    open_run: Callable[[Callable[[RunClient], None]], AbstractAsyncContextManager[Run]],
    *,
    as_json: bool,
    quiet_remarks: bool = False,
) -> int:
    """Follows a run until it has ended; returns the exit code. `open_run` is given what takes the
    run's client, to which signals go. `quiet_remarks` leaves remarks of TensorFlow and its like out
    of the merged log; JSON has every line.

    Modules that say how it ends are imported before the run is launched: at its end, days later, an
    upgrade may have replaced them. The launcher process begins meanwhile, and takes longer.
    """
    for name in NEEDED_LATE:
        import_module(name)
    signals = _SignalRequests()
    return asyncio.run(_follow(open_run(signals.hand_to), as_json, quiet_remarks))


async def _follow(
    opening: AbstractAsyncContextManager[Run], as_json: bool, quiet_remarks: bool
) -> int:
    async with opening as run:
        out = _Output(run, as_json, quiet_remarks)
        with suppress(LauncherError):  # the report says it first
            await _print(run, out)
        out.print_rest()
        out.print_left_out()
        out.print_lost()
        snapshot, detached = run.snapshot(), run.client.detached
        doubt = run.client.doubt() if detached else ""
        write_line(report(snapshot, run.folder, detached=detached, doubt=doubt))
        say_faults()
        return exit_code(snapshot.exit_code, detached=detached, doubt=doubt)


async def _print(run: Run, out: _Output) -> None:
    """Prints events, and log lines as they come, until the run has ended."""
    events, told = run.events(), False
    coming = asyncio.ensure_future(anext(events, None))
    due = 0.0
    while True:
        told = told or _print_receipt(run)
        if (began := time.monotonic()) >= due:  # not for each of the events of thousands of tasks
            out.logs()
            took = time.monotonic() - began
            due = began + took + min(max(_PACE, _PAUSES * took), _LONGEST_PAUSE)
        await asyncio.wait([coming], timeout=max(0.0, due - time.monotonic()))
        if not coming.done():
            continue
        if (event := coming.result()) is None:
            return
        out.record(event)
        coming = asyncio.ensure_future(anext(events, None))


class _Output:
    """Prints records and log lines in the form that was asked for."""

    def __init__(self, run: Run, as_json: bool, quiet_remarks: bool = False) -> None:
        self._json = as_json
        self._quiet = quiet_remarks and not as_json
        self._left_out: dict[TaskId, Counter[str]] = {}
        """How many remarks of which source were left out, and not told of yet."""
        self._stdout: TextIO | None = sys.stdout
        self._unwritten = bytearray()
        self._cut = b""
        """The rest of a line of which a part was written before an error."""
        self._lost = 0
        """Lines that were left out after an error."""
        self._said_lost = False
        self._terminal = sys.stdout.isatty()
        self._pictures = self._terminal and not as_json
        self._run = run
        self._tasks: dict[str, str] = {}
        """The last message about each task."""
        self._hosts: dict[str, tuple[str, str]] = {}
        self._told: dict[str, tuple[float, str]] = {}
        """When was said last how far a host's files are, and what."""
        self._queued = ""
        tasks = {view.id: view.host for view in run.snapshot().tasks}
        self._logs = RunLogs(run.folder, tasks, from_end=run.attached)

    def logs(self, *, last: bool = False) -> bool:
        """Prints what has come; True when there may be more."""
        self._lines(self._logs.read(last=last))
        return last and self._logs.behind

    def print_rest(self) -> None:
        """Prints what is left when the run has ended; after a kill for two seconds: who has pressed
        Ctrl-C does not wait for what a flood has left behind."""
        killed = self._run.snapshot().exit_code in (Exit.KILLED, Exit.TERMINATED)
        until = time.monotonic() + _AFTER_KILL_SECONDS
        while self.logs(last=True):
            if killed and time.monotonic() > until:
                message(
                    f"{size(self._logs.left)} of logs were not printed after the kill;"
                    f" tfmux logs {self._run.id} prints them"
                )
                return

    def print_left_out(self, task: TaskId | None = None) -> None:
        """Prints how many lines of a task, or of all, were left out."""
        for name in [task] if task else list(self._left_out):
            if sources := self._left_out.pop(name, None):
                from tui.log.remarks import count_text

                message(f"{name}: {count_text(sources.total(), sources)} left out")

    def record(self, record: PublicEvent) -> None:
        """Prints an event: on stdout as JSON, or in words on stderr."""
        if self._json:
            self._write(json.dumps(record, ensure_ascii=True))
            self._flush()
        elif record["event"] == "task" and record["attempt"]:
            pid = f" pid {record['pid']}" if "pid" in record else ""
            reason = f": {record['reason']}" if record.get("reason") else ""
            text = f"{record['task']} on {record['host']} {record['state']}{pid}{reason}"
            if self._tasks.get(record["task"]) == text:
                return
            self._tasks[record["task"]] = text
            message(text)
            if self._quiet and TaskState(record["state"]).ended:
                task = TaskId.parse(record["task"])
                while lines := list(self._logs.read(task)):
                    self._lines(lines)
                self.print_left_out(task)
        elif record["event"] == "host" and record["state"] != "connecting":
            self._host(record)
        elif record["event"] == "note":
            message(record["note"])
        elif record["event"] == "run" and record["state"] == RunPhase.QUEUED:
            self._queue(record)

    def _queue(self, record: PublicEvent) -> None:
        """Prints the state of the request for nodes in its engine's queue."""
        since = self._run.snapshot().started or record["time"]
        text = queue_text(AllocationView(**record["allocation"]), since, record["time"])
        if text != self._queued:
            message(text)
        self._queued = text

    def _host(self, record: PublicEvent) -> None:
        """A host's state when it is another one, and every two seconds how far its files are."""
        host, state = record["host"], (record["state"], record["reason"])
        if self._hosts.get(host) != state:
            self._hosts[host] = state
            reason = f": {record['reason']}" if record["reason"] else ""
            message(f"{host} {record['state']}{reason}")
            return
        if record.get("collected_total"):
            done, total = size(record.get("collected_bytes", 0)), size(record["collected_total"])
            text = f"{host}: {done} of {total} of results fetched"
        elif record.get("staged_total"):
            done, total = size(record.get("staged_bytes", 0)), size(record["staged_total"])
            files = f"{record.get('staged_files', 0)} of {record['staged_total_files']} files"
            text = f"{host}: {done} of {total}, {files} are there"
        else:
            return
        when, before = self._told.get(host, (0.0, ""))
        if text != before and record["time"] - when >= _PROGRESS_SECONDS:
            self._told[host] = (record["time"], text)
            message(text)

    def _lines(self, lines: Iterable[tuple[TaskId, bytes]]) -> None:
        if self._quiet:
            from tui.log.remarks import remark_source
        for task, line in lines:
            if self._json:
                self._write(json.dumps(self._logs.event(task, line)))
            elif self._quiet and (source := remark_source(line)):
                self._left_out.setdefault(task, Counter())[source] += 1
            else:
                self._write(f"{task} | {display_line(line, pictures=self._pictures)}")
            if len(self._unwritten) > _AT_ONCE:
                self._flush()
        self._flush()

    def _write(self, line: str) -> None:
        if self._stdout is not None:
            self._unwritten += f"{line}\n".encode(self._stdout.encoding, "backslashreplace")

    def _flush(self) -> None:
        # Not by `sys.stdout.write`: Python's buffer loses the rest of a long line when a signal
        # comes while a pipe takes a part of it.
        data, self._unwritten = self._cut + self._unwritten, bytearray()
        written = 0
        try:
            while written < len(data) and self._stdout is not None:
                written += write_some(self._stdout.fileno(), memoryview(data)[written:])
            self._cut = b""
        except BrokenPipeError:  # `tfmux up … | head`: whoever read has gone, as on TERM
            self._stdout = None
            message("stdout was closed; ending the run")
            self._run.client.kill_all(by_person=False)
        except OSError as error:
            if error.errno == errno.EIO and self._terminal:
                self._stdout = None
                message("the terminal was closed")  # SIGHUP may come later, or never
                self._run.client.hang_up()
            else:
                self._leave_out(data, written, error)

    def _leave_out(self, data: bytes, written: int, error: OSError) -> None:
        """Leaves out what cannot be written, as on a full disk: this is a copy, on which the run
        does not depend. What comes next is tried again; the rest of a line of which a part has
        been written comes first then, so that all lines are whole."""
        end = written
        if written < len(self._cut) or data[:written][-1:] not in (b"", b"\n"):
            end = data.index(b"\n", written) + 1
        self._cut = data[written:end]
        if not self._said_lost:
            self._said_lost = True
            message(
                f"stdout: {error.strerror}: lines are left out there; the run does not depend on"
                f" it, and all lines are in {self._run.folder}"
            )
        self._lost += data.count(b"\n", end)

    def print_lost(self) -> None:
        """Says how many lines stdout lacks."""
        if lost := self._lost + bool(self._cut):
            message(
                f"{lost:,} line{'s' * (lost > 1)} could not be written to stdout; all lines are in"
                f" {self._run.folder}"
            )


def display_line(line: bytes, *, pictures: bool) -> str:
    """A line of a log for stdout, as a pane shows it but for colours: for a terminal with pictures
    of what it would act on, for a program without those characters."""
    text = line_text(line)
    return pictured(text) if pictures else without_escapes(text)


def _print_receipt(run: Run) -> bool:
    """The receipt at once, where a disk or results hold up the end of the launcher."""
    snapshot = run.snapshot()
    if snapshot.receipt is None or snapshot.ended is None:
        return False
    if time.time() - snapshot.ended < _RECEIPT_SECONDS:
        return False
    for line in receipt_lines(snapshot):
        message(line)
    return True


class _SignalRequests:
    """Signals that ask something of a run, kept until there is one. Those that come within a second
    of one that was acted on are the same decision."""

    def __init__(self) -> None:
        self._client: RunClient | None = None
        self._asked: list[Callable[[RunClient], None]] = []
        self._decision = Decision()
        signal.signal(signal.SIGINT, self._asking(RunClient.interrupt))
        signal.signal(signal.SIGTERM, self._asking(RunClient.terminate))
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # under nohup it is
            signal.signal(signal.SIGHUP, self._asking(RunClient.hang_up))
        pass_on_signals(lambda: self._client)

    def hand_to(self, client: RunClient) -> None:
        """Carries out what has been asked for, and from now on whatever is."""
        self._client = client
        for what in self._asked:
            what(client)

    def _asking(self, what: Callable[[RunClient], None]) -> Callable[[int, FrameType | None], None]:
        def ask(number: int, frame: FrameType | None) -> None:
            if not self._decision.is_new():
                return
            if self._client is None:
                self._asked.append(what)
            else:
                what(self._client)

        return ask
