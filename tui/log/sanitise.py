"""Sanitiser: one line of a log as text with colours that is safe to draw.

A task may print anything: a screenful of escape sequences, half a character, a gigabyte without
a newline. The file keeps it byte for byte; the screen gets text with colours and nothing else.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import re2
from rich.cells import cell_len

from launcher.lines import (
    MOST_MARKS,
    PLAIN,
    TAB_CELLS,
    TextStyle,
    rewrites,
    row_of,
    spans,
)
from launcher.printable import JOINER, PICTURES


class Span(NamedTuple):
    """Printable text that is drawn in one style."""

    text: str
    style: TextStyle


_PRINTABLE_ASCII = re.compile(rb"[\x20-\x7e]*")
_MARKS = re2.compile(rf"\p{{M}}{{{MOST_MARKS + 1},}}")
# Joiners and variation selectors are as wide as each terminal likes, which would tear the columns
# apart: emoji are drawn in their parts.
_STAND_INS: dict[int, int | None] = {**PICTURES, **dict.fromkeys([JOINER, 0xFE0E, 0xFE0F])}
del _STAND_INS[0x09]  # a tab becomes blanks


def parse_spans(raw: bytes, style: TextStyle = PLAIN) -> list[Span]:
    """The text of one line (without its newline) with its colours; `style` was set before it.

    Only SGR is obeyed, and what rewrites the line. Other escape sequences are dropped, control
    characters become their visible stand-ins (␀ … ␡), what is invisible or turns the direction of
    reading becomes ␦, invalid UTF-8 becomes U+FFFD, and tabs reach to the next eighth cell.
    """
    if _PRINTABLE_ASCII.fullmatch(raw):
        return [Span(raw.decode("ascii"), style)]
    raw = raw.rstrip(b"\r")
    if rewrites(raw):
        found = [Span(make_drawable(part), its) for part, its in row_of(raw, style).spans()]
        return found or [Span("", PLAIN)]
    text = raw.decode("utf-8", "replace")
    if "\x1b" not in text:
        return [Span(make_drawable(text, 0), style)]
    tabs = "\t" in text
    result: list[Span] = []
    cells = 0
    for part, its_style in spans(text, style):
        clean = make_drawable(part, cells)
        if tabs:
            cells += cell_len(clean)
        result.append(Span(clean, its_style))
    return result or [Span("", PLAIN)]


def plain_text(raw: bytes) -> str:
    """The line as it reads, without colours."""
    return "".join(span.text for span in parse_spans(raw))


def make_drawable(text: str, column: int = 0) -> str:
    """Stand-ins for control characters, and tabs as blanks; `column` is where the text begins."""
    if text.isascii() and text.isprintable():
        return text
    text = text.translate(_STAND_INS)
    if _MARKS.search(text):
        text = _with_fewer_marks(text)
    if "\t" not in text:
        return text
    parts = text.split("\t")
    for i, part in enumerate(parts[:-1]):
        column += cell_len(part)
        blanks = TAB_CELLS - column % TAB_CELLS
        parts[i] = part + " " * blanks
        column += blanks
    return "".join(parts)


def _with_fewer_marks(text: str) -> str:
    """No letter carries more than `MOST_MARKS` combining characters."""
    parts: list[str] = []
    at = 0
    for match in _MARKS.finditer(text):
        start, end = match.span()
        parts.append(text[at : start + MOST_MARKS])
        at = end
    return "".join([*parts, text[at:]])
