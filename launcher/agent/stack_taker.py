"""Stacks of tasks: where each of their processes stands now.

Three ways, the best that a process allows:

    python   the interpreter of a task that the launcher has prepared (`on_host/stacks`) writes its
             stacks into a file in memory when it gets `SIGNAL`
    py-spy   the host has it, and ptrace allows
    proc     state and kernel function of each thread, and open files, from `/proc`

A process that does not catch the signal would die of it, so it is sent only to one that has the
file under its number and catches the signal now; a stopped process, or one that blocks the signal,
gets none. All of this is done in a thread of its own and for a limited time: a process that the
kernel holds must not hold up the agent's loop.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Iterable, Mapping, NamedTuple, Tuple

from .processes import Process, command_lines, environ_of, printable, send_to_thread
from .threads import start_thread
from .wire import (
    MOST_FRAMES,
    MOST_PROCESSES,
    MOST_THREADS,
    STACK_SECONDS,
    TASK_NAME,
    Json,
)

if TYPE_CHECKING:
    import threading

    from .channel import Channel

SIGNAL = int(getattr(signal, "SIGRTMAX", 64)) - 7
NUMBERS = (987, 487, 237, 117)
"""Descriptors under which an interpreter has its file; `on_host/stacks` has the same."""
_FILE = "/memfd:tfmux-stacks (deleted)"
_LAST_SECONDS = 0.3
_POLL = 0.01
_MOST_SPIES = 16
_MOST_FILES = 16
_MOST_BYTES = 192 * 1024
"""Bytes of an answer: a receipt may have to wait behind it."""
_MOST_DUMP = 256 * 1024
_LONGEST = 300

Frame = Tuple[str, str, int]
"""Function, file, line; of a thread that `/proc` describes a sentence, no file and 0."""
Stack = Tuple[Frame, ...]
Thread = Tuple[str, Stack]
"""A thread's name, and its frames, the innermost first."""


class ProcessReport:
    """What has been found of one process; a thread fills it in."""

    def __init__(self, process: Process, task: str) -> None:
        self.process = process
        self.task = task
        self.command = ""
        self.way = "proc"
        self.state = ""
        """What its first thread does, as `/proc` says."""
        self.note = ""
        """Why there is no better description."""
        self.threads: list[Thread] = []
        self.files: list[str] = []
        self.rank: int | None = None
        """Its rank, as its environment says."""


class StackTaker:
    """Answers the launcher's questions for stacks, one at a time."""

    def __init__(self) -> None:
        self._working: threading.Thread | None = None

    def answer(
        self, channel: Channel, ident: object, members: Mapping[int, tuple[Process, str]]
    ) -> None:
        """Looks at these processes, and answers within a limited time with what was found."""
        working = self._working
        if working is not None and working.is_alive():
            channel.refuse(ident, "the previous request for stacks has not finished")
            return
        reports, unlisted = chosen(members)
        until = time.monotonic() + STACK_SECONDS
        try:
            self._working = start_thread(lambda: take(reports, until), "stacks")
        except OSError as error:
            channel.refuse(ident, str(error))
            return
        thread = self._working

        def wait() -> Json:
            thread.join(STACK_SECONDS + _LAST_SECONDS)
            return packed(reports, unlisted)

        channel.answer_in_thread(ident, wait)


def chosen(members: Mapping[int, tuple[Process, str]]) -> tuple[list[ProcessReport], int]:
    """The processes to look at, those of a task from its first one on, and how many are left out:
    each task has its share."""
    depths: dict[int, int] = {}

    def depth(pid: int) -> int:
        path = []
        while pid in members and pid not in depths and pid not in path:
            path.append(pid)
            pid = members[pid][0].ppid
        found = depths.get(pid, -1)
        for one in reversed(path):
            found += 1
            depths[one] = found
        return found

    tasks: dict[str, list[Process]] = {}
    for process, task in members.values():
        if TASK_NAME.fullmatch(task):
            tasks.setdefault(task, []).append(process)
    share = max(1, MOST_PROCESSES // max(1, len(tasks)))
    reports: list[ProcessReport] = []
    unlisted = 0
    for task, processes in tasks.items():
        processes.sort(key=lambda process: (depth(process.pid), process.start, process.pid))
        room = min(share, MOST_PROCESSES - len(reports))
        reports += [ProcessReport(process, task) for process in processes[:room]]
        unlisted += max(0, len(processes) - room)
    return reports, unlisted


def take(reports: list[ProcessReport], until: float) -> None:
    """Fills in what each process does: first what hardly takes time, so that there is something to
    tell of each however long the rest takes."""
    for report in reports:
        _look(report)
    _ask_interpreters(reports, until)
    _ask_py_spy([report for report in reports if report.way == "proc"], until)
    for report in reports:
        report.rank = rank_in(environ_of(report.process.pid))
    lines = command_lines([report.process for report in reports])
    for report, line in zip(reports, lines):
        report.command = line[:_LONGEST]


_RANK = re.compile(rb"(?:^|\0)(?:RANK|OMPI_COMM_WORLD_RANK|PMI_RANK)=(\d{1,6})\0")


def rank_in(environ: bytes) -> int | None:
    """The rank that torchrun, DeepSpeed's launcher or an MPI has given a process."""
    found = _RANK.search(environ)
    return None if found is None else int(found[1])


# --- the interpreter's own word -----------------------------------------------------------


class _SignalState(NamedTuple):
    """Lines of `/proc/PID/task/TID/status` about `SIGNAL`."""

    caught: bool
    blocked: bool
    pending: bool


def _signals(pid: int, tid: int) -> _SignalState | None:
    fields = {}
    try:
        with open(f"/proc/{pid}/task/{tid}/status", "rb") as file:
            for line in file.read().splitlines():
                name, _, value = line.partition(b":")
                if name in (b"SigCgt", b"SigBlk", b"SigPnd", b"ShdPnd"):
                    fields[name] = int(value, 16) >> (SIGNAL - 1) & 1
        pending = fields[b"SigPnd"] or fields[b"ShdPnd"]
        return _SignalState(bool(fields[b"SigCgt"]), bool(fields[b"SigBlk"]), bool(pending))
    except (OSError, KeyError, ValueError):
        return None


class _Dump:
    """One interpreter that is asked for its stacks."""

    def __init__(self, report: ProcessReport, fd: int) -> None:
        self.report = report
        self.fd = fd
        self.key = os.fstat(fd).st_ino
        """Processes that were forked from each other share one file, and are asked in turn."""
        self._begin = 0
        self._thread = report.process.pid
        """The thread that gets the signal."""
        self._blocked: dict[int, bool] = {}
        self._idle = 0

    def begin(self) -> bool:
        """Sends the signal; False where that must not be, or makes no sense, and why."""
        process = self.report.process
        looks = {tid: _signals(process.pid, tid) for tid in _threads(process.pid)}
        first = looks.get(process.pid)
        if first is None:
            self.report.note = "it has just ended"
        elif self.report.state == "is stopped":
            self.report.note = f"kill -CONT {process.pid} continues it; or restart the task"
        elif self.report.state.startswith("is stopped"):
            self.report.note = "a stopped process answers no signal"
        elif not first.caught:
            self.report.note = "the program no longer catches the signal"
        elif any(look.pending for look in looks.values() if look):
            self.report.note = "the signal of an earlier request is still pending"
        elif all(look is None or look.blocked for look in looks.values()):
            self.report.note = "the program blocks the signal"
        else:
            self._blocked = {tid: look.blocked for tid, look in looks.items() if look}
            self._begin = os.fstat(self.fd).st_size
            free = [tid for tid, off in self._blocked.items() if not off]
            self._thread = _best_thread(process.pid, free)
            if self._thread:
                return send_to_thread(process, self._thread, SIGNAL)
            self.report.note = "it waits for a signal, and would mistake this one for it"
        return False

    def done(self) -> bool:
        """The handler has run to its end: the signal does not wait any more, and no thread blocks
        it as it does while its handler runs."""
        pid = self.report.process.pid
        asked = _signals(pid, self._thread)
        if asked is None:
            return True
        if asked.pending:  # on a busy host the thread may not have had its turn yet
            return False
        for tid in _threads(pid):
            look = _signals(pid, tid)
            if look is not None and look.blocked and not self._blocked.get(tid, False):
                return False
        self._idle += 1
        return os.fstat(self.fd).st_size > self._begin or self._idle > 2

    def read(self) -> None:
        """Takes what the interpreter has written."""
        size = os.fstat(self.fd).st_size - self._begin
        text = os.pread(self.fd, min(_MOST_DUMP, max(0, size)), self._begin)
        threads = parse_faulthandler(text.decode(errors="replace"))
        os.ftruncate(self.fd, 0)
        if threads:
            self.report.threads, self.report.way = threads, "python"
        else:
            self.report.note = "the program handles the signal in its own way"


_FOR_SIGNALS = ("pause", "sigsuspend", "sigtimedwait")
_SLEEPS = ("nanosleep",)
_TIMED = ("poll", "select")


def _best_thread(pid: int, tids: Iterable[int]) -> int:
    """The thread on which the handler disturbs least, the first one where that is all the same; 0
    where each waits for a signal. The kernel restarts most system calls after the handler; it ends
    sleeps and waits that have a time limit, which the interpreter itself begins again, and C code
    should."""
    ranks = []
    for tid in tids:
        where = _kernel_function(f"/proc/{pid}/task/{tid}")
        if not any(name in where for name in _FOR_SIGNALS):
            sleeps, timed = (any(map(where.__contains__, names)) for names in (_SLEEPS, _TIMED))
            ranks.append((3 if sleeps else 2 if timed else int(not where), tid != pid, tid))
    return min(ranks, default=(0, False, 0))[2]


def _ask_interpreters(reports: Iterable[ProcessReport], until: float) -> None:
    waiting = [dump for dump in map(_dump, reports) if dump is not None]
    under_way: dict[int, _Dump] = {}
    try:
        while waiting or under_way:
            for dump in list(waiting):
                if dump.key not in under_way:
                    waiting.remove(dump)
                    if dump.begin():
                        under_way[dump.key] = dump
                    else:
                        os.close(dump.fd)
            for key, dump in list(under_way.items()):
                if dump.done():
                    del under_way[key]
                    dump.read()
                    os.close(dump.fd)
            if time.monotonic() > until:
                return
            if under_way:
                time.sleep(_POLL)
    finally:
        for dump in (*under_way.values(), *waiting):
            dump.report.note = f"it did not answer within {STACK_SECONDS:g} s"
            os.close(dump.fd)


def _dump(report: ProcessReport) -> _Dump | None:
    pid = report.process.pid
    for number in NUMBERS:
        path = f"/proc/{pid}/fd/{number}"
        try:
            if os.readlink(path) == _FILE:
                return _Dump(report, os.open(path, os.O_RDWR | os.O_CLOEXEC))
        except OSError:  # no such descriptor, or none that we may see
            continue
    return None


_THREAD_LINE = re.compile(r"(?:Current thread|Thread) (0x[0-9a-fA-F]+)(?: \[(.*)\])? .*:$")
_FRAME_LINE = re.compile(r'  File "(.*)", line (\d{1,9}|\?\?\?) in (.*)$')


def parse_faulthandler(text: str) -> list[Thread]:
    """The threads of a traceback of `faulthandler`, which begins with the newest: first the main
    thread, which is the oldest. Of more than a hundred threads that is not among them."""
    threads: list[tuple[str, list[Frame]]] = []
    whole = True
    for line in text.splitlines():
        if head := _THREAD_LINE.match(line):
            threads.append((_short(head[2] or head[1]), []))
        elif threads and (frame := _FRAME_LINE.match(line)):
            number = int(frame[2]) if frame[2].isdigit() else 0
            threads[-1][1].append((_short(frame[3]), _short(frame[1]), number))
        elif line == "...":
            whole = False
    if threads and whole:
        threads[-1] = ("main", threads[-1][1])
    return [(name, tuple(frames[:MOST_FRAMES])) for name, frames in reversed(threads)]


def _short(text: str) -> str:
    """The end of a text, which says most where it is a path."""
    shown = printable(text[-_LONGEST:].encode(errors="replace"))
    return shown if len(text) <= _LONGEST else f"…{shown[1:]}"


# --- py-spy -------------------------------------------------------------------------------


def _ask_py_spy(reports: list[ProcessReport], until: float) -> None:
    """Asks `py-spy` about interpreters that have not answered, where it is there. It is not to stop
    a process while it looks."""
    pythons = [report for report in reports if _is_python(report.process.pid)][:_MOST_SPIES]
    program = _py_spy() if pythons else None
    if program is None:
        return
    from .asked import AskedProgram  # here and not above: most hosts do not have it

    running = []
    for report in pythons:
        words = [program, "dump", "--nonblocking", "--pid", str(report.process.pid)]
        with suppress(OSError):
            running.append((report, AskedProgram(words)))
    for report, asked in running:
        answer = asked.answer(max(time.monotonic() + 0.05, until), _MOST_DUMP)
        if answer is None:
            report.note = report.note or "py-spy did not answer in time"
            continue
        said, wrong = answer.out, answer.errors
        threads = parse_py_spy(said.decode(errors="replace"), report.process.pid)
        if threads:
            report.threads, report.way, report.note = threads, "py-spy", ""
        elif wrong.strip():
            reason = wrong.strip().splitlines()[-1]
            report.note = report.note or f"py-spy: {printable(reason)[:_LONGEST]}"


def _py_spy() -> str | None:
    import shutil

    return shutil.which("py-spy") or shutil.which("py-spy", path=os.path.dirname(sys.executable))


def _is_python(pid: int) -> bool:
    try:
        return os.path.basename(os.readlink(f"/proc/{pid}/exe")).startswith("python")
    except OSError:
        return False


_SPY_THREAD = re.compile(r'Thread (\S+) \(([^)]*)\)(?:: "(.*)")?$')
_SPY_FRAME = re.compile(r"    (.+) \((.+):(\d{1,9})\)$")


def parse_py_spy(text: str, pid: int) -> list[Thread]:
    """The threads that `py-spy dump` names, the main thread first."""
    threads: list[tuple[bool, str, list[Frame]]] = []
    for line in text.splitlines():
        if head := _SPY_THREAD.match(line):
            name = _short(head[3] or head[1])
            threads.append((head[1] == str(pid) or name == "MainThread", name, []))
        elif threads and (frame := _SPY_FRAME.match(line)):
            threads[-1][2].append((_short(frame[1]), _short(frame[2]), int(frame[3])))
    threads.sort(key=lambda thread: not thread[0])
    return [(name, tuple(frames[:MOST_FRAMES])) for _, name, frames in threads]


# --- /proc --------------------------------------------------------------------------------


def _look(report: ProcessReport) -> None:
    """What `/proc` says of a process and its threads."""
    pid = report.process.pid
    for tid in _threads(pid)[:MOST_THREADS]:
        name, what = _thread(pid, tid)
        if what:
            report.threads.append((name, ((what, "", 0),)))
    if report.threads:
        report.state = report.threads[0][1][0][0]
    with suppress(OSError):
        numbers = sorted(filter(str.isdigit, os.listdir(f"/proc/{pid}/fd")), key=int)
        report.files = [f"{number} {_file(pid, number)}" for number in numbers[:_MOST_FILES]]


def _threads(pid: int) -> list[int]:
    """The ids of a process's threads, that of the first one first."""
    try:
        return sorted(map(int, os.listdir(f"/proc/{pid}/task")), key=lambda tid: (tid != pid, tid))
    except OSError:
        return []


def _read(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return file.read(4096).decode(errors="replace").strip("\0\n ")
    except OSError:
        return ""


def _thread(pid: int, tid: int) -> tuple[str, str]:
    """A thread's name, and what it does; empty when it is gone."""
    folder = f"/proc/{pid}/task/{tid}"
    stat = _read(f"{folder}/stat")
    name, _, rest = stat.partition("(")[2].rpartition(")")
    if not rest.strip():
        return "", ""
    state = rest.split()[0]
    name = printable(name.encode())
    if state == "R":
        return name, "runs"
    if state in "Tt":
        return name, "is stopped" if state == "T" else "is stopped by a debugger"
    if state in "ZX":
        return name, "has ended"
    where = _kernel_function(folder)
    if state == "D":
        return name, f"waits in the kernel (D): {where or 'nobody says where'}"
    return name, f"sleeps in {where}" if where else "sleeps"


def _kernel_function(folder: str) -> str:
    """The kernel's function in which a thread waits, without what a compiler has put behind its
    name; empty where it runs, or where we may not see it."""
    name = _read(f"{folder}/wchan").partition(".")[0]
    return "" if name == "0" else printable(name.encode())[:80]


def _file(pid: int, number: str) -> str:
    try:
        return _short(os.readlink(f"/proc/{pid}/fd/{number}"))
    except OSError:
        return f"descriptor {number}"


# --- the answer ---------------------------------------------------------------------------


def packed(reports: list[ProcessReport], unlisted: int) -> Json:
    """The answer, in which equal stacks stand once, cut to `_MOST_BYTES`: first comes the first
    thread of each process, then the others as far as there is room."""
    numbers: dict[Stack, int] = {}
    room = _MOST_BYTES
    processes: list[tuple[ProcessReport, Json, list[Thread]]] = []

    def add(entry: Json, thread: Thread) -> bool:
        nonlocal room
        name, stack = thread
        cost = len(name) + 40
        if stack not in numbers:
            cost += len(json.dumps(stack))
        if cost > room:
            return False
        room -= cost
        entry["threads"].append([name, numbers.setdefault(stack, len(numbers))])
        return True

    for report in reports:
        threads = list(report.threads)
        if not threads:
            continue  # it has ended
        way = report.way
        entry: Json = {
            "task": report.task,
            "pid": report.process.pid,
            "command": report.command,
            "way": way,
            "state": report.state,
            "note": report.note,
            "threads": [],
            "unlisted": max(0, len(threads) - MOST_THREADS),
            "rank": report.rank,
            "parent": report.process.ppid,
            "files": list(report.files) if way == "proc" else [],
        }
        room -= len(json.dumps(entry))
        if room > 0 and add(entry, threads[0]):
            processes.append((report, entry, threads[1:MOST_THREADS]))
        else:
            unlisted += 1
    for _, entry, rest in processes:
        for thread in rest:
            entry["unlisted"] += not add(entry, thread)
    return {
        "stacks": [list(map(list, stack)) for stack in numbers],
        "processes": [entry for _, entry, _ in processes],
        "unlisted": unlisted,
    }
