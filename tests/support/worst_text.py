"""Worst log text known: lines that made some part of the program slow, or draw what it must not.

Each has a name and a generator. `make(size)` gives about `size` bytes without a newline, so a test
can compare the cost of one size with that of another. Whatever meets log text is tested with all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class WorstText:
    """One kind of text, of any length."""

    name: str
    make: Callable[[int], bytes]

    def __str__(self) -> str:
        return self.name


def repeated(unit: str | bytes, head: str = "", tail: str = "") -> Callable[[int], bytes]:
    """A generator of `unit` again and again between `head` and `tail`."""
    data = unit.encode() if isinstance(unit, str) else unit
    begin, end = head.encode(), tail.encode()

    def make(size: int) -> bytes:
        times = max(1, (size - len(begin) - len(end)) // len(data))
        return begin + data * times + end

    return make


def halves(first: bytes, second: bytes, tail: bytes = b"") -> Callable[[int], bytes]:
    """A generator of one unit, as often as the other that follows it, and then `tail`."""

    def make(size: int) -> bytes:
        times = max(1, size // (len(first) + len(second)))
        return first * times + second * times + tail

    return make


WORST_TEXTS: tuple[WorstText, ...] = (
    # metrics
    WorstText("digits after loss", repeated("9", "loss: ")),
    WorstText("digits after step", repeated("9", "step ", " loss")),
    WorstText("digits and dots", repeated("1.", "step 1 loss ")),
    WorstText("steps without a loss", repeated("step 1 ")),
    WorstText("losses without a number", repeated("loss: ")),
    WorstText("loss and blanks", repeated(" ", "loss:")),
    WorstText("progress bars", repeated("1/2 [=>.] - ")),
    WorstText("tqdm bars", repeated("99%|###| 1/2 [00:00<00:00, ")),
    # drawing
    WorstText("one letter", repeated("a")),
    WorstText("letters, then as many backspaces", halves(b"a", b"\b")),
    WorstText("letters, as many backspaces, a letter", halves(b"a", b"\b", b"x")),
    WorstText("backspaces, then as many letters", halves(b"\b", b"a")),
    WorstText("letters and backspaces by turns", repeated("a\b")),
    WorstText("overstrikes between escapes", repeated("a\x1b[1mb\b\b")),
    WorstText("carriage returns", repeated("\r")),
    WorstText("rewritten lines", repeated("step 1\r")),
    WorstText("escapes without an end", repeated("\x1b[")),
    WorstText("one escape without an end", repeated("1;", "\x1b[")),
    WorstText("digits of one escape", repeated("1", "\x1b[", "m")),
    WorstText("colours", repeated("\x1b[38;2;1;2;3mx")),
    WorstText("different colours", lambda size: b"".join(
        b"\x1b[38;5;%dm%d" % (n % 256, n % 10) for n in range(max(1, size // 12))
    )),
    WorstText("titles without an end", repeated("\x1b]0;")),
    WorstText("device strings without an end", repeated("\x1bP\x1b\\\x1bP")),
    WorstText("nested escapes", repeated("\x1b\x1b[\x1b]")),
    WorstText("tabs", repeated("\t")),
    WorstText("tabs between wide characters", repeated("字\t")),
    WorstText("tabs between escapes", repeated("\t\x1b[m")),
    WorstText("control characters", repeated(bytes(c for c in range(0x20) if c not in b"\n\r\b"))),
    WorstText("eight-bit controls", repeated("\x9b31m\x9d0;t\x9c")),
    WorstText("direction overrides", repeated("a\u202eb\u2066c\u2069")),
    WorstText("zero-width characters", repeated("a\u200b\u200d\u2060\ufeff")),
    WorstText("combining characters", repeated("\u0301", "a")),
    WorstText("letters with combining characters", repeated("z\u0335\u0321\u034c\u0489")),
    WorstText("joined emoji", repeated("👩\u200d👩\u200d👧\u200d👦\u200d")),
    WorstText("wide characters", repeated("字")),
    WorstText("tag characters", repeated("\U000e0041\U000e007f")),
    WorstText("invalid UTF-8", repeated(b"\xff\xfe\xc0\x80")),
    WorstText("beginnings of UTF-8", repeated(b"\xf0\x9f\x98")),
    WorstText("nested brackets", halves(b"[", b"]")),
    WorstText("opening brackets", repeated("([{")),
    WorstText("markup", repeated("[bold][@click=app.bell][link=file:///etc/passwd]x[/]")),
    WorstText("blanks", repeated(" ")),
    WorstText("words of one letter", repeated("a ")),
    # hints: the beginning of a signature again and again, and never its end
    WorstText("proxy without its end", repeated("proxy ")),
    WorstText("CONNECT without 403", repeated("CONNECT ")),
    WorstText("refused without an address", repeated("Connection refused ")),
    WorstText("unavailable without a reason", repeated("UNAVAILABLE: ")),
    WorstText("keys of a checkpoint", repeated("Key ")),
    WorstText("out of memory without a GPU", repeated("OOM when allocating tensor")),
    WorstText("failed to allocate from nowhere", repeated("failed to allocate ")),
    WorstText("cuInit on a machine without a GPU", repeated("failed call to cuInit: ")),
    WorstText(
        "cuInit explained at the end",
        repeated("failed call to cuInit: ", tail="UNKNOWN ERROR (303)"),
    ),
    WorstText("kernel versions", repeated("kernel version ")),
    WorstText("modules", repeated("ModuleNotFoundError: No module named '")),
    WorstText("one module's name", repeated("a.", "ModuleNotFoundError: No module named '")),
    WorstText("losses before nan", repeated("loss ", tail="na")),
    WorstText("not found", repeated("NOT_FOUND: ")),
    WorstText(
        "a waiting session's digits",
        repeated(
            "1",
            "CreateSession still waiting for response from worker: /job:w/replica:",
        ),
    ),
    WorstText(
        "a waiting session's long index",
        repeated(
            "1",
            "CreateSession still waiting for response from worker: /job:w/replica:0/task:",
        ),
    ),
    WorstText("ports", repeated("Address already in use:")),
    # errors, and the prefixes of TensorFlow's messages
    WorstText("words before an error", repeated("a.", tail="Erro")),
    WorstText("errors' beginnings", repeated("Error.")),
    WorstText("severities", repeated(": E ")),
    WorstText("prefixes without an end", repeated("2026-11-20 18:30:02.1: I ")),
    WorstText("digits of a prefix", repeated("1", "2026-11-20 18:30:02.")),
    WorstText("blanks of a prefix", repeated(" ", "I1120 18:30:02.1")),
    WorstText("a prefix's long source", repeated("a", "2026-11-20 18:30:02.1: I ")),
)  # fmt: skip
