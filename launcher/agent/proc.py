"""/proc: which processes there are, and to which task of the run each belongs.

A task's processes are known by its tag in their environment, by its session, by descent, and
by memory: once seen as a task's, a process stays the task's (pid and start time), so a daemon
that empties its environment and leaves its family is still known.
"""

from __future__ import annotations

import os
import signal
import threading
from typing import Any, Callable, Iterable, NamedTuple, Tuple

TAG = b"TFMUX_TASK="
AGENT_TAG = b"TFMUX_AGENT="


class Process(NamedTuple):
    """One line of the process table. `start` is in clock ticks since boot: with the pid it
    names a process for good, since pids are used again."""

    pid: int
    name: str
    ppid: int
    pgid: int
    sid: int
    state: str
    start: int
    ticks: int
    rss: int
    threads: int

    @property
    def dead(self) -> bool:
        """It only waits to be reaped. A process whose first thread has ended looks like that,
        too, while its other threads work on."""
        return self.state in "ZX" and self.threads <= 1


Key = Tuple[int, int]


def read_process(pid: int) -> Process | None:
    """The process, or None when it is gone (or a zombie's entry cannot be read)."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            raw = file.read()
    except OSError:
        return None
    fields = raw[raw.rindex(b")") + 2 :].split()  # the name in brackets may hold anything
    return Process(
        pid=pid,
        name=printable(raw[raw.index(b"(") + 1 : raw.rindex(b")")]),
        ppid=int(fields[1]),
        pgid=int(fields[2]),
        sid=int(fields[3]),
        state=fields[0].decode(),
        start=int(fields[19]),
        ticks=int(fields[11]) + int(fields[12]),
        rss=int(fields[21]) * os.sysconf("SC_PAGE_SIZE"),
        threads=int(fields[17]),
    )


def table() -> dict[int, Process]:
    """All living processes of this host, by pid."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            process = read_process(int(name))
            if process is not None and not process.dead:
                found[process.pid] = process
    return found


def variable(pid: int, name: bytes) -> bytes | None:
    """The value of an environment variable of another process, None when it has none or may
    not be read. `name` ends with `=`."""
    return variables(pid, (name,))[0]


def variables(pid: int, names: Iterable[bytes]) -> list[bytes | None]:
    """The values of several environment variables of another process."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            environ = b"\0" + file.read()
    except OSError:
        environ = b""
    return [_variable(environ, name) for name in names]


def _variable(environ: bytes, name: bytes) -> bytes | None:
    at = environ.find(b"\0" + name) + 1
    if at == 0:
        return None
    end = environ.find(b"\0", at)
    return environ[at + len(name) : end if end >= 0 else None]


def printable(words: bytes) -> str:
    """At most 400 characters of something that another process has said of itself."""
    text = words.decode(errors="replace")[:400]
    return "".join(char if char.isprintable() else "\ufffd" for char in text)


def command_line(pid: int) -> str:
    """A process's arguments joined by blanks, or its name in brackets; at most 400 characters,
    all printable: it is shown to people at terminals, and may be anybody's process."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read().rstrip(b"\0").replace(b"\0", b" ")
        if not words:
            with open(f"/proc/{pid}/comm", "rb") as file:
                words = b"[" + file.read().strip() + b"]"
    except OSError:
        return ""
    return printable(words)


_READ_SECONDS = 0.1


def command_lines(processes: list[Process]) -> list[str]:
    """The command lines of processes that may be stuck in the kernel, where reading one may
    hang: what cannot be read in time is given by its short name."""
    found = {process.pid: f"[{process.name}]" for process in processes}

    def read() -> None:
        for process in processes:
            found[process.pid] = command_line(process.pid) or found[process.pid]

    if processes:
        _bounded(read)
    return [found[process.pid] for process in processes]


def _bounded(work: Callable[[], None]) -> bool:
    """Works in a thread; False when it has not come to an end in time."""
    thread = threading.Thread(target=work, name="proc", daemon=True)
    thread.start()
    thread.join(_READ_SECONDS)
    return not thread.is_alive()


class _Marks:
    """What processes' environments say: the run's task (None when it is none), and whether it is
    an agent of the run. Each is read once, and one that cannot be read counts as a stranger:
    `/proc/PID/environ` may hang with a process that waits in the kernel, and a kill must not."""

    def __init__(self, run_id: str) -> None:
        self._prefix = f"{run_id}/".encode()
        self._agent = f"{run_id};".encode()
        self._known: dict[Key, tuple[str | None, bool]] = {}
        self._at: Key | None = None

    def look(self, processes: dict[int, Process]) -> dict[Key, tuple[str | None, bool]]:
        """The marks of all these processes."""
        keys = {(process.pid, process.start) for process in processes.values()}
        self._known = {key: mark for key, mark in self._known.items() if key in keys}
        while True:
            todo = [key for key in keys if key not in self._known]
            known = self._known

            def read(todo: list[Key] = todo, known: dict[Key, Any] = known) -> None:
                for key in todo:
                    self._at = key
                    known[key] = self._read(key[0])

            if not todo or _bounded(read):
                return self._known
            self._known = {**known, (self._at or todo[0]): (None, False)}

    def _read(self, pid: int) -> tuple[str | None, bool]:
        tag, agent = variables(pid, (TAG, AGENT_TAG))
        task = None
        if tag is not None and tag.startswith(self._prefix) and tag.endswith(b";"):
            task = tag[len(self._prefix) : -1].rpartition(b"/")[0].decode(errors="replace")
        return task, agent == self._agent


class Census:
    """Knows which processes belong to which task of one run.

    `who` of a process is the task's name, or "" for one that is the run's but of no task that
    is known (a daemon that nobody saw being born). `apart` is the session of the agent itself: what
    is in it is a reaper or a program that the agent runs for itself (`nvidia-smi`), for a task's
    processes are in sessions of their own, and none can enter a foreign one.
    """

    def __init__(self, run_id: str, apart: int = 0) -> None:
        self._marks = _Marks(run_id)
        self._apart = apart
        self.roster: dict[Key, str] = {}
        self.roots: dict[Key, str] = {}
        """The first process of each task that this agent started; its session is the task's."""
        self.reapers: dict[int, str] = {}
        """The living reapers, and their tasks."""
        self.below: set[int] = set()
        """Our descendants, as the last look saw them."""

    def take(self, processes: dict[int, Process] | None = None) -> dict[int, tuple[Process, str]]:
        """Looks at the process table now: the run's processes and whose they are."""
        everyone = table() if processes is None else processes
        me = os.getpid()
        marks = self._marks.look(everyone)
        keys = {(p.pid, p.start) for p in everyone.values()}
        self.roster = {key: who for key, who in self.roster.items() if key in keys}
        sessions = {key[0]: who for key, who in self.roots.items() if key in keys}
        owned: dict[int, str] = {}
        for process in everyone.values():
            who = self._own(process, sessions, everyone, marks)
            if who is not None:
                owned[process.pid] = who
        children: dict[int, list[int]] = {}
        for process in everyone.values():
            children.setdefault(process.ppid, []).append(process.pid)
        todo = list(owned)
        while todo:  # descent: below a task's process everything is the task's
            pid = todo.pop()
            for child in children.get(pid, ()):
                if child not in owned:
                    owned[child] = owned[pid]
                    todo.append(child)
        for pid, task in self.reapers.items():
            for child in self._below(pid, children):
                owned[child] = owned.get(child) or task
        self.below = self._below(me, children)
        for child in self.below:
            owned.setdefault(child, "")
        owned.pop(me, None)
        result = {}
        for pid, who in owned.items():
            process = everyone[pid]
            if process.sid == self._apart:
                continue
            key = (pid, process.start)
            if who or key not in self.roster:
                self.roster[key] = who
            result[pid] = (process, self.roster[key])
        return result

    def _own(
        self,
        process: Process,
        sessions: dict[int, str],
        everyone: dict[int, Process],
        marks: dict[Key, tuple[str | None, bool]],
    ) -> str | None:
        key = (process.pid, process.start)
        if self.roster.get(key):
            return self.roster[key]
        if process.sid in sessions:
            return sessions[process.sid]
        tag = marks[key][0]
        if tag is not None and not self._below_another(process, everyone, marks):
            return tag
        return self.roster.get(key)

    @staticmethod
    def _below_another(
        process: Process,
        everyone: dict[int, Process],
        marks: dict[Key, tuple[str | None, bool]],
    ) -> bool:
        """It belongs to another living agent of the run: two hosts of a cluster may be one
        machine, or containers whose processes this machine sees."""
        found = False
        parent = everyone.get(process.ppid)
        while parent is not None:
            if parent.pid == os.getpid():
                return False
            found = found or marks[(parent.pid, parent.start)][1]
            parent = everyone.get(parent.ppid)
        return found

    @staticmethod
    def _below(root: int, children: dict[int, list[int]]) -> set[int]:
        found: set[int] = set()
        todo = [root]
        while todo:
            for child in children.get(todo.pop(), ()):
                if child not in found:
                    found.add(child)
                    todo.append(child)
        return found


def send(process: Process, signals: Iterable[int]) -> bool:
    """Signals exactly this process; False when it is gone.

    Between a look and a kill a pid may be handed to somebody else's process: a pidfd is taken
    first and the start time compared after. Python 3.8 has none and keeps a gap of
    microseconds.
    """
    if not hasattr(os, "pidfd_open"):
        now = read_process(process.pid)
        if now is None or now.start != process.start:
            return False
        return _send_by_pid(process.pid, signals)
    try:
        fd = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return False
    except OSError:  # a kernel before 5.3
        return _send_by_pid(process.pid, signals)
    try:
        now = read_process(process.pid)
        if now is None or now.start != process.start:
            return False
        for number in signals:
            signal.pidfd_send_signal(fd, number)
    except (ProcessLookupError, PermissionError):
        return False
    finally:
        os.close(fd)
    return True


def _send_by_pid(pid: int, signals: Iterable[int]) -> bool:
    try:
        for number in signals:
            os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True
