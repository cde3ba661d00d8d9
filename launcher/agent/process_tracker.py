"""Tracker of processes: to which task of the run each one belongs.

A task's processes are known by its tag in their environment, by its session, by descent, and
by memory: once seen as a task's, a process stays the task's (pid and start time), so a daemon
that empties its environment and leaves its family is still known.
"""

from __future__ import annotations

import os
from typing import Optional, Tuple

from .proc import AGENT_TAG, TAG, Key, Process, bounded, table, variables

STRANGER_SECONDS = 0.25
"""How long looks must find nothing when there was something that an earlier agent had started:
those are not our descendants, so that `waitpid` says nothing of them."""

_Mark = Tuple[Optional[str], bool]


class _ProcessMarks:
    """Marks in a process's environment: the run's task (None when it is none), and whether it is
    an agent of the run. Each is read once. `/proc/PID/environ` may hang with a process that waits
    in the kernel, and a kill must not: such a process is `unread`, and counts as a stranger until
    the reading comes to an end."""

    def __init__(self, run_id: str) -> None:
        self._prefix = f"{run_id}/".encode()
        self._agent = f"{run_id};".encode()
        self._known: dict[Key, _Mark] = {}
        self._at: Key = (0, 0)
        self.unread: set[Key] = set()
        self._failure: OSError | None = None

    def read(self, processes: dict[int, Process]) -> dict[Key, _Mark]:
        """The marks of all these processes.

        Raises:
            OSError: no descriptor is left to read them with.
        """
        keys = {(process.pid, process.start) for process in processes.values()}
        self._known = {key: mark for key, mark in self._known.items() if key in keys}
        self.unread &= keys
        while True:
            todo = [key for key in keys if key not in self._known and key not in self.unread]
            if not todo or bounded(lambda todo=todo: self._read_all(todo)):  # type: ignore[misc]
                failure, self._failure = self._failure, None
                if failure is not None:
                    raise failure
                # Of all keys: a reading that ends just now takes its key out of `unread`.
                return {key: self._known.get(key, (None, False)) for key in keys}
            self.unread.add(self._at)

    def _read_all(self, todo: list[Key]) -> None:
        known = self._known
        for key in todo:
            self._at = key
            try:
                mark = self._read(key[0])
            except OSError as error:
                self._failure = error
                return
            if key in self.unread:  # we were left behind, and another thread does the rest
                self.unread.discard(key)
                return
            known[key] = mark

    def _read(self, pid: int) -> _Mark:
        tag, agent = variables(pid, (TAG, AGENT_TAG))
        task = None
        if tag is not None and tag.startswith(self._prefix) and tag.endswith(b";"):
            task = tag[len(self._prefix) : -1].rpartition(b"/")[0].decode(errors="replace")
        return task, agent == self._agent


class ProcessTracker:
    """Tracker of the processes of one run and of the task to which each belongs.

    A process's task is a name, or "" for one that is the run's but of no task that is known (a
    daemon whose birth was not seen). `agent_session` is the session of the agent itself: what is
    in it is a program that the agent runs for itself (`nvidia-smi`) or a task that has just been
    forked, for a task's processes are in sessions of their own, and none can enter a foreign one.
    """

    def __init__(self, run_id: str, agent_session: int = 0) -> None:
        self._marks = _ProcessMarks(run_id)
        self._agent_session = agent_session
        self.known_processes: dict[Key, str] = {}
        self.roots: dict[Key, str] = {}
        """The first process of each task that this agent started; its session is the task's."""
        self.below: set[int] = set()
        """Our descendants, as the last look saw them."""

    @property
    def unread(self) -> list[int]:
        """Processes whose task cannot be read: they wait in the kernel."""
        return sorted(pid for pid, _ in list(self._marks.unread))

    def scan(self, processes: dict[int, Process] | None = None) -> dict[int, tuple[Process, str]]:
        """Scans the process table: the run's processes and their tasks.

        Raises:
            OSError: no descriptor is left, here or on the whole machine.
        """
        everyone = table() if processes is None else processes
        me = os.getpid()
        marks = self._marks.read(everyone)
        keys = {(p.pid, p.start) for p in everyone.values()}
        self.known_processes = {
            key: task for key, task in self.known_processes.items() if key in keys
        }
        children: dict[int, list[int]] = {}
        for process in everyone.values():
            children.setdefault(process.ppid, []).append(process.pid)
        self.below = self._below(me, children)
        sessions = self._sessions(everyone)
        owned: dict[int, str] = {}
        for process in everyone.values():
            task = self._own(process, sessions, everyone, marks)
            if task is not None:
                owned[process.pid] = task
        todo = list(owned)
        while todo:  # descent: below a task's process everything is the task's
            pid = todo.pop()
            for child in children.get(pid, ()):
                if child not in owned:
                    owned[child] = owned[pid]
                    todo.append(child)
        for child in self.below:
            owned.setdefault(child, "")
        owned.pop(me, None)
        result = {}
        for pid, task in owned.items():
            process = everyone[pid]
            if process.sid == self._agent_session:
                continue
            key = (pid, process.start)
            if task or key not in self.known_processes:
                self.known_processes[key] = task
            result[pid] = (process, self.known_processes[key])
        return result

    def _sessions(self, everyone: dict[int, Process]) -> dict[int, str]:
        """The tasks of the sessions that first processes have made. A session outlives its first
        process, whose pid is not given again before the last of the session has ended; what has
        such a session by chance is not below us (`_own`)."""
        living = {everyone[pid].sid for pid in self.below}
        self.roots = {
            (pid, start): task
            for (pid, start), task in self.roots.items()
            if pid in living or ((first := everyone.get(pid)) and first.start == start)
        }
        return {pid: task for (pid, _), task in self.roots.items()}

    def _own(
        self,
        process: Process,
        sessions: dict[int, str],
        everyone: dict[int, Process],
        marks: dict[Key, _Mark],
    ) -> str | None:
        key = (process.pid, process.start)
        if self.known_processes.get(key):
            return self.known_processes[key]
        if process.sid in sessions and process.pid in self.below:
            return sessions[process.sid]
        tag = marks[key][0]
        if tag is not None and not self._below_another(process, everyone, marks):
            return tag
        return self.known_processes.get(key)

    @staticmethod
    def _below_another(
        process: Process,
        everyone: dict[int, Process],
        marks: dict[Key, _Mark],
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
