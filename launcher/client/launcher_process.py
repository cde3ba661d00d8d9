"""Starting a launcher process (`process`) and giving it its order."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from contextlib import ExitStack, suppress
from typing import Any

from ..nameless import nameless_file

_END_SECONDS = 2.0
"""Longest wait for the end of a process that was killed."""


class LauncherProcess:
    """A launcher process that has been started and waits for its order: its imports take a third
    of a second, in which the front end can import, too, and read files."""

    _ordered = False

    def __init__(self, *, ssh: bool = False) -> None:
        """`ssh`: it will log in to hosts, as far as one can see, and imports what does that, too,
        before its order comes."""
        self._errors = nameless_file()
        words = [sys.executable, "-P", "-m", "launcher.process.entry"]
        with ExitStack() as unless_started:
            unless_started.callback(self.forget)
            self.link, theirs = socket.socketpair()
            unless_started.callback(self.link.close)
            with theirs:
                self._process = subprocess.Popen(
                    [*words, str(theirs.fileno()), *(["ssh"] if ssh else [])],
                    stdin=subprocess.DEVNULL,
                    stdout=self._errors,
                    stderr=self._errors,
                    start_new_session=True,
                    pass_fds=(theirs.fileno(),),
                )
            unless_started.pop_all()

    def order(self, order: dict[str, Any], lock: int | None = None) -> socket.socket:
        """Says what to do, and hands the run's lock over; returns the connection, which is the
        first client's from then on."""
        line = json.dumps(order).encode() + b"\n"
        with suppress(OSError):  # it has died: whoever reads finds the end of the stream
            sent = socket.send_fds(self.link, [line], [] if lock is None else [lock])
            self.link.sendall(line[sent:])
        if lock is not None:
            os.close(lock)
        self._ordered = True
        threading.Thread(target=self._process.wait, name="reap", daemon=True).start()
        return self.link

    @property
    def pid(self) -> int:
        return self._process.pid

    def kill(self) -> None:
        """Ends it as it stands, whether it has its order or not."""
        self._process.kill()
        with suppress(subprocess.TimeoutExpired):  # it sleeps in the kernel, on a disk
            self._process.wait(_END_SECONDS)

    @property
    def alive(self) -> bool:
        """Whether the process has not ended."""
        return self._process.poll() is None

    def cancel(self) -> None:
        """Ends it, unless it has its order."""
        if not self._ordered:
            self.link.close()
            self._process.kill()
            self._process.wait()
            self.forget()

    def forget(self) -> None:
        """Lets go of what it wrote to standard error, which nobody asks for any more."""
        self._errors.close()

    @property
    def errors(self) -> str:
        """The end of what it wrote to standard error before it had a run's folder."""
        self._errors.seek(0)
        return self._errors.read(4096).decode(errors="replace").strip()
