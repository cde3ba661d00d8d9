"""Kill of tasks: the stop signal, the grace, KILL, and the receipt.

A kill is a state in the agent's loop and never blocks it. The stop signal is an event: what runs
when it is sent gets it, once. What is started afterwards belongs to the clean-up, such as an upload
of the last checkpoint, and has the grace. KILL takes everything.

The receipt of a kill of everything says "confirmed" only when the kernel has said that the agent
has no child (`Attempts.gone`) *and* a look at `/proc` found nothing, so never beside a survivor. Of
some tasks among others the kernel has no such word: what a look has not found is "seen gone". A
process that cannot be ended (one that waits in the kernel) is reported, not waited for.
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from typing import Iterator, Sequence

from . import wire
from .attempts import Attempts, StopOrder
from .channel import Channels
from .folders import Before, Word
from .processes import (
    STRANGER_SECONDS,
    Key,
    Process,
    ProcessTracker,
    command_lines,
    moment,
    outlives,
    pipe_readers,
    send,
    table,
    took,
)
from .threads import error_text
from .wire import KILL_SECONDS, Json

SCAN = 0.02
KILL_SCAN = 0.005
"""Seconds between looks once KILL is sent, or while there are processes that are not below us."""
_READ_SECONDS = 0.5
"""Time that a process has to read to the end what another one has written that is gone."""


class Kills:
    """The kills that are under way."""

    def __init__(
        self, tracker: ProcessTracker, attempts: Attempts, channels: Channels, before: Before
    ) -> None:
        self.word = before.word
        """What the watchdog of the earlier agent has said; an awaited answer may still come."""
        self._tracker = tracker
        self._attempts = attempts
        self._channels = channels
        self._all: list[TaskKill] = []
        self.proven = False
        """A kill of everything has left nothing; nothing was started since."""
        self.survivors = False
        """The last kill of everything has left processes."""
        self.outlived = False
        """The kernel still counts children of this agent among the processes left."""
        self.known = False
        """The last kill of everything has reported all that is left; nothing was started since."""
        self.ended_at = 0.0
        """When the last one that is over ended."""
        self.signalled = before.signalled
        """Processes signalled by kills of everything, also an earlier agent's: who asks again,
        after a cut, has not heard the receipt of the first."""

    def __iter__(self) -> Iterator[TaskKill]:
        return iter(self._all)

    def __bool__(self) -> bool:
        return bool(self._all)

    def covers(self, task: str) -> bool:
        """The task is being killed."""
        return any(kill.covers(task) for kill in self._all)

    def request(self, wanted: Json) -> None:
        """Begins a kill, or joins a request to one that is under way."""
        ident, grace = int(wanted["id"]), float(wanted["grace"])
        tasks = None if wanted.get("tasks") is None else set(map(str, wanted["tasks"]))
        if wanted.get("final"):
            self._attempts.over = True
        for kill in self._all:
            # Pressed again; or the tasks are being ended with all others. KILL of one task
            # meanwhile is a kill of its own: the grace of the others goes on.
            if kill.tasks == tasks or (kill.tasks is None and grace > 0):
                kill.ids.append(ident)
                if grace <= 0:
                    kill.force()
                return
        self._attempts.poll()  # what has ended before was not ended by this kill
        self.begin([ident], tasks, grace, wire.BY_LAUNCHER)
        self.step()  # the signal goes out in this very turn

    def begin(
        self, ids: list[int], tasks: set[str] | None, grace: float, by: str, why: str = ""
    ) -> None:
        """Begins a kill; the next `step` sends the first signals."""
        self._attempts.ask_to_end(tasks, by, why)
        self._all.append(TaskKill(ids, tasks, grace, self._tracker, self._attempts))

    def step(self) -> None:
        """Goes on with those that are due, and sends receipts."""
        for kill in [kill for kill in self._all if kill.is_due(time.monotonic())]:
            receipt = kill.step(self.word, self._all[: self._all.index(kill)])
            if receipt is None:
                continue
            receipt["until_boot"] = bool(receipt["doubt"]) and self.word.lasts
            self._all.remove(kill)
            self.ended_at = time.monotonic()
            if not self._all:
                self._attempts.kills_ended()
            self._attempts.poll()
            if kill.tasks is None:
                self.known, self.proven = True, bool(receipt["confirmed"])
                self.survivors = bool(receipt["survivors"])
                self.outlived = not self._attempts.none_left
                receipt["signalled"] = self.signalled = self.signalled + receipt["signalled"]
            if kill.ids or kill.tasks is None:
                self._channels.send(wire.RECEIPT, receipt)


class TaskKill:
    """Kill of some tasks (or, with `tasks=None`, of everything of the run)."""

    def __init__(
        self,
        ids: list[int],
        tasks: set[str] | None,
        grace: float,
        tracker: ProcessTracker,
        attempts: Attempts,
    ) -> None:
        self.ids = ids
        self.tasks = tasks
        self._tracker = tracker
        self._attempts = attempts
        self._began = time.monotonic()
        self.deadline = self._began + max(0.0, grace)
        self._began_at: tuple[int, int] | None = None
        """The moment at which the first stop signal reached its process."""
        self._stopped: dict[Key, tuple[int, int]] = {}
        """Processes that had their stop signal, each with the moment at which it reached them."""
        self._handled: set[str] = set()
        """Tasks of which a process that outlives the stop signal had it."""
        self._unsure: dict[Key, tuple[int, tuple[int, int]]] = {}
        """Processes that had a stop signal and seem to have no handler: its number, and a moment
        before it."""
        self._needed_until: dict[Key, float] = {}
        """Processes that others need, and when they were needed last."""
        self._capturing: set[int] = set()
        """Processes that read what their own children write."""
        self._signalled: set[Key] = set()
        self._left: list[Process] = []
        self._strangers_until = 0.0
        self._newest_stranger = 0
        self._strangers_bred = False
        self._forced = self._gone = False
        self.next_look = self._began
        attempts.cancel_starts(tasks)

    def covers(self, task: str) -> bool:
        """The task is one of those that are killed."""
        return self.tasks is None or task in self.tasks

    def force(self) -> None:
        """Sends KILL now instead of after the grace."""
        self.deadline = self.next_look = min(self.deadline, time.monotonic())

    def is_due(self, now: float) -> bool:
        """Whether the next look is due, or the kernel has just confirmed that no process is
        left."""
        return now >= self.next_look or (not self._gone and self._attempts.gone(self.tasks))

    def step(self, word: Word, earlier: Sequence[TaskKill] = ()) -> Json | None:
        """Looks, signals, and returns the receipt when there is nothing more to do. `word`: what is
        known of an earlier agent. `earlier`: kills that began before and are under way."""
        try:
            return self._examine(word, earlier)
        except OSError as error:  # no descriptor is left, here or on the whole machine
            now = time.monotonic()
            if now >= self.deadline + KILL_SECONDS:
                return self._receipt(now, _UNREADABLE.format(error_text(error)))
            if now >= self.deadline and not self._forced:
                self._forced = True
                self._attempts.kill(self.tasks)
            self.next_look = now + SCAN
            return None

    def _examine(self, word: Word, earlier: Sequence[TaskKill]) -> Json | None:
        now, doubt = time.monotonic(), _DOUBTS[word]
        gone = self._gone = self._attempts.gone(self.tasks)
        everyone = table()
        owned = self._members(everyone, now)
        members = self._left = [process for process, _ in owned]
        unread = self._tracker.unread
        late = now >= self.deadline + KILL_SECONDS
        if not members and gone and not unread and now >= self._strangers_until:
            if late or self.tasks is not None or word is not Word.AWAITED:
                return self._receipt(now, _STRANGERS if self._strangers_bred else doubt)
        elif late:
            if not members:
                doubt = _UNREAD.format(", ".join(map(str, unread[:10]))) if unread else _NOT_GONE
            return self._receipt(now, doubt)
        if now >= self.deadline:
            self._kill(members, everyone)
            if not self._forced:  # behind our own signals, which are counted
                self._forced = True
                self._attempts.kill(self.tasks)
        else:
            self._stop(owned, everyone, earlier)
        often = self._forced or now < self._strangers_until
        # On a busy machine a look takes longer than the pause between two: without one it would
        # take the time in which children are reaped.
        looked = time.monotonic()
        self.next_look = looked + max(KILL_SCAN if often else SCAN, looked - now)
        if now < self.deadline:
            self.next_look = min(self.next_look, self.deadline)
        return None

    def _members(self, everyone: dict[int, Process], now: float) -> list[tuple[Process, str]]:
        taken = self._tracker.scan(everyone)
        members = [(process, task) for process, task in taken.values() if self.covers(task)]
        strangers = [p.start for p, _ in members if p.pid not in self._tracker.below]
        if strangers:
            newest = max(strangers)
            # One that was born behind our first signal: there may always be a next one.
            self._strangers_bred |= 0 < self._newest_stranger < newest
            self._newest_stranger = max(self._newest_stranger, newest)
            self._strangers_until = now + STRANGER_SECONDS
        return members

    def _stop(
        self,
        members: list[tuple[Process, str]],
        everyone: dict[int, Process],
        earlier: Sequence[TaskKill],
    ) -> None:
        """Sends the stop signal to those that had none, and are not part of the clean-up.

        Where processes of a task have handlers, one must have been born before the signal reached
        its parent; or, where that is gone, the first of all. Where none has, nobody was left to
        start anything, and what was being forked meanwhile gets the signal in a later look.
        """
        self._find_handling(members)
        stops = self._attempts.stops()
        asked: list[tuple[Process, str, StopOrder]] = []
        for process, task in members:
            key = (process.pid, process.start)
            other = next((kill for kill in earlier if kill.covers(task)), None)
            if other is not None:  # the task's end has begun with that one
                self._signalled |= {key} & other._signalled
            elif key not in self._stopped:
                stop, reached = stops.get(task, StopOrder()), self._reached(process.ppid, everyone)
                waits = stop.first != process.pid and self._reached(stop.first, everyone)
                newborn = process.birth > (reached or self._began_at or process.birth)
                cleaning = task in self._handled or (not task and self._handled)
                if not waits and not (newborn and cleaning):
                    asked.append((process, task, stop))
        if asked:
            self._signal(asked, members, everyone)

    def _find_handling(self, members: list[tuple[Process, str]]) -> None:
        """Finds those that have taken their stop signal and live on, without a handler that could
        be seen: while `sigwait` waits for a signal, the kernel does not call it blocked."""
        for process, task in members:
            key = (process.pid, process.start)
            number, before = self._unsure.get(key, (0, (0, 0)))
            if number and took(process.pid, number):
                del self._unsure[key]
                self._stopped[key] = before
                self._began_at = min(self._began_at or before, before)
                self._handled.add(task)

    def _reached(self, pid: int, everyone: dict[int, Process]) -> tuple[int, int] | None:
        """The moment at which the signal reached a living process; None where it had none."""
        process = everyone.get(pid)
        return process and self._stopped.get((process.pid, process.start))

    def _signal(
        self,
        asked: list[tuple[Process, str, StopOrder]],
        members: list[tuple[Process, str]],
        everyone: dict[int, Process],
    ) -> None:
        """Signals these, but for those that would simply end, and that others need."""
        crowds = Counter(task for _, task in members)
        handling = {
            process.pid
            for process, _, stop in asked
            # A shell that is held may block all signals at the moment.
            if (process.pid, process.start) not in self._needed_until
            and outlives(process.pid, stop.number)
        }
        readers = self._readers(members, everyone, {p.pid for p, *_ in asked} - handling)
        needed = {
            process.pid
            for process, task, stop in asked
            if process.pid not in handling
            and self._is_needed(process, stop, readers, alone=crowds[task] == 1)
        }
        for process, task, stop in sorted(asked):  # by pid: parents first
            first = 0 if stop.first in needed else stop.first
            if process.pid in needed or first not in (0, process.pid):
                continue
            before = moment()
            # CONT behind it: a stopped process keeps the signal pending for ever otherwise
            if send(process, (stop.number, signal.SIGCONT)):
                self._signalled.add((process.pid, process.start))
            # One without a handler has started nothing behind the signal.
            reached = before if process.pid in handling else moment()
            self._stopped[process.pid, process.start] = reached
            self._began_at = self._began_at or reached
            if process.pid in handling:
                self._handled.add(task)
            else:
                self._unsure[process.pid, process.start] = stop.number, before

    def _readers(
        self,
        members: list[tuple[Process, str]],
        everyone: dict[int, Process],
        candidates: set[int],
    ) -> set[int]:
        """Candidates without which others cannot write. A process with children is no such reader:
        a loop over lines would start its next program. But it may capture what these write."""
        parents = {process.ppid for process, _ in members}
        found = set()
        for reader, writers in pipe_readers((p.pid for p, _ in members), candidates).items():
            if reader not in parents:
                found.add(reader)
            elif any(reader == p.pid for writer in writers for p in _line(writer, everyone)):
                found.add(reader)
                self._capturing.add(reader)
        return found

    def _is_needed(
        self, process: Process, stop: StopOrder, readers: set[int], *, alone: bool
    ) -> bool:
        """The process does something for others, and gets its signal when they have ended. `alone`:
        no other one of its task lives."""
        key, now = (process.pid, process.start), time.monotonic()
        if process.pid in readers:
            # `tee` in `train | tee log`: without it train fails at its next line. The end of its
            # input will end it; whatever does not read gets its signal a little later.
            grace = self.deadline - self._began
            self._needed_until[key] = now + min(_READ_SECONDS, grace / 4)
            if process.pid in self._capturing:
                # It would go on with the next line of its script. A pipe holds 64 KiB meanwhile.
                send(process, (signal.SIGSTOP,))
                self._needed_until[key] = now
                return True
        elif process.pid == stop.leader and not alone:
            # The end of a terminal's first process takes the terminal from all others, which get
            # HUP. A shell is stopped meanwhile, or it would go on to the next line of its script.
            send(process, (signal.SIGSTOP,))
            self._needed_until[key] = now
            return True
        return now < self._needed_until.get(key, now)

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

    def _receipt(self, now: float, doubt: str) -> Json:
        """`doubt` says why nothing was found and yet something may be left."""
        listed = self._left[: wire.MOST_SURVIVORS]
        return {
            "ids": list(self.ids),
            "tasks": None if self.tasks is None else sorted(self.tasks),
            "signalled": len(self._signalled),
            "survivors": [
                {"pid": process.pid, "command": command, "state": process.state}
                for process, command in zip(listed, command_lines(listed))
            ],
            "confirmed": self.tasks is None and self._gone and not self._left and not doubt,
            "doubt": doubt,
            "unlisted": len(self._left) - len(listed),
            "seconds": round(now - self._began, 3),
        }


_NOT_GONE = "the kernel reports a process that is left, but it was not found in /proc"
_UNREAD = "the owner of these processes cannot be read, they wait in the kernel: {}"
_UNREADABLE = "the processes of this host cannot be read: {}"
_EARLIER = "{}; processes that it had started may still run unnoticed".format
_DOUBTS = {
    Word.PROVEN: "",
    Word.UNPROVEN: _EARLIER("an earlier agent here ended without proof that nothing was left"),
    Word.NONE: _EARLIER("an earlier agent here and its watchdog have left no record of their end"),
    Word.AWAITED: _EARLIER("the watchdog of an earlier agent here has not ended yet"),
}
_STRANGERS = "processes of an earlier agent kept forking while they were being killed"


def _line(pid: int, everyone: dict[int, Process]) -> list[Process]:
    """A process, its parent, and so on."""
    found: dict[int, Process] = {}
    while pid in everyone and pid not in found:
        found[pid] = everyone[pid]
        pid = found[pid].ppid
    return list(found.values())


def _groups(members: list[Process], everyone: dict[int, Process]) -> set[int]:
    """The process groups in which there is nobody but members."""
    ours = {process.pid for process in members}
    foreign = {process.pgid for process in everyone.values() if process.pid not in ours}
    return {process.pgid for process in members} - foreign
