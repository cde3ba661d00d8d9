"""Writer of a run's records: `journal.jsonl`, `events.jsonl` and `metrics.jsonl`.

A thread of its own writes them: whoever records something never waits for the disk. Records of a
file that come meanwhile are written together. What a full or hanging disk does not take is kept and
tried again; of metrics only so many. What would be too long to be read again is not written.
"""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..ids import TaskId
from ..quantities import size
from ..run.events import Event
from ..run.snapshot import Snapshot
from .disk import Files
from .disk_thread import DiskThread
from .journal import encode, final_record, omitted_record
from .json_lines import LONGEST
from .metrics_file import encode_metrics
from .runs import STALLED_SECONDS, RunFolder

_AGAIN_SECONDS = 1.0
_MOST_UNWRITTEN = 10_000
"""Records that wait for the disk; where there are more, those of metrics are not kept."""
_TOGETHER = 256
"""Records that are written at a time; a disk that answers late then costs little."""


class RunWriter:
    """Appends to the records of one run, for one launcher."""

    def __init__(
        self,
        folder: RunFolder,
        failed: Callable[[BaseException], None],
        disk: Files | None = None,
    ) -> None:
        """`failed` gets what goes wrong here, but for the disk, on the thread."""
        self.launcher = secrets.token_hex(4)
        """Names this launcher in the journal."""
        self._folder = folder
        self._disk = disk or Files()
        self._trouble = ""
        files = (folder.journal, folder.public_events, folder.metrics)
        self._maybe_cut = {path for path in files if path.exists()}
        """Files in which an earlier launcher, when it was killed, may have cut its last line."""
        self.unwritten = 0
        """Records that are not in their file yet."""
        self._waiting: dict[Path, list[object]] = {}
        """Records for which the thread will come, once for each `_TOGETHER`, by file."""
        self._lock = threading.Lock()
        """Guards `unwritten` and `_waiting`; never held for long."""
        self.omitted = ""
        """The last record that was too long to be written, in a sentence; empty: none was."""
        self._worker = DiskThread("records", failed)

    def journal(self, event: Event, *, after: int | None = None) -> None:
        """Adds an event to the journal; `after`: how many events this launcher has read there."""
        began = {} if after is None else {"after": after}
        self._put(self._folder.journal, {"launcher": self.launcher, **began, **encode(event)})

    def final(self, snapshot: Snapshot) -> None:
        """Adds the last record of a run that has ended to the journal."""
        self._put(self._folder.journal, {"launcher": self.launcher, **final_record(snapshot)})

    def public(self, record: Mapping[str, Any]) -> None:
        """Appends a public event; metrics are left out while the disk is behind."""
        if record.get("event") != "metric" or self.unwritten <= _MOST_UNWRITTEN:
            self._put(self._folder.public_events, record)

    def metrics(
        self, time: float, task: TaskId, values: Mapping[str, float], rate: float | None
    ) -> None:
        """Adds what a metric line named."""
        if self.unwritten <= _MOST_UNWRITTEN:
            self._put(self._folder.metrics, encode_metrics(time, task, values, rate))

    @property
    def trouble(self) -> str:
        """Reason for which records wait to be written; empty if they do not."""
        if self._worker.stalled > STALLED_SECONDS:
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

    def _put(self, path: Path, record: object) -> None:
        with self._lock:
            self.unwritten += 1
            waiting = self._waiting.setdefault(path, [])
            waiting.append(record)
            begins = len(waiting) % _TOGETHER == 1
        if begins:
            self._worker.put(lambda: self._write(path))

    def _write(self, path: Path) -> None:
        """Writes the next records of a file."""
        with self._lock:
            waiting = self._waiting[path]
            records = waiting[:_TOGETHER]
            del waiting[:_TOGETHER]
        if self._append(path, b"".join(self._readable(path, record) for record in records)):
            with self._lock:
                self.unwritten -= len(records)

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

    def _readable(self, path: Path, record: object) -> bytes:
        """The line of a record, or what is written instead of one that is too long."""
        line = _line(record)
        return line if len(line) <= LONGEST else self._omit(path, record, len(line))

    def _omit(self, path: Path, record: Any, length: int) -> bytes:
        """Leaves a record out, and says so; returns what is written instead."""
        kind = record["event"] if isinstance(record, Mapping) else "metrics"
        about = f"a record of {size(length)} ({kind})"
        self.omitted = f"{path.name}: {about} was left out: it is too long to be read again"
        in_journal = path == self._folder.journal
        return _line(omitted_record(record, length)) if in_journal else b""


def _line(record: object) -> bytes:
    """The line of a record; half a surrogate pair stands in it as JSON has it."""
    return json.dumps(record, ensure_ascii=False).encode(errors="backslashreplace") + b"\n"
