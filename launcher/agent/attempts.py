"""Attempts of tasks on this host: starting them, learning of their ends, and what is left of them.

Each has a reaper (`reaper`). Opening a log file may hang with its disk, so a thread of its own
opens logs and has reapers forked (`forkserver`). The reapers being that thread's children, the main
thread has a child only when a reaper was killed by somebody and left orphans.
"""

from __future__ import annotations

import math
import os
import selectors
import signal
import threading
import time
from typing import Callable, Mapping, Sequence

from . import children, ports, reaper
from .channels import Channels
from .forkserver import ForkServer
from .log import error_text
from .messages import Exited, Listening, OutputEnded, Started
from .process_tracker import ProcessTracker
from .reaper import ReaperReport
from .requests import Release, Start
from .task_logs import TaskLogs
from .tasks import AttemptProcess, Program, open_output, start_error

_WAIT_FOR_OUTPUT = 1.0
_LISTENING_SECONDS = (0.03, 1.0)
_LISTENING_SHARE = 0.02
"""Of the time that an attempt has not listened for yet: so much later it may be seen to listen. A
task that never does costs hardly anything after a while."""
_MOST_ENDED = 5
"""Ended attempts of a task that are kept: a welcome, which is one message, has all of them, and a
task that is restarted for weeks has thousands."""
_BEING_ENDED = "the run is being ended"


class Attempts:
    """All attempts that this host knows of.

    `later` runs something in the agent's loop. `on_broken` is called when somebody has killed an
    attempt's reaper; `on_change` when there is something new to be saved.
    """

    def __init__(
        self,
        known: list[AttemptProcess],
        selector: selectors.BaseSelector,
        channels: Channels,
        logs: TaskLogs,
        tracker: ProcessTracker,
        forks: ForkServer,
        later: Callable[[Callable[[], None]], None],
        on_broken: Callable[[AttemptProcess], None],
        on_change: Callable[[], None],
    ) -> None:
        self.all = known
        self._selector = selector
        self._channels = channels
        self._logs = logs
        self._tracker = tracker
        self._later = later
        self._on_broken = on_broken
        self._on_change = on_change
        self._forks = forks
        self._lock = threading.Lock()
        self._killer: children.Killer | None = None
        self._scanned_at = 0.0
        self.reports_pending = False
        """A child has ended, or a reaper has sent a report."""
        self.has_orphans = False
        """A process that a reaper should have has become the agent's own child."""

    def __bool__(self) -> bool:
        return bool(self.all)

    # --- starting -------------------------------------------------------------------------

    def start(
        self,
        wanted: Start,
        argv: Sequence[str],
        variables: Mapping[str, str],
        umask: int,
        refused: bool,
    ) -> None:
        """Starts an attempt with this command and these variables; the launcher is told the result
        when it is known."""
        task, number = str(wanted.task), wanted.attempt
        for attempt in self.all:
            if attempt.task == task and attempt.attempt == number:  # asked again after a cut
                if attempt.announced:
                    self._channels.send(attempt.facts(Started))
                if not wanted.gated:
                    self._open_gate(attempt)
                return
        log = self._logs.log(task, wanted.log_limit)
        attempt = AttemptProcess(task, number, log, wanted.port, wanted.gated)
        self._forget_ended(task)
        self.all.append(attempt)
        if refused:
            self._refuse(attempt, _BEING_ENDED)
            return
        attempt.port_owner = ports.owner(attempt.port) if attempt.port else None
        env = {key: value for key, value in os.environ.items() if key != "TFMUX_AGENT"}
        env.update(variables)
        program = Program(argv, env, wanted.cwd, wanted.pty, umask, wanted.gated)
        self._forks.starter.do(lambda: self._fork(attempt, program))

    def _forget_ended(self, task: str) -> None:
        """Forgets all but the last few attempts of a task of which nothing is left."""
        ended = [
            attempt
            for attempt in self._of({task})
            if attempt.end_sent and attempt.eof and not self._may_be_left(attempt)
        ]
        for attempt in ended[:-_MOST_ENDED]:
            self.all.remove(attempt)

    @staticmethod
    def _may_be_left(attempt: AttemptProcess) -> bool:
        its = attempt.reaper
        if its is None:
            return attempt.forking
        return not (its.exited and its.none_left)

    def release(self, wanted: Release) -> None:
        """Lets a gated attempt begin; a second time changes nothing."""
        for attempt in self._of({str(wanted.task)}):
            if attempt.attempt == wanted.attempt:
                self._open_gate(attempt)

    def _open_gate(self, attempt: AttemptProcess) -> None:
        if attempt.gated:
            attempt.gated = False
            if attempt.reaper is not None:
                attempt.reaper.release()
            self._on_change()

    def cancel_starts(self, tasks: set[str] | None) -> None:
        """Starts none of these that has not been started yet."""
        for attempt in self._of(tasks):
            with self._lock:
                attempt.cancelled = True
                waits = not attempt.forking
            if waits and not attempt.announced:
                self._refuse(attempt, _BEING_ENDED)

    def _fork(self, attempt: AttemptProcess, program: Program) -> None:
        try:
            self._logs.begin(attempt.log, attempt.task)
            attempt.began_at = attempt.log.size
            with self._lock:
                attempt.forking = not attempt.cancelled
            if attempt.forking:
                output = open_output(program.terminal)
                started = reaper.fork(program, output, self._forks)
                self._later(self._forked(attempt, started, program.gated))
                return  # the drain closes the log
        except Exception as error:  # such as too many processes
            attempt.forking = False
            self._later(self._failed(attempt, error_text(error)))
        attempt.log.close()

    def _forked(
        self, attempt: AttemptProcess, started: reaper.StartedReaper, gated: bool
    ) -> Callable[[], None]:
        def act() -> None:
            attempt.reaper = started.reaper
            self._tracker.reapers[started.reaper.pid] = attempt.task
            self._selector.register(started.reaper.link, selectors.EVENT_READ, attempt)
            self._logs.drain.add(started.output, attempt.log)
            if attempt.cancelled:
                started.reaper.kill()
            elif gated and not attempt.gated:  # opened meanwhile
                started.reaper.release()
            self._read_reports(attempt)

        return act

    def _failed(self, attempt: AttemptProcess, error: str) -> Callable[[], None]:
        return lambda: None if attempt.announced else self._refuse(attempt, error)

    def _refuse(self, attempt: AttemptProcess, error: str) -> None:
        attempt.refuse(error)
        self._announce(attempt)

    def _announce(self, attempt: AttemptProcess) -> None:
        attempt.announced = True
        self._channels.send(attempt.facts(Started, attempt.port_owner))
        self._on_change()

    # --- what reapers report --------------------------------------------------------------

    def poll(self) -> None:
        """Reads the reapers' reports, reaps them and the agent's own orphans, and reports ends."""
        reaped, none_left = children.reap()
        self.has_orphans = not none_left
        if self._killer:
            self._killer.step(reaped)
        for pid, status in reaped:
            for attempt in self.all:
                if attempt.pid == pid and not attempt.ended:
                    attempt.end(status)
        if self.reports_pending:
            self.reports_pending = False
            for attempt in self.all:
                if attempt.reaper is not None and not attempt.reaper.exited:
                    self._read_reports(attempt)
        self._send_ends()

    def _read_reports(self, attempt: AttemptProcess) -> None:
        its = attempt.reaper
        assert its is not None
        exited = its.poll()
        for report, values in its.reports():  # read after that: the last report is among them
            if report is ReaperReport.FAILED:
                self._refuse(attempt, error_text(start_error(values)))
            elif report is ReaperReport.FORKED:
                attempt.pid, attempt.start = map(int, values.split())
                self._tracker.roots[(attempt.pid, attempt.start)] = attempt.task
            elif report is ReaperReport.EXECUTED:
                attempt.pid = int(values)
                self._announce(attempt)
            elif not attempt.ended:
                attempt.end(int(values))
        if exited:
            self._selector.unregister(its.link)
            its.link.close()
            self._tracker.reapers.pop(its.pid, None)
            if not its.none_left:
                if not attempt.announced and not attempt.pid:
                    self._refuse(attempt, "its parent process was killed before the task started")
                elif not attempt.announced:
                    self._announce(attempt)
                self._on_broken(attempt)

    def _send_ends(self) -> None:
        """An end is reported when the task's own output is in its file: the last lines before an
        exit are the ones that matter. A grandchild that holds the pipe delays it no longer
        than a second."""
        changed = False
        drain = self._logs.drain
        for attempt in self.all:
            if not attempt.ended or attempt.eof:
                continue
            attempt.eof = not drain.draining(attempt.log)
            late = time.monotonic() - attempt.ended_at > _WAIT_FOR_OUTPUT
            if not attempt.end_sent and (attempt.eof or late or drain.idle(attempt.log)):
                attempt.end_sent = changed = True
                owner = None
                if attempt.port and not attempt.listening:
                    owner = ports.owner(attempt.port)
                self._channels.send(attempt.facts(Exited, owner))
            if attempt.eof:
                changed = True
                self._channels.send(attempt.facts(OutputEnded))
        if changed:
            self._on_change()

    def _not_listening(self) -> list[AttemptProcess]:
        """Those that live and are to listen on a port, and do not do so yet."""
        return [a for a in self.all if a.port and not a.ended and not a.listening and not a.gated]

    @property
    def next_scan(self) -> float:
        """Time of the next scan of the listening ports; infinite while no task is to listen."""
        waiting = self._not_listening()
        if not waiting:
            return math.inf
        least, most = _LISTENING_SECONDS
        waited = self._scanned_at - max(attempt.asked_at for attempt in waiting)
        return self._scanned_at + min(most, max(least, _LISTENING_SHARE * waited))

    def find_listeners(self) -> None:
        """Tells the launcher of those that listen by now."""
        self._scanned_at = time.monotonic()
        waiting = self._not_listening()
        sockets = ports.listeners()
        heard = [(attempt, sockets[attempt.port]) for attempt in waiting if attempt.port in sockets]
        try:
            members = self._tracker.scan() if heard else {}
        except OSError:  # no descriptor is left; the next time there may be one
            return
        for attempt, inodes in heard:
            pids = [pid for pid, (_, who) in members.items() if who == attempt.task]
            if ports.holds(pids, inodes) is not None:
                attempt.listening = True
                self._channels.send(attempt.facts(Listening))

    # --- kills ----------------------------------------------------------------------------

    def kill(self, tasks: set[str] | None) -> None:
        """Has the reapers kill all that is below them; what no reaper has, the agent kills."""
        for attempt in self._of(tasks):
            if attempt.reaper is not None:
                attempt.reaper.kill()
        if self._orphaned(tasks) and self._killer is None:
            self._killer = children.Killer()

    def kills_ended(self) -> None:
        """No kill is under way any more."""
        self._killer = None

    def gone(self, tasks: set[str] | None) -> bool:
        """Whether the kernel confirms (ECHILD) that nothing is left which these tasks have started:
        each reaper has exited with `NONE_LEFT`. Where a reaper was killed, and for a kill of
        everything, the agent itself must have no child."""
        for attempt in self._of(tasks):
            if attempt.forking and (attempt.reaper is None or not attempt.reaper.exited):
                return False
        return not (self._orphaned(tasks) and self.has_orphans)

    def end_unreported(self, tasks: set[str] | None) -> None:
        """A kill is over: an attempt whose reaper was killed before it could report the end has
        ended, too."""
        for attempt in self._of(tasks):
            if attempt.reaper is not None and attempt.reaper.exited and not attempt.ended:
                attempt.end(signal.SIGKILL)

    def _orphaned(self, tasks: set[str] | None) -> bool:
        return tasks is None or any(
            attempt.reaper is not None and attempt.reaper.exited and not attempt.reaper.none_left
            for attempt in self._of(tasks)
        )

    def _of(self, tasks: set[str] | None) -> list[AttemptProcess]:
        return [attempt for attempt in self.all if tasks is None or attempt.task in tasks]
