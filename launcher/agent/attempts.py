"""The attempts of tasks on this host: starting them, hearing of their ends, and who still lives.

Each has a reaper (`reaper`). Opening a log file may hang with its disk, so a thread of its own
opens logs and forks reapers; it lives as long as the agent, because the kernel ends a reaper with
the thread that forked it. The reapers being that thread's children, the main thread has a child
only when a reaper was killed by somebody and left orphans.
"""

from __future__ import annotations

import os
import queue
import selectors
import signal
import threading
import time
from typing import Any, Callable

from . import children, ports, reaper, wire
from .census import Census
from .channels import Channels
from .notes import reason
from .outputs import Outputs
from .tasks import Attempt, Program, open_output, start_error

_WAIT_FOR_OUTPUT = 1.0
_BEING_ENDED = "the run is being ended"


class Attempts:
    """All attempts that this host knows of.

    `later` runs something in the agent's loop. `on_broken` is called when somebody has killed an
    attempt's reaper; `on_change` when there is something new to be saved.
    """

    def __init__(
        self,
        known: list[Attempt],
        selector: selectors.BaseSelector,
        channels: Channels,
        outputs: Outputs,
        census: Census,
        later: Callable[[Callable[[], None]], None],
        on_broken: Callable[[Attempt], None],
        on_change: Callable[[], None],
    ) -> None:
        self.all = known
        self._selector = selector
        self._channels = channels
        self._outputs = outputs
        self._census = census
        self._later = later
        self._on_broken = on_broken
        self._on_change = on_change
        self._lock = threading.Lock()
        self._requests: queue.SimpleQueue[tuple[Attempt, Program]] = queue.SimpleQueue()
        self._agent = os.getpid()
        self._killer: children.Killer | None = None
        self.stirred = False
        """A child has ended, or a reaper has something to say."""
        self.has_orphans = False
        """A process that a reaper should have has become the agent's own child."""

    def __bool__(self) -> bool:
        return bool(self.all)

    def begin(self) -> None:
        """Makes the thread that starts tasks."""
        threading.Thread(target=self._serve, name="starter", daemon=True).start()

    # --- starting -------------------------------------------------------------------------

    def start(self, said: dict[str, Any], umask: int, refused: bool) -> None:
        """Starts an attempt; what came of it is told when it is known."""
        task, number = said["task"], said["attempt"]
        for attempt in self.all:
            if attempt.task == task and attempt.attempt == number:  # asked again after a cut
                if attempt.announced:
                    self._channels.tell(wire.STARTED, attempt.facts())
                return
        log = self._outputs.log(task, said["log_limit"])
        attempt = Attempt(task, number, log, said.get("port"))
        self.all.append(attempt)
        if refused:
            self._refuse(attempt, _BEING_ENDED)
            return
        attempt.held = ports.holder(attempt.port) if attempt.port else None
        env = {key: value for key, value in os.environ.items() if key != "TFMUX_AGENT"}
        env.update(said["env"])
        program = Program(said["argv"], env, said["cwd"], said.get("pty", False), umask)
        self._requests.put((attempt, program))

    def doom(self, tasks: set[str] | None) -> None:
        """Has none of these started that is still to be."""
        for attempt in self._of(tasks):
            with self._lock:
                attempt.doomed = True
                waits = not attempt.forking
            if waits and not attempt.announced:
                self._refuse(attempt, _BEING_ENDED)

    def _serve(self) -> None:
        while True:
            attempt, program = self._requests.get()
            try:
                self._outputs.begin(attempt.log, attempt.task)
                attempt.began_at = attempt.log.size
                with self._lock:
                    attempt.forking = not attempt.doomed
                if attempt.forking:
                    output = open_output(program.terminal)
                    started = reaper.fork(program, output, self._agent)
                    self._later(self._forked(attempt, started))
            except Exception as error:  # with this thread all reapers would end
                attempt.forking = False
                self._later(self._failed(attempt, reason(error)))

    def _forked(self, attempt: Attempt, started: reaper.Started) -> Callable[[], None]:
        def act() -> None:
            attempt.reaper = started.reaper
            self._census.reapers[started.reaper.pid] = attempt.task
            self._selector.register(started.reaper.link, selectors.EVENT_READ, attempt)
            self._outputs.take(started.output, attempt.log)
            if attempt.doomed:
                started.reaper.kill()
            self._hear(attempt)

        return act

    def _failed(self, attempt: Attempt, error: str) -> Callable[[], None]:
        return lambda: None if attempt.announced else self._refuse(attempt, error)

    def _refuse(self, attempt: Attempt, error: str) -> None:
        attempt.refuse(error)
        self._announce(attempt)

    def _announce(self, attempt: Attempt) -> None:
        attempt.announced = True
        self._channels.tell(wire.STARTED, {**attempt.facts(), "held": attempt.held})
        self._on_change()

    # --- what reapers report --------------------------------------------------------------

    def hear(self) -> None:
        """Reads the reapers' reports, reaps them and the agent's own orphans, and tells ends."""
        reaped, none_left = children.reap()
        self.has_orphans = not none_left
        if self._killer:
            self._killer.step(reaped)
        for pid, status in reaped:
            for attempt in self.all:
                if attempt.pid == pid and not attempt.ended:
                    attempt.end(status)
        if self.stirred:
            self.stirred = False
            for attempt in self.all:
                if attempt.reaper is not None and not attempt.reaper.exited:
                    self._hear(attempt)
        self._tell_ends()

    def _hear(self, attempt: Attempt) -> None:
        its = attempt.reaper
        assert its is not None
        exited = its.look()
        for report in its.reports():  # read behind the look: the last word is among them
            if "error" in report:
                self._refuse(attempt, reason(start_error(report["error"])))
            elif "pid" in report:
                attempt.pid, attempt.start = report["pid"], report["start"]
                self._census.roots[(attempt.pid, attempt.start)] = attempt.task
            elif "started" in report:
                self._announce(attempt)
            elif not attempt.ended:
                attempt.end(report["status"])
        if exited:
            self._selector.unregister(its.link)
            its.link.close()
            self._census.reapers.pop(its.pid, None)
            if not its.none_left:
                if not attempt.pid:
                    self._refuse(attempt, "its reaper was killed before it could start it")
                elif not attempt.announced:
                    self._announce(attempt)
                self._on_broken(attempt)

    def _tell_ends(self) -> None:
        """An end is told when the task's own output is in its file: the last lines before an
        exit are the ones that matter. A grandchild that holds the pipe delays it no longer
        than a second."""
        changed = False
        for attempt in self.all:
            if not attempt.ended or attempt.eof:
                continue
            attempt.eof = self._outputs.ended(attempt.log)
            late = time.monotonic() - attempt.ended_at > _WAIT_FOR_OUTPUT
            if not attempt.told and (attempt.eof or late or self._outputs.settled(attempt.log)):
                attempt.told = changed = True
                facts = attempt.facts()
                if attempt.port and not attempt.listening:
                    facts["held"] = ports.holder(attempt.port)
                self._channels.tell(wire.EXITED, facts)
            if attempt.eof:
                changed = True
                self._channels.tell(wire.EOF, attempt.facts())
        if changed:
            self._on_change()

    # --- kills ----------------------------------------------------------------------------

    def kill(self, tasks: set[str] | None) -> None:
        """Has the reapers kill all that is below them; what no reaper has, the agent kills."""
        for attempt in self._of(tasks):
            if attempt.reaper is not None:
                attempt.reaper.kill()
        if self._orphaned(tasks) and self._killer is None:
            self._killer = children.Killer()

    def killed(self) -> None:
        """No kill is under way any more."""
        self._killer = None

    def gone(self, tasks: set[str] | None) -> bool:
        """The kernel's word that nothing is left which these tasks have started: each reaper has
        said so. Where a reaper was killed, and of everything, we must have no child ourselves."""
        for attempt in self._of(tasks):
            if attempt.forking and (attempt.reaper is None or not attempt.reaper.exited):
                return False
        return not (self._orphaned(tasks) and self.has_orphans)

    def give_up(self, tasks: set[str] | None) -> None:
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

    def _of(self, tasks: set[str] | None) -> list[Attempt]:
        return [attempt for attempt in self.all if tasks is None or attempt.task in tasks]
