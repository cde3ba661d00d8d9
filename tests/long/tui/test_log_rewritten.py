"""Logs of programs that rewrite lines above, as panes, searches and filters have them."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from launcher.ids import TaskId
from launcher.lines import Block
from launcher.store import rewritten
from launcher.store.logs import LogFile
from tests.support.budgets import budget
from tests.support.recordings import NAMES, seen, trimmed, written
from tui.log.document import Document
from tui.log.finder import Filtered, Hits
from tui.log.query import Query

TASK = TaskId("worker", 0)


def text_of(rng: random.Random) -> bytes:
    """What a program may write: plain lines, bars, and movements between them."""
    parts = []
    for _ in range(rng.randrange(1, 12)):
        kind = rng.randrange(5)
        if kind == 0:
            parts += [b"plain %d\n" % n for n in range(rng.randrange(80))]
        elif kind == 1:
            bars = rng.randrange(1, 6)
            for step in range(rng.randrange(1, 60)):
                parts += [b"\x1b[2K\rbar %d: \x1b[32m%d\x1b[0m\n" % (n, step) for n in range(bars)]
                parts.append(b"\x1b[%dA" % bars)
            parts.append(b"\n" * bars)
        elif kind == 2:
            parts += [b"\r%d %%" % n for n in range(rng.randrange(40))]
        elif kind == 3:
            moves = (b"\x1b[A", b"\x1b[3F", b"\x1b[40A", b"\x1b[B", b"\n", b"\x1b[K", b"x", b"\r")
            parts += rng.choices(moves, k=rng.randrange(30))
        else:
            parts += [b"long " + b"y" * rng.randrange(1500) + b"\n"] * rng.randrange(40)
    return b"".join(parts)


def reference(data: bytes) -> list[str]:
    """The lines, read in one go from the beginning."""
    block = Block()
    block.feed(data)
    return level([row.text() for row in (*block.settled, *block.rows)])


def level(lines: list[str]) -> list[str]:
    """Lines without empty last ones: one counts when there are bytes of it, seen or not."""
    while lines and not lines[-1]:
        lines.pop()
    return lines


def shown(document: Document) -> list[str]:
    """The lines that a document has."""
    document.refresh()
    texts = []
    for number in range(document.count):
        line = document.line(number)
        block = Block(lines=1)
        block.feed(line.data)
        texts.append(block.rows[0].text())
    return level(texts)


def counted(file: LogFile) -> LogFile:
    """A log of which all has been counted: one look takes a tenth of a second at most."""
    while file.size < file.path.stat().st_size:
        file.refresh()
    return file


def found_by(file: LogFile, text: str) -> tuple[list[int], list[int]]:
    """The lines that a search finds, and those that a filter lets through."""
    hits, filtered = Hits(file, Query(text)), Filtered(Document(TASK, file), text)
    for scan in (hits.scan(), filtered.scan()):
        while next(scan):
            pass
    filtered.refresh()
    return list(hits.lines), [filtered.origin(n)[1] for n in range(filtered.count)]


@pytest.mark.parametrize("states", [200, rewritten.STATE_BYTES])
def test_any_pieces_give_the_lines_of_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, states: int
) -> None:
    """Given what programs write, in any pieces and with readers that come at any time, when a
    document shows it, then it has the lines of a terminal; so have those that take the index from
    the files, a search, and a filter."""
    monkeypatch.setattr(rewritten, "STATE_BYTES", states)
    for trial in range(budget(40, 2000)):
        rng = random.Random(trial)
        data = text_of(rng)
        path = tmp_path / f"{states}-{trial}.log"
        writer = LogFile(path, only_writes=rng.random() < 0.5)
        following = LogFile(path, read_only=True)
        own = Document(TASK, LogFile(tmp_path / f"{states}-{trial}-own.log"))
        at = now = 0
        while at < len(data):
            piece = data[at : at + rng.choice([1, 7, 300, 5000, 100_000])]
            writer.append(at, piece, float(now))
            own.file.append(at, piece, float(now))
            at += len(piece)
            now += rng.choice([0, 1])
            if rng.random() < 0.2:
                assert shown(own) == reference(data[:at]), trial
            if rng.random() < 0.2:
                following.refresh()
                document = Document(TASK, following)
                assert shown(document) == reference(data[: document.size]), trial
        lines = reference(data)
        assert shown(own) == lines, trial
        while following.refresh():
            pass
        for file in (following, LogFile(path, read_only=True), own.file):
            document = Document(TASK, file)
            assert shown(document) == lines, trial
            for number in rng.sample(range(len(lines)), min(20, len(lines))):
                one = Document(TASK, file)
                one.refresh()
                start = one.line(number).start
                assert file.stretch_of(number) or one.number_at(start) == number
        for text in ("bar 1", "plain 3", "0"):
            wanted = [n for n, line in enumerate(lines) if text in line]
            searched, passed = found_by(own.file, text)
            last = len(lines) - 1  # it may lack its newline, and counts when it has that
            assert [n for n in searched if n != last] == [n for n in wanted if n != last], trial
            assert [n for n in passed if n != last] == [n for n in wanted if n != last], trial
        writer.close()
        own.file.close()


@pytest.mark.parametrize("name", NAMES)
def test_programs_look_as_in_a_terminal(tmp_path: Path, name: str) -> None:
    """Given the recorded bytes of a program, one by one, a document shows what a terminal shows."""
    file = LogFile(tmp_path / "a.log")
    for at, byte in enumerate(written(name)):
        file.append(at, bytes([byte]), 0.0)
    assert trimmed(shown(Document(TASK, file))) == seen(name)
    file.close()


def test_a_night_of_bars_is_three_lines(tmp_path: Path) -> None:
    """Given megabytes of three bars, when a reader opens the log, then it has five lines, and
    each is found without reading the whole."""
    path = tmp_path / "a.log"
    writer = LogFile(path, only_writes=True)
    bars = b"".join(
        b"".join(b"\x1b[2K\rbar %d: %06d %s\n" % (n, step, b"#" * 60) for n in range(3))
        + b"\x1b[3A"
        for step in range(20_000)
    )
    data = b"start\n" + bars + b"\n\n\nend\n"
    for at in range(0, len(data), 50_000):
        writer.append(at, data[at : at + 50_000], at / 1e6)
    reader = counted(LogFile(path, read_only=True))
    document = Document(TASK, reader)
    lines = shown(document)
    assert [line[:8] for line in lines] == ["start", "bar 0: 0", "bar 1: 0", "bar 2: 0", "end"]
    assert path.with_suffix(".rewritten").stat().st_size < len(data) / 20
    writer.close()


def test_lines_that_passed_are_taken_back(tmp_path: Path) -> None:
    """Given a filter and a search that have found a line, when the program rewrites it, then it
    is found no more, and what stands there now is."""
    file = LogFile(tmp_path / "a.log")
    file.append(0, b"needle\nother\n", 0.0)
    hits, filtered = Hits(file, Query("needle")), Filtered(Document(TASK, file), "needle")
    scans = [hits.scan(), filtered.scan()]
    for text, wanted in ((b"", [0]), (b"\x1b[2A\x1b[2Knone\n\x1b[2Kneedle 2\n", [1])):
        file.append(file.size, text, 0.0)
        for scan in scans:
            while next(scan):
                pass
        before = filtered.order
        filtered.refresh()
        assert list(hits.lines) == wanted and hits.count == 1
        assert [filtered.origin(n)[1] for n in range(filtered.count)] == wanted
    assert filtered.order != before or filtered.line(0).data == b"needle 2"
    file.close()


def test_no_program_makes_the_index_larger_than_its_log(tmp_path: Path) -> None:
    """Given a program that begins a new stretch with every forty bytes, what is recorded of them
    stays smaller than the log, and later lines are shown as they were written."""
    path = tmp_path / "a.log"
    writer = LogFile(path, only_writes=True)
    text = b"x\n\x1b[A" + b"\n" * 34
    for _ in range(20):
        writer.append(writer.size, text * 5000, 0.0)
    reader = counted(LogFile(path, read_only=True))
    document = Document(TASK, reader)
    document.refresh()
    assert 0 < path.with_suffix(".rewritten").stat().st_size < reader.size
    assert 33 * 100_000 < document.count <= 35 * 100_000
    assert document.line(document.count - 1).data == b""
    writer.close()
