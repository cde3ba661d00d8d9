"""Lines as a terminal shows them, of programs that rewrite what they have printed."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.lines import (
    BLOCK_LINES,
    LONGEST_ROW,
    Block,
    all_displayed,
    displayed,
    screen,
    versions,
)
from launcher.store.logs import tail_lines
from tests.support.recordings import NAMES, seen, trimmed, written

LETTERS = (b"abc", b"x", "漢字".encode(), "é\u0301".encode(), b"\xe6\xbc", b"\xff", b"\t", b"\x00")
LOOSE = (b"\x1b", b"\x1b[", b"[", b"]", b"m", b"1", b";", b"\x07", b"\x1b\\")
CONTROLS = (b"\r", b"\n", b"\b", b"\b\b\b", b"\r\n")
MOVES = b"A 2A 999999999A F B 3E K 1K 2K J 2J H 24;1H 5G G 2C 2D 3X 2P 2@ s u 31m 1;38;5;9m m ?25l"
STRINGS = (
    b"\x1b7",
    b"\x1b8",
    b"\x1b]8;;x\x07",
    b"\x1b]0;t",
    b"\x1bPq",
    b"\x1b(B",
    b"\x1b[" + b"1" * 300,
)
SEQUENCES = tuple(b"\x1b[" + move for move in MOVES.split())
PIECES = st.sampled_from([*LETTERS, *LOOSE, *CONTROLS, *STRINGS, *SEQUENCES])
TEXT = st.lists(PIECES, max_size=60).map(b"".join)


def fed(*parts: bytes) -> Block:
    """A block that has got some pieces, one after the other."""
    block = Block()
    for part in parts:
        block.feed(part)
    return block


@pytest.mark.parametrize("name", NAMES)
def test_programs_look_as_in_a_terminal(name: str) -> None:
    assert trimmed(screen(written(name))) == seen(name)


@pytest.mark.parametrize("name", ["keras3", "keras2_like", "wandb_like", "pip_download"])
def test_lines_that_only_rewrite_themselves(name: str) -> None:
    """Given a program that never moves to a line above, each line by itself is what is shown."""
    lines = [displayed(line).decode() for line in written(name).split(b"\n")]
    assert trimmed(lines) == seen(name)


@given(st.lists(TEXT, max_size=5))
def test_pieces_do_not_matter(parts: list[bytes]) -> None:
    """However the bytes come, the lines are the same, and all else that is remembered."""
    whole = b"".join(parts)
    state = fed(whole).state()
    assert fed(*parts).state() == state
    assert fed(*(whole[i : i + 1] for i in range(len(whole)))).state() == state


@given(TEXT, TEXT)
def test_a_block_goes_on_where_it_was(before: bytes, after: bytes) -> None:
    """A block that was written down and read again goes on as if it had never been away."""
    block = fed(before)
    again = Block.restored(json.loads(json.dumps(block.state())))
    block.feed(after)
    again.feed(after)
    assert [row.text() for row in again.rows] == [row.text() for row in block.rows]
    assert (again.line, again.last, again.style) == (block.line, block.last, block.style)


@given(TEXT)
def test_what_is_shown_is_shown_as_it_is(text: bytes) -> None:
    """No escape sequence, carriage return or backspace is left: lines that are read again are
    the same, and colours stay where they are."""
    shown = all_displayed(text)
    assert not {*b"\x1b\b"} & {*shown}
    assert all_displayed(shown) == shown
    for row in fed(text).rows:
        again = Block(lines=1)
        again.feed(row.encoded().encode())
        assert again.rows[0].encoded() == row.encoded()
    assert versions(versions(text)) == versions(text)


@given(TEXT)
def test_a_line_by_itself_is_what_a_block_shows(text: bytes) -> None:
    line = text.replace(b"\n", b"").replace(b"\t", b"")
    block = Block(lines=1)
    block.feed(line)
    block.finish()
    assert displayed(line).decode(errors="replace").rstrip(" ") == block.rows[0].text()


@pytest.mark.parametrize(
    "text",
    [
        b"x\n" * 100_000,
        b"\x1b[A\x1b[999999999Ax\x1b[999999999C\x1b[999999999B" * 5_000,
        b"x" * 1_000_000,
        b"\x1b[999999999Gx\x1b[999999999@\x1b[999999999X\x1b[999999999P" * 5_000,
        b"\x1b[" + b"1;" * 500_000,
        b"\x1b]0;" + b"x" * 1_000_000,
        b"\x1b " + b" " * 1_000_000,
        b"x" + "\u0301".encode() * 200_000,
        b"\x1b7" * 100_000 + b"\x1b8" * 100_000,
    ],
    ids=["lines", "moves", "long", "far", "csi", "osc", "escape", "marks", "saves"],
)
def test_no_program_makes_a_block_large(text: bytes) -> None:
    """Whatever a program writes, a block remembers so many lines, so many cells, so many marks
    on a letter, and no more of an endless sequence than would have an effect."""
    block = Block()
    block.keeps_settled = False
    for at in range(0, len(text), 60_000):
        block.feed(text[at : at + 60_000])
    assert len(block.rows) <= BLOCK_LINES and not block.settled
    assert all(len(row.chars) == len(row.styles) <= LONGEST_ROW for row in block.rows)
    assert len(json.dumps(block.state())) < 64 * LONGEST_ROW


def test_movements_end_at_the_block() -> None:
    """Given more lines than a block has, when a program goes up further, then it rewrites the
    block's upper line; those above it have settled."""
    block = fed(b"".join(b"line %d\n" % n for n in range(100)))
    assert [row.text() for row in block.settled[-2:]] == ["line 67", "line 68"]
    block.feed(b"\x1b[500A\x1b[2Knew\x1b[500B\rlast")
    texts = [row.text() for row in block.rows]
    assert (texts[0], texts[1], texts[-1]) == ("new", "line 70", "last")
    assert (block.top, block.last, block.count) == (69, 100, 101)


def test_versions_are_lines_of_their_own() -> None:
    """Given bars that a program draws above one another, each of their versions is a line."""
    text = b"a 1\n\rb 1\x1b[A\ra 2\n\x1b[2Kb 2\x1b[31m!\x1b[m\x1b[5Cx\x08y\n"
    assert versions(text).split(b"\n") == [b"a 1", b"", b"b 1", b"", b"a 2", b"", b"b 2! y", b""]


def test_excerpts_show_the_end_of_a_bar() -> None:
    """Given a bar of many versions before an exception, the last lines have its last one only."""
    bar = b"".join(b"\r%3d%%|####" % n for n in range(101))
    tail = tail_lines(b"start\n" + bar + b"\nValueError: no\n")
    assert tail == ("start", "100%|####", "ValueError: no")


@pytest.mark.parametrize(
    "frame",
    [
        "    @     0x7f0c2d8964f3  nanobind::detail::func_create<>()::{lambda()#1}::__invoke()",
        "    @     0x7fa7e52a71f5  (unknown)",
        "frame #12: c10::Error::Error(c10::SourceLocation) + 0x57 (0x7f2b1e in libc10.so)",
        "frame #13: clone + 0x43 (0x7f2b1c51c133 in /lib/x86_64-linux-gnu/libc.so.6)",
        "[tf1:01234] [ 3] /lib/x86_64-linux-gnu/libpthread.so.0(+0x12980)[0x7f4f5c1a5980]",
        "/usr/lib/libmpi.so.40(PMPI_Init+0x90) [0x7f4f5c1a5980]",
        "    #3 0x55d1a0c8 in main train.cc:12",
    ],
)
def test_frames_of_libraries_hide_no_exception(frame: str) -> None:
    """Given a program that raises, and a library that aborts it with a long stack, the last lines
    are those of the traceback; where a log has nothing but frames they are its last lines."""
    said = ["Traceback (most recent call last):", "ValueError: bad sample", "*** Aborted"]
    text = "\n".join([*said, *[frame] * 30, "Fatal: aborting", ""]).encode()
    assert list(tail_lines(text)) == [*said, "Fatal: aborting"]
    assert len(tail_lines("\n".join([frame] * 30).encode())) == 20
