"""A run that another launcher on this machine tends, seen from outside.

Many may look at one run: its launcher tells how it stands and hears wishes by the door, events
and logs are read from disk. So a page in a browser may be closed, reloaded or opened twice
without any harm.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from ..hosts.credentials import Ask
from ..ids import TaskId
from ..run.snapshot import Snapshot
from ..run.states import Outcome, RunPhase, TaskState
from ..store.logs import LogStore
from ..store.metrics import Series
from ..store.runs import RunFolder
from .attach import StoredRun
from .questions import Answers
from .wishes import Watch, wish

_PACE = 0.1
_ALONE = 3.0
"""Seconds without a launcher after which the run counts as unwatched: a takeover is shorter."""
_PATIENCE = 60.0


class Viewer:
    """Implements `control.RunControl`; call `close` when it is no longer looked at."""

    def __init__(
        self,
        folder: RunFolder,
        *,
        tended: Callable[[], bool] | None = None,
        rescue: Callable[[], None] | None = None,
        ask: Ask | None = None,
    ) -> None:
        """Looks at a run.

        Args:
            folder: the run's.
            tended: whether a launcher has the run, or is about to.
            rescue: starts a launcher that takes the run over; used when all is to be killed and
                nobody is there to do it.
            ask: asks the person who looks what the launcher wants to know of one.

        Raises:
            ClusterFileError: the stored cluster file cannot be read.
        """
        self.folder = folder
        self._tended = tended or (lambda: folder.launcher_pid() is not None)
        self._rescue = rescue
        self._answers = Answers(ask, self._answer) if ask is not None else None
        self._run = StoredRun(folder)
        self._size = -1
        self._notes: list[str] = []
        self._watch = Watch(folder.run_id)
        self._live: Snapshot | None = None
        self._alone_since: float | None = None
        self._logs = LogStore(folder.path, read_only=True)
        self._listeners: list[Callable[[Snapshot], None]] = []
        self._closed = threading.Event()
        self._read_events()
        self._snapshot = self._look()
        self._thread = threading.Thread(target=self._follow, name="viewer", daemon=True)
        self._thread.start()

    @property
    def run_id(self) -> str:
        """The run that is looked at."""
        return self.folder.run_id

    @property
    def logs(self) -> LogStore:
        """The run's logs, only read."""
        return self._logs

    @property
    def living(self) -> bool:
        """The run has not ended."""
        return self._snapshot.state is not RunPhase.ENDED

    def snapshot(self) -> Snapshot:
        """The run as its launcher tells it; without one, as its events do."""
        return self._snapshot

    def subscribe(self, listener: Callable[[Snapshot], None]) -> None:
        """Calls `listener` with each new snapshot, on the viewer's thread."""
        self._listeners.append(listener)

    def series(self, task: TaskId) -> Series:
        """What the task's metric lines said over time."""
        self._run.metrics.read()
        return self._run.metrics.series(task)

    def kill_all(self) -> None:
        """Ends everything; a second call at once."""
        # Not a daemon: a page that is closed right after the key must not take the wish with it.
        threading.Thread(target=self._kill, name="kill").start()

    def restart(self, task: TaskId, *, hard: bool = False) -> None:
        """Ends a task and starts it again."""
        self._say(f"restart {task}", wish="restart", task=str(task), hard=hard)

    def signal(self, task: TaskId, name: str) -> None:
        """`TERM` or `KILL` to one task."""
        self._say(f"{name} to {task}", wish="signal", task=str(task), name=name)

    def detach(self) -> None:
        """Looks no more; the run is tended elsewhere already."""
        self.close()
        self._thread.join(1.0)
        self._publish(replace(self._snapshot, state=RunPhase.ENDED, outcome=Outcome.DETACHED))

    def close(self) -> None:
        """Stops looking."""
        self._closed.set()

    @property
    def closed(self) -> bool:
        """It was closed, or there is nothing more to be seen."""
        return self._closed.is_set() or not self._thread.is_alive()

    # --- the viewer's thread --------------------------------------------------------------

    def _follow(self) -> None:
        while not self._closed.is_set():
            live = self._watch.next(_PACE)
            behind = self._read_events()
            if self._answers is not None:
                self._answers.show(self._watch.questions)
            if live is not None and live.outcome is not Outcome.DETACHED:  # the run goes on
                self._live = live
            if not self._watch.connected and not behind:
                self._live = None  # the events tell all that its last snapshot did
                self._closed.wait(_PACE)
            if not self._closed.is_set():
                self._publish(self._look())
            if self._run.over and not (self._watch.connected or behind):
                break
        self._watch.close()
        if self._answers is not None:
            self._answers.close()

    def _publish(self, snapshot: Snapshot) -> None:
        if snapshot != self._snapshot:
            self._snapshot = snapshot
            for listener in self._listeners:
                listener(snapshot)

    def _read_events(self) -> bool:
        """Reads the run's journal again when it has grown."""
        with suppress(OSError):
            size = self.folder.journal.stat().st_size
            if size != self._size:
                self._size = size
                self._run = StoredRun(self.folder)
        return False

    def _look(self) -> Snapshot:
        snapshot = self._live or self._alone(self._run.snapshot())
        tasks = []
        for view in snapshot.tasks:
            log = self._logs.open(view.id)
            last = view.last_output
            with suppress(FileNotFoundError):
                info = os.stat(log.path)
                if info.st_size > log.size:
                    log.grown(info.st_size, info.st_mtime)
                if info.st_size and self._live is None:
                    last = info.st_mtime
            tasks.append(replace(view, log_size=log.size, last_output=last))
        told = self._run.damage.told(self.run_id)
        notes = (*snapshot.notes, *self._notes, *([told] if told else ()))
        return replace(snapshot, tasks=tuple(tasks), notes=notes)

    def _alone(self, snapshot: Snapshot) -> Snapshot:
        """What is known when no launcher tells it. Tasks of a run that nobody tends are not
        shown as if they were being watched."""
        now = time.monotonic()
        if self._watch.connected or snapshot.state is RunPhase.ENDED or self._tended():
            self._alone_since = None
            return snapshot
        if self._alone_since is None:
            self._alone_since = now
        if now - self._alone_since < _ALONE:
            return snapshot
        why = "no launcher tends this run"
        text = f"{why}: F9 ends what is left of it, tfmux attach goes on with it"
        if text not in self._notes:
            self._notes.append(text + self._last_words())
        tasks = tuple(
            view if view.state.ended else replace(view, state=TaskState.LOST, reason=why)
            for view in snapshot.tasks
        )
        return replace(snapshot, tasks=tasks)

    def _last_words(self) -> str:
        """What the launcher wrote before it died, when it had not even begun."""
        if not self._run.run.contacted_hosts:
            with suppress(OSError):
                said = (self.folder.path / "launcher.log").read_text(errors="replace")
                return f"\n{said[-500:].strip()}"
        return ""

    # --- wishes ---------------------------------------------------------------------------

    def _kill(self) -> None:
        """Until it was heard: a launcher that has just been started opens its door a moment
        later, and one that has died is replaced by another."""
        deadline = time.monotonic() + _PATIENCE
        rescued = False
        while not wish(self.run_id, wish="kill"):
            if not self.living:
                return
            if time.monotonic() > deadline:
                self._notes.append(f"kill was not heard; in a terminal: tfmux kill {self.run_id}")
                return
            if not rescued and self._rescue is not None and not self._tended():
                self._rescue()
                rescued = True
            time.sleep(_PACE / 2)

    def _answer(self, ident: int, text: str | None) -> None:
        if not wish(self.run_id, wish="answer", id=ident, text=text):
            self._notes.append("the answer was not heard: no launcher listens")

    def _say(self, words: str, **what: Any) -> None:
        if not wish(self.run_id, **what):
            self._notes.append(f"{words} was not heard: no launcher listens")
