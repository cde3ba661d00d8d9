"""The drain: what tasks write stands in their logs, byte for byte."""

from __future__ import annotations

import os
import pty
import threading
from pathlib import Path

import pytest

from launcher.agent import task_logs
from launcher.agent.task_logs import Drain, Log
from tests.support.patience import wait_until

PIECE = bytes(range(256)) * 1024


def drained(log: Log, pieces: list[bytes], ends: tuple[int, int]) -> int:
    """Writes pieces into a pipe or terminal that a drain empties into the log; returns how
    often the loop was called."""
    calls: list[float] = []
    reader = Drain(lambda: calls.append(1))
    reader.start()
    ours, theirs = ends
    log.open()
    reader.add(ours, log)

    def write() -> None:
        for piece in pieces:
            view = memoryview(piece)
            while view:
                view = view[os.write(theirs, view) :]
        os.close(theirs)

    writer = threading.Thread(target=write)
    writer.start()
    writer.join()
    wait_until(lambda: log.fd < 0, "the pipe has ended, and the log is closed")
    assert not reader.draining(log)
    return len(calls)


def test_all_bytes_stand_behind_what_was_there(tmp_path: Path) -> None:
    """Also of a second attempt, whose output follows the first's."""
    path = tmp_path / "worker-0.log"
    pieces = [PIECE] * 20 + [b"the end\n"]
    for attempt in (1, 2):
        log = Log(str(path), 1 << 40)
        assert drained(log, pieces, os.pipe()) >= 1
        assert path.read_bytes() == b"".join(pieces) * attempt
        assert (log.size, log.lost, log.cut) == (path.stat().st_size, 0, 0)


@pytest.mark.parametrize("limit", [0, 1000, task_logs._CHUNK, 3 * task_logs._CHUNK + 17])
def test_a_limit_is_kept_to_the_byte(tmp_path: Path, limit: int) -> None:
    """What is beyond is counted, and the task writes on."""
    log = Log(str(tmp_path / "log"), limit)
    data = PIECE * 8
    drained(log, [data], os.pipe())
    assert Path(log.path).read_bytes() == data[:limit]
    assert (log.size, log.cut) == (limit, len(data) - limit)


def test_what_finds_no_room_is_counted() -> None:
    """A device that is always full."""
    log = Log("/dev/full", 1 << 40)
    drained(log, [PIECE], os.pipe())
    assert (log.size, log.lost) == (0, len(PIECE))


def test_a_terminal_is_drained_too(tmp_path: Path) -> None:
    """What it makes of line ends is in the log."""
    log = Log(str(tmp_path / "log"), 1 << 40)
    drained(log, [b"one\ntwo\n"], pty.openpty())
    assert Path(log.path).read_bytes() == b"one\r\ntwo\r\n"
