"""Writer of a run's records: `events.jsonl` and `metrics.jsonl`.

A thread of its own writes them: whoever records something never waits for the disk. Records of a
file that come meanwhile are written together. What a full or hanging disk does not take is kept and
tried again; of metrics only so many. What would be too long to be read again is not written, and
metrics are thinned out before their file grows too large.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from ..quantities import size
from ..run.gpus import GpuSample
from ..run.snapshot import HostView, Metric
from .disk import DiskThread, Files
from .runs import SLOW_DISK_SECONDS, RunFolder
from .stream import LONGEST, Line, encode
from .thinning import LARGEST, thinned

_AGAIN_SECONDS = 1.0
_MOST_UNWRITTEN = 10_000
"""Records that wait for the disk; where there are more, those of metrics are not kept."""
_AGAIN_BYTES = 1 << 20
"""Growth after which a file that could not be replaced is thinned out again."""


class RunWriter:
    """Appends to the records of one run, for one launcher."""

    def __init__(
        self,
        folder: RunFolder,
        failed: Callable[[BaseException], None],
        disk: Files | None = None,
        largest: int = LARGEST,
    ) -> None:
        """`failed` gets what goes wrong here, but for the disk, on the thread. The metrics file
        has at most `largest` bytes."""
        self._folder = folder
        self._disk = disk or Files()
        self._trouble = ""
        files = (folder.events, folder.metrics)
        self._maybe_cut = {path for path in files if path.exists()}
        """Files in which an earlier launcher, when it was killed, may have cut its last line."""
        self._metrics_size = -1
        """Bytes of the metrics file; -1: not looked at yet."""
        self._largest = self._thin_at = largest
        self.unwritten = 0
        """Records that are not in their file yet."""
        self._waiting: dict[Path, list[Line]] = {}
        """Records for which the thread will come, by file."""
        self._contacted: set[str] = set()
        """Hosts whose first contact is safe on the disk."""
        self._lock = threading.Lock()
        """Guards `unwritten` and `_waiting`; never held for long."""
        self.omitted = ""
        """The last record that was too long to be written, in a sentence; empty: none was."""
        self._worker = DiskThread("records", failed)

    def put(self, line: Line) -> None:
        """Adds a record; those of metrics are left out while the disk is behind."""
        metric = isinstance(line, Metric | GpuSample)
        if metric and self.unwritten > _MOST_UNWRITTEN:
            return
        path = self._folder.metrics if metric else self._folder.events
        with self._lock:
            self.unwritten += 1
            waiting = self._waiting.setdefault(path, [])
            waiting.append(line)
        if len(waiting) == 1:  # the thread takes all that have come by then
            self._worker.put(lambda: self._write(path))

    @property
    def trouble(self) -> str:
        """Reason for which records wait to be written; empty if they do not."""
        if self._worker.stalled > SLOW_DISK_SECONDS:
            return self._trouble or "the disk does not answer"
        return ""

    @property
    def idle(self) -> bool:
        """All records are in their files, or given up."""
        return self._worker.idle

    def close(self) -> None:
        """Takes no more; returns at once."""
        self._worker.put(self._disk.close)
        self._worker.stop()

    # --- the thread -----------------------------------------------------------------------

    def _write(self, path: Path) -> None:
        """Writes the records of a file that wait."""
        with self._lock:
            lines = self._waiting.pop(path)
        data = b"".join(map(self._readable, lines))
        if path == self._folder.metrics:
            self._make_room(len(data))
        if self._append(path, data):
            self._sync(path, lines)
            with self._lock:
                self.unwritten -= len(lines)

    def _make_room(self, more: int) -> None:
        """Thins the metrics out where their file would become too large."""
        path = self._folder.metrics
        if self._metrics_size < 0:
            self._metrics_size = path.stat().st_size if path.exists() else 0
        self._metrics_size += more
        if self._metrics_size <= self._thin_at:
            return
        with self._worker.asking():
            try:
                data = thinned(self._disk.read_end(path, 8 * self._largest), self._largest)
                self._disk.replace(path, data)
            except OSError:  # there is no room for both: those that wait are written, if possible
                self._thin_at = self._metrics_size + _AGAIN_BYTES
                return
        self._metrics_size, self._thin_at = len(data) + more, self._largest

    def _append(self, path: Path, waiting: bytes) -> bool:
        """Adds lines to a file; False: it was given up."""
        if waiting and path in self._maybe_cut:
            self._maybe_cut.remove(path)
            waiting = b"\n" + waiting
        with self._worker.asking():
            while waiting:
                try:
                    waiting = waiting[self._disk.write(path, waiting) :]
                except OSError as error:
                    self._trouble = error.strerror or str(error)
                    if not self._worker.pause(_AGAIN_SECONDS):
                        return False
        self._trouble = ""
        return True

    def _sync(self, path: Path, lines: list[Line]) -> None:
        """Has the first contact with a host outlive a power failure: the next launcher asks it."""
        hosts = {line.name for line in lines if isinstance(line, HostView) and line.contacted}
        if hosts - self._contacted:
            self._contacted |= hosts
            with self._worker.asking():
                self._disk.sync(path)

    def _readable(self, line: Line) -> bytes:
        """The line of a record; nothing of one that is too long."""
        raw = encode(line)
        if len(raw) <= LONGEST:
            return raw
        about = f"a record of {size(len(raw))} ({line.event})"
        self.omitted = f"{about} was left out: it is too long to be read again"
        return b""
