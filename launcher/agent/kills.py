"""A kill: TERM and CONT, the grace, KILL, and a look that nothing is left.

A kill is a state in the agent's loop and never blocks it. Its result is what was *seen*:
a process that cannot be ended (one that waits in the kernel) is reported, not waited for.
"""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from .proc import Census, Key, Process, command_line, send, table

TERM_SCAN = 0.02
KILL_SCAN = 0.005
KILL_PATIENCE = 5.0


class Kill:
    """One kill of some tasks (or, with `tasks=None`, of everything of the run)."""

    def __init__(
        self, ids: list[int], tasks: set[str] | None, grace: float, census: Census
    ) -> None:
        self.ids = ids
        self.tasks = tasks
        self._census = census
        self._began = time.monotonic()
        self.deadline = self._began + max(0.0, grace)
        self._termed: set[Key] = set()
        self._signalled: set[Key] = set()
        self._left: list[Process] = []
        self.next_look = self._began

    def hurry(self) -> None:
        """KILL now instead of after the grace."""
        self.deadline = self.next_look = min(self.deadline, time.monotonic())

    def look_soon(self) -> None:
        """A child has ended: look at once."""
        self.next_look = time.monotonic()

    def look(self) -> dict[str, Any] | None:
        """Looks, signals, and returns the receipt when there is nothing more to do."""
        now = time.monotonic()
        everyone = table()
        members = self._members(everyone)
        self._left = members
        if not members or now >= self.deadline + KILL_PATIENCE:
            return self._receipt(now)
        if now >= self.deadline:
            self._kill(members, everyone)
            self.next_look = now + KILL_SCAN
        else:
            self._term(members)
            self.next_look = min(now + TERM_SCAN, self.deadline)
        return None

    def _members(self, everyone: dict[int, Process]) -> list[Process]:
        taken = self._census.take(everyone)
        return [p for p, who in taken.values() if self.tasks is None or who in self.tasks]

    def _term(self, members: list[Process]) -> None:
        for process in members:
            key = (process.pid, process.start)
            if key not in self._termed:
                self._termed.add(key)
                # CONT behind TERM: a stopped process keeps TERM pending for ever otherwise
                if send(process, (signal.SIGTERM, signal.SIGCONT)):
                    self._signalled.add(key)

    def _kill(self, members: list[Process], everyone: dict[int, Process]) -> None:
        # Freeze first, then kill: one that forks faster than we look must not get away.
        for process in members:
            send(process, (signal.SIGSTOP,))
        for process in members:
            if send(process, (signal.SIGKILL,)):
                self._signalled.add((process.pid, process.start))
        for group in _groups(members, everyone):
            # One that forks and exits without end is gone before its pid is signalled; a signal
            # to its group is held against the fork by the kernel.
            try:
                os.killpg(group, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                continue

    def _receipt(self, now: float) -> dict[str, Any]:
        return {
            "ids": self.ids,
            "tasks": None if self.tasks is None else sorted(self.tasks),
            "signalled": len(self._signalled),
            "survivors": [
                {"pid": p.pid, "command": command_line(p.pid), "state": p.state} for p in self._left
            ],
            "seconds": round(now - self._began, 3),
        }


def _groups(members: list[Process], everyone: dict[int, Process]) -> set[int]:
    """The process groups in which there is nobody but members."""
    ours = {process.pid for process in members}
    foreign = {process.pgid for process in everyone.values() if process.pid not in ours}
    return {process.pgid for process in members} - foreign
