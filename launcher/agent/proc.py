"""/proc: which processes there are, and to which task of the run each belongs.

A task's processes are known by its tag in their environment, by its session, by descent, and
by memory: once seen as a task's, a process stays the task's (pid and start time), so a daemon
that empties its environment and leaves its family is still known.
"""

from __future__ import annotations

import os
import signal
from typing import Iterable, NamedTuple, Tuple

TAG = b"TFMUX_TASK="
AGENT_TAG = b"TFMUX_AGENT="


class Process(NamedTuple):
    """One line of the process table. `start` is in clock ticks since boot: with the pid it
    names a process for good, since pids are used again."""

    pid: int
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
    not be read."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            environ = file.read()
    except OSError:
        return None
    at = 0 if environ.startswith(name) else environ.find(b"\0" + name) + 1
    if at == 0 and not environ.startswith(name):
        return None
    end = environ.find(b"\0", at)
    return environ[at + len(name) : end if end >= 0 else None]


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
    text = words.decode(errors="replace")[:400]
    return "".join(char if char.isprintable() else "\ufffd" for char in text)


class Census:
    """Knows which processes belong to which task of one run.

    `who` of a process is the task's name, or "" for one that is the run's but of no task that
    is known (a daemon that nobody saw being born).
    """

    def __init__(self, run_id: str) -> None:
        self._prefix = f"{run_id}/".encode()
        self._agent = f"{run_id};".encode()
        self._tags: dict[Key, str | None] = {}
        self._agents: dict[Key, bool] = {}
        self.roster: dict[Key, str] = {}
        self.roots: dict[Key, str] = {}
        """The first process of each task that this agent started; its session is the task's."""

    def take(self, processes: dict[int, Process] | None = None) -> dict[int, tuple[Process, str]]:
        """Looks at the process table now: the run's processes and whose they are."""
        everyone = table() if processes is None else processes
        me = os.getpid()
        keys = {(p.pid, p.start) for p in everyone.values()}
        self._tags = {key: tag for key, tag in self._tags.items() if key in keys}
        self._agents = {key: known for key, known in self._agents.items() if key in keys}
        self.roster = {key: who for key, who in self.roster.items() if key in keys}
        sessions = {key[0]: who for key, who in self.roots.items() if key in keys}
        owned: dict[int, str] = {}
        for process in everyone.values():
            who = self._own(process, sessions, everyone)
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
        for child in self._below(me, children):
            owned.setdefault(child, "")
        owned.pop(me, None)
        result = {}
        for pid, who in owned.items():
            process = everyone[pid]
            key = (pid, process.start)
            if who or key not in self.roster:
                self.roster[key] = who
            result[pid] = (process, self.roster[key])
        return result

    def _own(
        self, process: Process, sessions: dict[int, str], everyone: dict[int, Process]
    ) -> str | None:
        key = (process.pid, process.start)
        if self.roster.get(key):
            return self.roster[key]
        if process.sid in sessions:
            return sessions[process.sid]
        if key not in self._tags:
            self._tags[key] = self._read_tag(process.pid)
        if self._tags[key] is not None and not self._below_another(process, everyone):
            return self._tags[key]
        return self.roster.get(key)

    def _below_another(self, process: Process, everyone: dict[int, Process]) -> bool:
        """It belongs to another living agent of the run: two hosts of a cluster may be one
        machine, or containers whose processes this machine sees."""
        found = False
        parent = everyone.get(process.ppid)
        while parent is not None:
            if parent.pid == os.getpid():
                return False
            found = found or self._is_agent(parent)
            parent = everyone.get(parent.ppid)
        return found

    def _is_agent(self, process: Process) -> bool:
        key = (process.pid, process.start)
        if key not in self._agents:
            self._agents[key] = variable(process.pid, AGENT_TAG) == self._agent
        return self._agents[key]

    def _read_tag(self, pid: int) -> str | None:
        value = variable(pid, TAG)
        if value is None or not value.startswith(self._prefix) or not value.endswith(b";"):
            return None
        return value[len(self._prefix) : -1].rpartition(b"/")[0].decode(errors="replace")

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
