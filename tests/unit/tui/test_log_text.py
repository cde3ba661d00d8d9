"""The text layer below the panes: sanitising, line access, the place in a log."""

from __future__ import annotations

import random
import re
import unicodedata
from pathlib import Path

import pytest
from rich.cells import cell_len

from launcher.ids import TaskId
from launcher.lines import Attr, TextStyle
from launcher.store.logs import LogFile
from launcher.store.metric_lines import Extractor
from tests.support.remarks import ALL_REMARKS, NO_REMARKS, REMARKS
from tui.log.document import MAX_LINE, Document
from tui.log.hints import hint_for
from tui.log.query import ERRORS, Chunk, Query
from tui.log.remarks import LONGEST, count_text, remark_source
from tui.log.rows import highlight, wrap
from tui.log.sanitise import Span, parse_spans, plain_text
from tui.log.viewport import Viewport


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        (b"\x1b]52;c;cm0gLXJm\x07after", "after"),
        (b"\x1b]0;title\x1b\\after", "after"),
        (b"\x1bP1$r0m\x1b\\after", "after"),
        (b"a\x1b[2J\x1b[H\x1b[?1049hb", "ab"),
        (b"bell \x07 nul \x00 del \x7f", "bell ␇ nul ␀ del ␡"),
        (b"\xff\xfe caf\xc3\xa9 \xe4\xb8", "�� café �"),
        (b"csi as one byte \xc2\x9b31m", "csi as one byte ␦31m"),
        ("backwards \u202e txt".encode(), "backwards ␦ txt"),
        ("lo\u200bss lo\u00adss lo\u2060ss".encode(), "lo␦ss lo␦ss lo␦ss"),
        ("joined 👩\u200d👧 and chosen ✔\ufe0f".encode(), "joined 👩👧 and chosen ✔"),
        ("tag\U000e0041 fill\u3164er".encode(), "tag␦ fill␦er"),
        (("z" + "\u0335" * 5000 + "a").encode(), "z" + "\u0335" * 6 + "a"),
        (b"abc\b\b\b\b\bxyz\b\bw", "xwz"),
        (b"100 of 100 done\r7", "700 of 100 done"),
        (b"100 of 100 done\r7\x1b[K", "7"),
        (b"name  \x1b[20Gvalue\x1b[8G12", "name   12          value"),
        ("\u6f22\u5b57 \rx\x1b[2Cy".encode(), "x  y "),
        (b"kept\x1b7\x1b[24;0fProgress: [ 10%]\x1b8 text", "kept text"),
        (b"a\tb", "a       b"),
        (b"\x1b[31ma\x1b[0m\tb", "a       b"),
        (b"10 %\r20 %\r30 %\r", "30 %"),
        (b"windows line\r", "windows line"),
        (b"1/9 old\x08\x08\x08new", "1/9 new"),
        (b"half an escape \x1b[", "half an escape "),
        (b"", ""),
    ],
)
def test_only_text_is_left(raw: bytes, shown: str) -> None:
    """Everything but colours is dropped, rewritten or made visible."""
    assert plain_text(raw) == shown


def test_colours_are_kept() -> None:
    """16, 256 and 24-bit colours and attributes, and their resets, reach the screen."""
    assert parse_spans(b"\x1b[1;31ma\x1b[22mb\x1b[38;5;200;48;2;1;2;3mc\x1b[md") == [
        Span("a", TextStyle(1, -1, Attr.BOLD)),
        Span("b", TextStyle(1)),
        Span("c", TextStyle(200, 0x1010203)),
        Span("d", TextStyle()),
    ]


def test_no_byte_string_gets_a_control_character_through() -> None:
    """Whatever a task prints, no control character is among what is drawn."""
    rng = random.Random(3)
    alphabet = [b"\x1b", b"[", b"]", b"m", b"31", b";", b"\x07", b"\x9b", b"\xc2\x9b", b"\r", b"x"]
    for _ in range(3000):
        raw = b"".join(rng.choices(alphabet, k=12)) + rng.randbytes(4).replace(b"\n", b"")
        text = plain_text(raw)
        assert all(char >= " " and not "\x7f" <= char <= "\x9f" for char in text), raw


def test_wrapping_keeps_text_and_colours() -> None:
    """A wrapped line has all its text, in rows no wider than the pane, wide characters whole."""
    row = parse_spans("\x1b[31mréd 漢字漢字\x1b[0m plain text that goes on".encode())
    rows = wrap(row, 7)
    assert "".join(p.text for r in rows for p in r) == "".join(p.text for p in row)
    assert all(sum(cell_len(span.text) for span in r) <= 7 for r in rows)
    assert rows[1][0].style == TextStyle(1)


def test_no_invisible_character_gets_through() -> None:
    """What Unicode calls a format character, a separator or a surrogate is never drawn as it is,
    but for the signs before Arabic and Syriac numbers, which are seen."""
    seen = {*range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD}
    seen |= set(range(0x13430, 0x13440))  # they arrange Egyptian hieroglyphs
    for code in range(0x110000):
        if unicodedata.category(chr(code)) in ("Cf", "Cc", "Zl", "Zp") and code not in seen:
            shown = plain_text(f"a{chr(code)}b".encode())
            assert chr(code) not in shown or code == 0x0A, hex(code)


def test_rows_of_combining_characters_alone_are_wrapped() -> None:
    """They take no cell, and are drawn nevertheless."""
    row = [Span("\u0301" * 3000, TextStyle())]
    assert "".join(span.text for part in wrap(row, 80) for span in part) == row[0].text


def test_hits_are_marked_across_colours() -> None:
    """What is reversed is what was searched for, wherever the colours change."""
    red = TextStyle(fg=1)
    row = [Span("xab", TextStyle()), Span("abab", red), Span("", red), Span("bxa", TextStyle())]
    marked = highlight(row, Query("ab"))
    assert "".join(span.text for span in marked) == "xababab" + "bxa"
    hits = "".join(p.text if p.style.attr & Attr.REVERSE else "." * len(p.text) for p in marked)
    assert hits == ".ababab..."
    assert "".join(p.text for p in marked if p.style.fg == 1) == "abab"


def test_a_line_of_ten_megabytes_is_cut_and_says_so(tmp_path: Path) -> None:
    """Its first 64 KiB are shown and the rest is named; the next line stands right after it."""
    file = LogFile(tmp_path / "a.log")
    long = b"x" * 10_000_000
    file.append(0, long + b"\nnext\n", 1.0)
    document = Document(TaskId("worker", 0), file)
    document.refresh()
    line = document.line(0)
    assert line.data == long[:MAX_LINE]
    assert line.cut == len(long) - MAX_LINE
    assert document.line(1).data == b"next"
    file.close()


def test_an_hour_of_progress_bar_shows_its_end(tmp_path: Path) -> None:
    """One huge line that carriage returns rewrite is shown as it was last."""
    file = LogFile(tmp_path / "a.log")
    file.append(0, b"".join(b"%7d/9999999\r" % i for i in range(60_000)), 1.0)
    document = Document(TaskId("worker", 0), file)
    document.refresh()
    assert plain_text(document.line(0).data) == "  59999/9999999"
    file.close()


def test_following_and_leaving_the_end() -> None:
    """The last line stays in the last row until the view is scrolled; then nothing drifts."""
    port = Viewport()
    port.update(100, 10)
    assert port.rows()[-1] == (99, 0)
    port.scroll(-1)
    assert port.rows()[-1] == (98, 0)
    port.update(314, 10)
    assert port.rows()[-1] == (98, 0)
    assert port.new == 214
    port.scroll(500)
    assert port.following
    assert port.rows()[-1] == (313, 0)


def test_everything_in_sight_follows() -> None:
    """A log shorter than its pane cannot be scrolled away from."""
    port = Viewport()
    port.update(3, 10)
    port.home()
    assert port.following
    assert [line for line, _ in port.rows()] == [0, 1, 2]


def test_wrapped_rows_scroll_one_by_one() -> None:
    """A line of three rows is three steps, and the first page begins at its first row."""
    port = Viewport(rows_of=lambda line: 3)
    port.update(10, 4)
    assert port.rows() == [(8, 2), (9, 0), (9, 1), (9, 2)]
    port.scroll(-1)
    assert port.rows()[0] == (8, 1)
    port.home()
    assert port.rows() == [(0, 0), (0, 1), (0, 2), (1, 0)]
    port.show(5)
    assert (5, 0) in port.rows()


# Which lines are remarks, and which are never.

ALARMS = [
    "ERROR",
    "FATAL",
    "Traceback (most recent call last):",
    "No space left on device",
    "CUDA_ERROR_OUT_OF_MEMORY",
    "RESOURCE_EXHAUSTED: OOM when allocating tensor",
    "PermissionError",
    "proxy_refused",
    "loss nan",
    "step 3 loss 0.5",
    "worker:1 failed",
]


@pytest.mark.parametrize("source", REMARKS)
def test_known_remarks(source: str) -> None:
    for line in REMARKS[source]:
        assert remark_source(line.encode()) == source, line
        assert remark_source(line.encode() + b"\r") == source, line


@pytest.mark.parametrize("line", ["", *NO_REMARKS])
def test_what_says_something_is_no_remark(line: str) -> None:
    """Errors, lines of the training, and what TensorFlow says of this host or this cluster."""
    assert remark_source(line.encode()) is None


def test_no_remark_is_an_error_a_hint_or_a_metric() -> None:
    for line in ALL_REMARKS:
        data = line.encode() + b"\n"
        assert ERRORS.lines(Chunk(0, data, len(data))) == ([], 0), line
        assert hint_for(line) is None, line
        assert not list(Extractor().feed(data, 0.0)), line


def test_no_other_severity() -> None:
    """Equal words as an error or a fatal error are shown."""
    headed = re.compile(r"^(|\d{4}-\S+ \S+: )[IWE](?=\d{4} | )")
    changed = 0
    for line in ALL_REMARKS:
        for severity in "EF":
            other = headed.sub(rf"\1{severity}", line)
            if other != line:
                changed += 1
                assert remark_source(other.encode()) is None, other
    assert changed > 40


def test_nothing_hides_in_a_remark() -> None:
    """Whatever else is on its line, before, within or behind it, a remark shows it."""
    for line in ALL_REMARKS:
        words = [match.span() for match in re.finditer(r"\S+", line)]
        for alarm in ALARMS:
            hostile = [f"{line} {alarm}", f"{alarm} {line}", f"{line}\r{alarm}", f"{alarm}\r{line}"]
            hostile += [f"{line}\x1b[2K{alarm}", f"{line}\0{alarm}", f"{line}\t{alarm}"]
            hostile += [line[:start] + alarm + line[end:] for start, end in words]
            for text in set(hostile) - {line}:
                assert remark_source(text.encode()) is None, text
    assert remark_source(b"I" * (LONGEST + 1)) is None


def test_sources_are_named() -> None:
    """Numbers in groups, one or several sources; absl alone only."""
    assert count_text(1, ["gRPC"]) == "1 routine message of gRPC"
    assert count_text(1000, ["absl", "TensorFlow"]) == "1,000 routine messages of TensorFlow"
    assert count_text(2, ["absl"]) == "2 routine messages of absl"
    assert count_text(3, ["TensorFlow", "JAX"]) == "3 routine messages of JAX and TensorFlow"
