"""Writing a run's records, to a disk that hangs, is full, or takes a part."""

from __future__ import annotations

import errno
import json
import threading
from pathlib import Path

from launcher.run import events as ev
from launcher.store.disk import Files
from launcher.store.disk import Path as Named
from launcher.store.journal import read_journal
from launcher.store.run_writer import RunWriter
from launcher.store.runs import RunFolder
from tests.patience import PATIENCE, wait_until

COUNT = 2_000


class OddDisk(Files):
    """Hangs until it is let go, says once that it is full, and takes some bytes at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = threading.Event()
        self.goes_on = threading.Event()
        self.writes = 0

    def write(self, path: Named, data: bytes | memoryview, offset: int = -1) -> int:
        self.asked.set()
        assert self.goes_on.wait(PATIENCE)
        self.writes += 1
        if self.writes == 2:
            raise OSError(errno.ENOSPC, "full")
        return super().write(path, data[:5000], offset)


def test_records_are_written_in_their_order_and_many_at_a_time(tmp_path: Path) -> None:
    """Whatever comes meanwhile; each file has its own."""
    folder, disk, errors = RunFolder(tmp_path), OddDisk(), list[BaseException]()
    writer = RunWriter(folder, errors.append, disk)
    writer.journal(ev.Begin(1000.0))
    assert disk.asked.wait(PATIENCE)
    for number in range(COUNT):
        writer.journal(ev.NoteAdded(1000.0 + number, f"note {number}"))
        writer.public({"event": "run", "number": number})
    assert writer.unwritten == 2 * COUNT + 1 and not writer.idle
    disk.goes_on.set()
    wait_until(lambda: writer.idle, "all is written")
    assert not errors and writer.unwritten == 0 and not writer.trouble
    journal = read_journal(folder.journal)
    assert not journal.damage and len(journal.events) == COUNT + 1
    notes = [one.text for one in journal.events if isinstance(one, ev.NoteAdded)]
    assert notes == [f"note {number}" for number in range(COUNT)]
    told = [json.loads(line)["number"] for line in folder.public_events.open()]
    assert told == list(range(COUNT))
    size = folder.journal.stat().st_size + folder.public_events.stat().st_size
    assert disk.writes < size / 5000 + 2 * COUNT / 100
    writer.close()


def test_what_a_full_disk_never_takes_is_counted(tmp_path: Path) -> None:
    """The launcher says at its end how many records are missing."""

    class Full(Files):
        def write(self, path: Named, data: bytes | memoryview, offset: int = -1) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    writer = RunWriter(RunFolder(tmp_path), list[BaseException]().append, Full())
    for number in range(1000):
        writer.journal(ev.NoteAdded(1000.0 + number, "a note"))
    wait_until(lambda: writer.trouble, "it is said")
    assert writer.trouble == "No space left on device" and writer.unwritten == 1000
    writer.close()
    wait_until(lambda: writer.idle, "it gives up")
    assert writer.unwritten == 1000
