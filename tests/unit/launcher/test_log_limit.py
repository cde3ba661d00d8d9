"""A log that reaches its limit: its beginning and its end are kept, with a mark between them."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from launcher.agent.log_end import end_room
from launcher.agent.task_logs import Log
from launcher.ids import TaskId
from launcher.store.logs import LogFile
from tui.log.document import Document

MARK = re.compile(rb"\[tfmux: (\d+) bytes are not kept here: log_limit\]\n")


class Host:
    """A task's log, and the pipe by which its output comes."""

    def __init__(self, folder: Path, limit: int) -> None:
        self.path, self.limit = folder / "logs/worker-0.log", limit
        self.path.parent.mkdir(exist_ok=True)
        self.log = Log(str(self.path), limit)
        self.log.open()
        self.most = 0

    def write(self, data: bytes, chunk: int = 4096) -> None:
        """Has some output come in chunks."""
        source, sink = os.pipe()
        buffer = bytearray(chunk)
        for at in range(0, len(data), chunk):
            os.write(sink, data[at : at + chunk])
            assert self.log.append_from(source, buffer) == len(data[at : at + chunk])
            used = sum(file.stat().st_size for file in self.path.parent.iterdir())
            assert used <= self.limit, "log and kept end"
        os.close(sink)
        assert self.log.append_from(source, buffer) == 0
        os.close(source)

    def end(self) -> bytes:
        """Ends an attempt; what stands in the log."""
        self.log.append_end()
        assert [file.name for file in self.path.parent.iterdir()] == [self.path.name]
        found = self.path.read_bytes()
        assert len(found) == self.log.size <= self.limit
        return found


def lines(count: int, word: str = "Schritt ä") -> bytes:
    """Numbered lines."""
    return b"".join(f"{word} {number}\n".encode() for number in range(count))


@pytest.mark.parametrize(
    ("limit", "chunk"), [(1000, 1), (1000, 7), (5000, 13), (20_000, 300), (20_000, 4096)]
)
def test_beginning_and_end_are_kept(tmp_path: Path, limit: int, chunk: int) -> None:
    """The log of more output than its limit, in chunks of any size, has the first bytes, a mark
    that says exactly how many are missing, and whole lines up to the last one."""
    host = Host(tmp_path, limit)
    said = lines(3 * limit // 10) + b"Traceback (most recent call last):\nKeyError: 'x'\n"
    host.write(said, chunk)
    found = host.end()
    mark = MARK.search(found)
    assert mark is not None, found[-200:]
    head, tail = found[: mark.start()], found[mark.end() :]
    assert len(head) >= limit - end_room(limit)
    assert said.startswith(head) or said.startswith(head[:-1]), "the newline may be the mark's"
    assert said.endswith(tail) and tail.endswith(b"KeyError: 'x'\n")
    assert tail.startswith("Schritt ä".encode()), "a line that was cut is left out"
    begin = head if said.startswith(head) else head[:-1]
    assert len(begin) + int(mark[1]) + len(tail) == len(said)
    assert host.log.cut == int(mark[1])


def test_what_fits_is_kept_byte_for_byte(tmp_path: Path) -> None:
    """Output that fits, with the end that is kept, has no mark, though its first part was full."""
    host = Host(tmp_path, 20_000)
    said = os.urandom(13_000)
    host.write(said)
    assert host.end() == said
    assert host.log.cut == 0


def test_each_attempt_has_its_end(tmp_path: Path) -> None:
    """Many attempts that flood, one after the other: of each of the first ones, and of small ones
    later on, the last line is there, and the log stays within its limit."""
    host = Host(tmp_path, 100_000)
    for attempt in range(12):
        host.write(lines(12_000) + b"last line of %d\n" % attempt)
        found = host.end()
        if attempt < 6:
            assert found.endswith(b"last line of %d\n" % attempt)
    for _ in range(40):
        host.write(lines(500))
        host.end()


def test_the_next_agent_takes_the_end_up(tmp_path: Path) -> None:
    """An agent that dies leaves the kept end in its file; who opens the log next appends it."""
    host = Host(tmp_path, 20_000)
    host.write(lines(5000) + b"the end\n")
    assert not host.path.read_bytes().endswith(b"the end\n")
    next_one = Log(str(host.path), 20_000)
    next_one.open()
    found = host.path.read_bytes()
    assert found.endswith(b"the end\n") and MARK.search(found) and len(found) <= 20_000
    assert next_one.size == len(found)
    next_one.open()
    assert host.path.read_bytes() == found, "once"


@pytest.mark.parametrize(
    "left", [b"", b"x", b"\0" * 16, b"\xff" * 16, b"\xff" * 4096], ids=range(5)
)
def test_a_broken_file_of_an_end_is_removed(tmp_path: Path, left: bytes) -> None:
    """What a full disk or a power cut has left of a kept end is removed, and the log is as it
    was."""
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "worker-0.log").write_bytes(b"said\n")
    (logs / "worker-0.log.end").write_bytes(left)
    host = Host(tmp_path, 20_000)
    assert host.end() == b"said\n"


@pytest.mark.parametrize("move", ["\x1b[2A", "\x1b[A\x1b[A", "\x1b[A\r\x1b[A", "\x1b[2F"])
def test_progress_bars_do_not_rewrite_the_mark(tmp_path: Path, move: str) -> None:
    """What moves up to lines above, as several bars of tqdm do, leaves the mark to be seen."""
    host = Host(tmp_path, 20_000)
    bars = "".join(f"{move}bar a {n}\nbar b {n}\n" for n in range(3000))
    host.write(f"start\n\n\n{bars}KeyError: 'x'\n".encode())
    host.end()
    document = Document(TaskId("worker", 0), LogFile(host.path))
    document.refresh()
    shown = [document.line(number).data for number in range(document.count)]
    assert sum(MARK.fullmatch(line + b"\n") is not None for line in shown) == 1, shown
    assert shown[0] == b"start" and shown[-2:] == [b"bar b 2999", b"KeyError: 'x'"]


def test_a_line_without_an_end_is_cut_at_a_character(tmp_path: Path) -> None:
    """One line of many bytes that has no newline is cut between two characters."""
    host = Host(tmp_path, 20_000)
    host.write("ä".encode() * 50_000, 4095)
    found = host.end()
    mark = MARK.search(found)
    assert mark is not None
    found[mark.end() :].decode()
