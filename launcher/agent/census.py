"""To which task of the run each process belongs.

A task's processes are known by its tag in their environment, by its session, by descent, and
by memory: once seen as a task's, a process stays the task's (pid and start time), so a daemon
that empties its environment and leaves its family is still known.
"""

from __future__ import annotations

import os
from typing import Any

from .proc import AGENT_TAG, TAG, Key, Process, bounded, table, variables


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

            if not todo or bounded(read):
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
