"""A run that another launcher on this machine tends, seen from its folder.

Many may look at one run: events and logs are read from disk, wishes go to its launcher by the
door. So a page in a browser may be closed, reloaded or opened twice without any harm.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from .attach import StoredRun
from .ids import TaskId
from .logs import LogStore
from .metrics import Series
from .replay import Replay
from .snapshot import Snapshot
from .states import RunState
from .wishes import wish

_PACE = 0.1


class Viewer:
    """Implements `control.RunControl`; call `close` when it is no longer looked at."""

    def __init__(self, run: StoredRun) -> None:
        self._folder = run.folder
        self._replay = Replay(run.plan, ())
        self._offset = 0
        self._rest = b""
        self._logs = LogStore(run.folder.path, read_only=True)
        self._listeners: list[Callable[[Snapshot], None]] = []
        self._closed = threading.Event()
        self._snapshot = self._look()
        self._thread = threading.Thread(target=self._follow, name="viewer", daemon=True)
        self._thread.start()

    @property
    def run_id(self) -> str:
        """The run that is looked at."""
        return self._folder.run_id

    @property
    def logs(self) -> LogStore:
        """The run's logs, only read."""
        return self._logs

    @property
    def living(self) -> bool:
        """The run has not ended."""
        return self._snapshot.state is not RunState.ENDED

    def snapshot(self) -> Snapshot:
        """The run as its events tell it."""
        return self._snapshot

    def subscribe(self, listener: Callable[[Snapshot], None]) -> None:
        """Calls `listener` with each new snapshot, on the viewer's thread."""
        self._listeners.append(listener)

    def series(self, task: TaskId) -> Series:
        """What the task's metric lines said over time."""
        return self._replay.series[task]

    def kill_all(self) -> None:
        """Ends everything; a second call at once."""
        wish(self.run_id, wish="kill")

    def restart(self, task: TaskId, *, hard: bool = False) -> None:
        """Ends a task and starts it again."""
        wish(self.run_id, wish="restart", task=str(task), hard=hard)

    def signal(self, task: TaskId, name: str) -> None:
        """`TERM` or `KILL` to one task."""
        wish(self.run_id, wish="signal", task=str(task), name=name)

    def detach(self) -> None:
        """It is tended elsewhere already."""

    def close(self) -> None:
        """Stops looking."""
        self._closed.set()

    def _follow(self) -> None:
        while not self._closed.wait(_PACE):
            before, self._snapshot = self._snapshot, self._look()
            if self._snapshot != before:
                for listener in self._listeners:
                    listener(self._snapshot)

    def _look(self) -> Snapshot:
        with suppress(FileNotFoundError), self._folder.journal.open("rb") as file:
            file.seek(self._offset)
            data = file.read()
            self._offset += len(data)
            lines = (self._rest + data).split(b"\n")
            self._rest = lines.pop()
            for line in lines:
                with suppress(ValueError, KeyError):
                    self._replay.read(json.loads(line))
        snapshot = self._replay.snapshot
        tasks = []
        for view in snapshot.tasks:
            log = self._logs.open(view.id)
            last = view.last_output
            with suppress(FileNotFoundError):
                info = os.stat(log.path)
                if info.st_size > log.size:
                    log.grown(info.st_size, info.st_mtime)
                if info.st_size:
                    last = info.st_mtime
            tasks.append(replace(view, log_size=log.size, last_output=last))
        return replace(snapshot, tasks=tuple(tasks))
