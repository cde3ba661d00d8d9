"""A program in a pseudo-terminal of 200×50 whose screen is read all the while."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

SIZE = (200, 50)
ROOT = Path(__file__).resolve().parent.parent
DEADLINE = 120.0
TFMUX = (sys.executable, "-m", "tui.main")
_KEPT = 1 << 20
"""Bytes of the screen's output in which a text is looked for."""


def until(condition: Callable[[], object], seconds: float = DEADLINE, pace: float = 0.002) -> None:
    """Waits for a condition; ends the program when it does not come."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit("it did not come to an end")
        time.sleep(pace)


def _environ() -> dict[str, str]:
    """This process's, without the size of its own terminal."""
    return {name: text for name, text in os.environ.items() if name not in ("COLUMNS", "LINES")}


class Terminal:
    """A program that runs in the project's folder, and the keys that are typed at it."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", SIZE[1], SIZE[0], 0, 0))
        self._seen = b""
        self._news = threading.Condition()
        self._fd = ours
        self.began = time.perf_counter()
        self.process = subprocess.Popen(
            argv,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**_environ(), "TERM": "xterm-256color", "COLORTERM": "truecolor", **(env or {})},
            cwd=ROOT,
            start_new_session=True,
        )
        os.close(theirs)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def type(self, keys: bytes) -> None:
        """Presses keys."""
        with suppress(OSError):  # it has just ended
            os.write(self._fd, keys)

    def until(self, text: bytes) -> float:
        """Seconds from the program's start until the text has been painted."""
        with self._news:
            if not self._news.wait_for(lambda: text in self._seen, DEADLINE):
                raise SystemExit(f"never painted: {text!r}")
        return time.perf_counter() - self.began

    def close(self, keys: bytes) -> None:
        """Presses keys until the program has ended."""
        deadline = time.monotonic() + 30
        while self.process.poll() is None:
            if time.monotonic() > deadline:
                self.process.send_signal(signal.SIGKILL)
            self.type(keys)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(0.2)
        self._reader.join(1.0)
        os.close(self._fd)

    def _read(self) -> None:
        with suppress(OSError):  # the program has closed the terminal
            while data := os.read(self._fd, 1 << 16):
                with self._news:
                    self._seen = (self._seen + data)[-_KEPT:]
                    self._news.notify_all()


class Typist:
    """Types a key ten times a second at `bench.timed`, which writes down when each has come."""

    EVERY = 0.1
    KEY = b"\x14"

    def __init__(self, terminal: Terminal, arrivals: Path) -> None:
        self._terminal = terminal
        self._arrivals = arrivals
        self._sent: list[float] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._type, daemon=True)
        self._thread.start()

    def stop(self) -> list[float]:
        """Types no more; milliseconds that each key took to its handler."""
        self._stop.set()
        self._thread.join()
        until(lambda: len(self._times()) >= len(self._sent), 10.0, 0.01)
        pairs = zip(self._sent, self._times(), strict=False)
        return [(came - sent) * 1000 for sent, came in pairs]

    def _times(self) -> list[float]:
        return [float(line) for line in self._arrivals.read_text().split()]

    def _type(self) -> None:
        while not self._stop.wait(self.EVERY):
            self._sent.append(time.monotonic())
            self._terminal.type(self.KEY)


def p95(figures: Sequence[float]) -> float:
    """The figure that 95 of 100 do not exceed."""
    return sorted(figures)[int((len(figures) - 1) * 0.95)]
