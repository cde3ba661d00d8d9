"""Sanitiser: one line of a log as text with colours that is safe to draw.

A task may print anything: a screenful of escape sequences, half a character, a gigabyte without
a newline. The file keeps it byte for byte; the screen gets text with colours and nothing else.
"""

from __future__ import annotations

import re
from enum import IntFlag
from functools import lru_cache
from typing import NamedTuple

import re2
from rich.cells import cell_len

from launcher.printable import CONTROL_STRING, CSI, JOINER, OTHER_ESCAPE, PICTURES, STRING_END

TAB_CELLS = 8
TRUE_COLOUR = 1 << 24
"""Added to a 24-bit colour to tell it from an index of the 256-colour palette."""


class Attr(IntFlag):
    """Text attributes that SGR can set."""

    NONE = 0
    BOLD = 1
    DIM = 2
    ITALIC = 4
    UNDERLINE = 8
    REVERSE = 16
    STRIKE = 32


class TextStyle(NamedTuple):
    """Style of a span of text. -1 is the pane's own colour, 0–255 the palette, and
    `TRUE_COLOUR` and above 24 bits."""

    fg: int = -1
    bg: int = -1
    attr: Attr = Attr.NONE


class Span(NamedTuple):
    """Printable text that is drawn in one style."""

    text: str
    style: TextStyle


PLAIN = TextStyle()

MOST_MARKS = 6
"""Combining characters on one letter: written language needs fewer, and a pile of thousands
would be drawn over the rows above."""

_PRINTABLE_ASCII = re.compile(rb"[\x20-\x7e]*")
# Each character is looked at a fixed number of times: an alternative that fails has not gone
# beyond the next escape character, where the next one begins.
_ESCAPE = re.compile(
    r"\x1b\[([0-9;:]*)m"  # SGR, the one sequence that is obeyed
    rf"|{CSI}?|{CONTROL_STRING}(?:{STRING_END}|$)|{OTHER_ESCAPE}?"  # unfinished ones, too
)
_MARKS = re2.compile(rf"\p{{M}}{{{MOST_MARKS + 1},}}")
# Joiners and variation selectors are as wide as each terminal likes, which would tear the columns
# apart: emoji are drawn in their parts.
_STAND_INS: dict[int, int | None] = {**PICTURES, **dict.fromkeys([JOINER, 0xFE0E, 0xFE0F])}
del _STAND_INS[0x09]  # a tab becomes blanks
_ATTRIBUTES = {
    1: Attr.BOLD,
    2: Attr.DIM,
    3: Attr.ITALIC,
    4: Attr.UNDERLINE,
    7: Attr.REVERSE,
    9: Attr.STRIKE,
}
_RESETS = {
    22: Attr.BOLD | Attr.DIM,
    23: Attr.ITALIC,
    24: Attr.UNDERLINE,
    27: Attr.REVERSE,
    29: Attr.STRIKE,
}


def last_rewrite(raw: bytes) -> bytes:
    """Last version of a line that carriage returns rewrite, which a terminal would show.

    Progress bars print `\\r` before or after each version; a trailing one rewrites nothing.
    """
    if b"\r" not in raw:
        return raw
    return raw.rstrip(b"\r\x08").rpartition(b"\r")[2]


def parse_spans(raw: bytes) -> list[Span]:
    """The text of one line (without its newline) with its colours.

    Only SGR is obeyed. Other escape sequences are dropped, control characters become their
    visible stand-ins (␀ … ␡), what is invisible or turns the direction of reading becomes ␦,
    invalid UTF-8 becomes U+FFFD, and tabs reach to the next eighth cell. Colours begin anew on
    each line: a line is drawn without looking at those before it.
    """
    if _PRINTABLE_ASCII.fullmatch(raw):
        return [Span(raw.decode("ascii"), PLAIN)]
    text = last_rewrite(raw).decode("utf-8", "replace")
    if "\x08" in text:
        text = _without_overstrikes(text)
    if "\x1b" not in text:
        return [Span(make_drawable(text, 0), PLAIN)]
    tabs = "\t" in text
    result: list[Span] = []
    style = PLAIN
    cells = at = 0
    for match in _ESCAPE.finditer(text):
        if match.start() > at:
            clean = make_drawable(text[at : match.start()], cells)
            if tabs:
                cells += cell_len(clean)
            result.append(Span(clean, style))
        at = match.end()
        codes = match.group(1)
        if codes is not None:
            style = _sgr(style, codes)
    if at < len(text):
        result.append(Span(make_drawable(text[at:], cells), style))
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


def _without_overstrikes(text: str) -> str:
    """A backspace takes back the character before it, when something was drawn over it."""
    kept: list[str] = []
    for char in text.rstrip("\x08"):
        if char != "\x08":
            kept.append(char)
        elif kept:
            kept.pop()
    return "".join(kept)


@lru_cache(maxsize=4096)
def _sgr(style: TextStyle, codes: str) -> TextStyle:
    """The style after the parameters of one SGR sequence; unknown ones change nothing."""
    numbers = [int(code or 0) for code in codes.replace(":", ";").split(";")[:64] if len(code) < 8]
    fg, bg, attr = style
    i = 0
    while i < len(numbers):
        code = numbers[i]
        i += 1
        if code == 0:
            fg, bg, attr = PLAIN
        elif code in _ATTRIBUTES:
            attr |= _ATTRIBUTES[code]
        elif code in _RESETS:
            attr &= ~_RESETS[code]
        elif 30 <= code <= 37:
            fg = code - 30
        elif 40 <= code <= 47:
            bg = code - 40
        elif 90 <= code <= 97:
            fg = code - 82
        elif 100 <= code <= 107:
            bg = code - 92
        elif code == 39:
            fg = -1
        elif code == 49:
            bg = -1
        elif code in (38, 48):
            colour, used = _extended(numbers[i:])
            i += used
            if colour is not None and code == 38:
                fg = colour
            elif colour is not None:
                bg = colour
    return TextStyle(fg, bg, attr)


def _extended(numbers: list[int]) -> tuple[int | None, int]:
    """The colour after 38 or 48 (`5;n` or `2;r;g;b`), and how many numbers it took."""
    if len(numbers) >= 2 and numbers[0] == 5:
        return (numbers[1] if numbers[1] < 256 else None), 2
    if len(numbers) >= 4 and numbers[0] == 2:
        red, green, blue = (min(255, n) for n in numbers[1:4])
        return TRUE_COLOUR | red << 16 | green << 8 | blue, 4
    return None, len(numbers)
