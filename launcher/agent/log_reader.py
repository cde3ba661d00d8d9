"""Reader of log bytes, in a thread: a disk that hangs must not hold up control frames."""

from __future__ import annotations

from typing import Callable

from . import wire
from .collect import Archive
from .drain import Log
from .log import error_text, log_line
from .workers import Worker

_FRAMES = 4


class OpenLog:
    """A log (or an archive of results) that the launcher reads: `position` is the next byte to
    be read."""

    def __init__(self, number: int, log: Log | Archive, position: int) -> None:
        self.number = number
        self.log = log
        self.position = position
        self.failed = False
        self.reading = False
        """The thread has it; nobody else touches `position` meanwhile."""


class LogReader:
    """One for all channels of an agent. `later` runs something in the agent's loop."""

    def __init__(self, later: Callable[[Callable[[], None]], None]) -> None:
        self._later = later
        self._worker = Worker("log reader")

    def read(
        self, log: OpenLog, budget: int, done: Callable[[OpenLog, list[bytes], int], None]
    ) -> int:
        """Reads the next `DATA` frames of a log, few of them and at most `budget` bytes. `done` is
        called in the loop with the frames, and how many bytes fewer they are than the number
        that is returned here."""
        limit = min(budget, log.log.size - log.position, _FRAMES * wire.DATA_BYTES)
        log.reading = True
        self._worker.do(lambda: self._read(log, limit, done))
        return limit

    def _read(
        self, log: OpenLog, limit: int, done: Callable[[OpenLog, list[bytes], int], None]
    ) -> None:
        frames: list[bytes] = []
        count = 0
        try:
            while count < limit:
                some = min(wire.DATA_BYTES, limit - count)
                chunk = log.log.pread(some, log.position)
                if not chunk:
                    break
                frames.append(wire.encode_data(log.number, log.position, chunk))
                log.position += len(chunk)
                count += len(chunk)
        except OSError as error:  # not tried again: it would fail without end
            log_line(f"log {log.number}: {error_text(error)}")
            log.failed = True

        def tell() -> None:
            log.reading = False
            done(log, frames, limit - count)

        self._later(tell)
