"""Writing a run's records, to a disk that hangs, is full, or takes a part."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from launcher.ids import TaskId
from launcher.run.snapshot import HostView, Metric, Note
from launcher.run.states import HostState
from launcher.store.disk import Files
from launcher.store.disk import Path as Named
from launcher.store.run_writer import RunWriter
from launcher.store.runs import RunFolder
from launcher.store.stream import LineReader, read_stream
from tests.support.patience import PATIENCE, wait_until

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
    writer.put(Note("begun", 1, 1000.0))
    assert disk.asked.wait(PATIENCE)
    for number in range(COUNT):
        writer.put(Note(f"note {number}", number + 2, 1001.0 + number))
        writer.put(Metric(TaskId("worker", 0), "h", {"step": float(number)}, time=1.0 + number))
    assert writer.unwritten == 2 * COUNT + 1 and not writer.idle
    disk.goes_on.set()
    wait_until(lambda: writer.idle, "all is written")
    assert not errors and writer.unwritten == 0 and not writer.trouble
    events, metrics = LineReader(folder.events), LineReader(folder.metrics)
    notes = [one.text for one in events.records() if isinstance(one, Note)]
    assert notes == ["begun", *(f"note {number}" for number in range(COUNT))]
    steps = [one.values["step"] for one in metrics.records() if isinstance(one, Metric)]
    assert steps == [float(number) for number in range(COUNT)]
    assert not events.damage and not metrics.damage
    size = folder.events.stat().st_size + folder.metrics.stat().st_size
    assert disk.writes < size / 5000 + 10
    writer.close()


def test_the_first_contact_with_a_host_outlives_a_power_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next launcher asks it; what changes of it later is no reason to wait for the disk."""
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    folder, errors = RunFolder(tmp_path), list[BaseException]()
    writer = RunWriter(folder, errors.append)
    calls = []
    for state, contacted in ((HostState.CONNECTING, False), (HostState.UP, True)):
        writer.put(HostView("h", "h", state, contacted=contacted, time=1.0))
        wait_until(lambda: writer.idle, "it is written")
        calls.append(len(synced))
    writer.put(HostView("h", "h", HostState.LOST, contacted=True, time=2.0))
    wait_until(lambda: writer.idle, "it is written")
    assert calls == [0, 1] and len(synced) == 1 and not errors
    assert read_stream(folder.events, "r").views.hosts["h"].state is HostState.LOST
    writer.close()


def test_a_record_that_is_too_long_is_told_and_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("launcher.store.run_writer.LONGEST", 250)
    folder, errors = RunFolder(tmp_path), list[BaseException]()
    writer = RunWriter(folder, errors.append)
    for number, text in enumerate(("short", "x" * 300, "short")):
        writer.put(Note(text, number + 1, 1.0))
    wait_until(lambda: writer.idle, "all is written")
    assert [note.number for note in read_stream(folder.events, "r").views.notes] == [1, 3]
    assert "a record of 3" in writer.omitted and "(note) was left out" in writer.omitted
    assert not errors
    writer.close()


def test_what_a_full_disk_never_takes_is_counted(tmp_path: Path) -> None:
    """The launcher says at its end how many records are missing."""

    class Full(Files):
        def write(self, path: Named, data: bytes | memoryview, offset: int = -1) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    writer = RunWriter(RunFolder(tmp_path), list[BaseException]().append, Full())
    for number in range(1000):
        writer.put(Note("a note", number + 1, 1000.0 + number))
    wait_until(lambda: writer.trouble, "it is said")
    assert writer.trouble == "No space left on device" and writer.unwritten == 1000
    writer.close()
    wait_until(lambda: writer.idle, "it gives up")
    assert writer.unwritten == 1000
