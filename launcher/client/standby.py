"""The launcher process that waits beside a screen on which a cluster can be launched.

A command starts a launcher process and tells it what to run as soon as it knows that itself; a
screen has one started while a person looks at the cluster, and tells it when the person says so.
Until then it contacts nobody: it has imported what a launch needs, and reads its pipe.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

from .launcher_process import LauncherProcess

_AFTER_LAUNCH_SECONDS = 3.0
"""Pause before another process waits when one has been handed over for a launch."""
_AGAIN_SECONDS = 10.0
"""Pause before a process is replaced that has died while it waited."""


class Standby:
    """At most one launcher process that waits for the next launch from a screen.

    It reads its order from a pipe whose other end only this process has, so it ends with the
    screen, however that ends. No method waits for a disk but `take`, as a launch does.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: LauncherProcess | None = None
        self._ssh = False
        """The process that waits has imported what logs in to hosts."""
        self._surroundings: object = None
        """What the process that waits was started with."""
        self._starting = self._closed = False
        self._not_before = 0.0

    def prepare(self, *, ssh: bool) -> None:
        """Has a process wait for a launch that logs in to hosts, or (without `ssh`) may not. One
        that has died is replaced."""
        with self._lock:
            if self._waiting is not None and not self._waiting.alive:
                self._waiting.cancel()
                self._waiting = None
                self._not_before = time.monotonic() + _AGAIN_SECONDS  # it may die again and again
            will_do = self._waiting is not None and (self._ssh or not ssh)
            if will_do or self._starting or self._closed or time.monotonic() < self._not_before:
                return
            self._starting = True
        threading.Thread(target=self._start, args=(ssh,), name="standby", daemon=True).start()

    def take(self) -> LauncherProcess | None:
        """Hands the process over that waits; None where none does, or a new one would be another:
        in another environment or directory, or of another version of the program."""
        with self._lock:
            process, self._waiting = self._waiting, None
            surroundings = self._surroundings
            # The screen still shows the cluster until that of the run has taken its place.
            self._not_before = time.monotonic() + _AFTER_LAUNCH_SECONDS
        if process is None or (process.alive and surroundings == _surroundings()):
            return process
        process.cancel()
        return None

    def dismiss(self) -> None:
        """Ends the process that waits."""
        with self._lock:
            process, self._waiting = self._waiting, None
        if process is not None:
            process.cancel()

    def close(self) -> None:
        """Ends the process that waits, and has no other wait."""
        with self._lock:
            self._closed = True
        self.dismiss()

    def _start(self, ssh: bool) -> None:
        """Starts a process, in a thread: its program may lie on a disk that hangs."""
        process: LauncherProcess | None = None
        before: LauncherProcess | None = None
        try:
            surroundings = _surroundings()
            process = LauncherProcess(ssh=ssh)
        except OSError:  # too many processes or open files: a launch will say it
            surroundings = None
        with self._lock:
            self._starting = False
            if process is None:
                self._not_before = time.monotonic() + _AGAIN_SECONDS
            elif not self._closed:
                before, self._waiting = self._waiting, process
                self._ssh, self._surroundings = ssh, surroundings
                process = None
        for rest in filter(None, (before, process)):
            rest.cancel()


def _surroundings() -> object:
    """What a process is started with and may change while it waits. An upgrade replaces the
    program's files, and a process would import the rest of itself from another version."""
    files = []
    for folder, _, names in os.walk(Path(__file__).parent.parent):
        for name in names:
            if name.endswith(".py"):
                info = os.stat(os.path.join(folder, name))
                files.append((folder, name, info.st_ino, info.st_size, info.st_mtime_ns))
    try:
        directory = os.getcwd()
    except OSError:  # it has been removed
        directory = ""
    return dict(os.environ), directory, sorted(files)
