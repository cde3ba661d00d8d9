"""Lines of a log as a terminal shows them, for whoever asks what they say.

The bytes on disk stay as they came. Programs rewrite what they have printed: a carriage return and
backspaces go back in a line, and cursor movements go back to lines above, where progress bars stand
one below the other. `Block` follows that as a terminal does and knows what the last lines look like
now. Colours are styles of the text; links, titles and every other escape sequence are dropped.

There are two questions, with one grammar. Panes, searches, filters and excerpts ask what is shown:
`displayed` of one line, `screen` of a text. Readiness and metrics ask what a program has said, and
`versions` gives each rewriting as a line of its own: a bar's every step counts, and a figure that
is shorter than the one below it must not get its last digit.
"""

from __future__ import annotations

import codecs
import re
import unicodedata
from collections.abc import Iterator
from enum import IntFlag
from functools import lru_cache
from itertools import groupby
from typing import Any, NamedTuple

import re2

from .printable import CONTROL_STRING, JOINER, OTHER_ESCAPE, STRING_END

LINE_BYTES = 4096
"""Bytes at the beginning of a line that an expression sees."""
BLOCK_LINES = 32
"""Lines at the end of a log that a program can rewrite."""
BLOCK_BYTES = 64 * 1024
"""Bytes at the end of a log in which those lines begin."""
LONGEST_ROW = 2048
"""Cells of a line that is rewritten; what is behind them is only counted."""
REWRITTEN_BYTES = 16 * 1024
"""Bytes at the end of a line that carriage returns rewrite: what is before them has been written
over many times."""
TAB_CELLS = 8
MOST_MARKS = 6
"""Combining characters on one letter: written language needs fewer, and a pile of thousands
would be drawn over the rows above."""
TRUE_COLOUR = 1 << 24
"""Added to a 24-bit colour to tell it from an index of the 256-colour palette."""

_OPTIONS = re2.Options()
_OPTIONS.encoding = re2.Options.Encoding.LATIN1
_LONGEST_SEQUENCE = 256
"""Characters of an escape sequence that has an effect."""


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


PLAIN = TextStyle()
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


@lru_cache(maxsize=4096)
def styled(style: TextStyle, codes: str) -> TextStyle:
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


@lru_cache(maxsize=4096)
def sequence_of(style: TextStyle) -> str:
    """The SGR sequence that sets a style, whatever was set before."""
    codes = ["0"]
    codes += [str(code) for code, attr in _ATTRIBUTES.items() if style.attr & attr]
    for base, colour in ((38, style.fg), (48, style.bg)):
        if colour >= TRUE_COLOUR:
            red, green, blue = colour >> 16 & 255, colour >> 8 & 255, colour & 255
            codes.append(f"{base};2;{red};{green};{blue}")
        elif colour >= 0:
            codes.append(f"{base};5;{colour}")
    return "" if style == PLAIN else f"\x1b[{';'.join(codes)}m"


# Each character is looked at a fixed number of times: an alternative that fails has not gone
# beyond the next escape character, where the next one begins.
_TOKEN = re.compile(
    r"\x1b\[(?P<codes>[0-9;:]*)m"
    r"|\x1b\[(?P<given>[0-?]*)(?P<between>[ -/]*)(?P<final>[@-~])?"
    rf"|{CONTROL_STRING}(?:{STRING_END})?"
    rf"|(?P<other>{OTHER_ESCAPE}|\x1b)"
    r"|(?P<control>[\r\n\t]|\x08+)"
)
_UNFINISHED = re.compile(rf"(?:\x1b\[[0-?]*[ -/]*|{CONTROL_STRING}\x1b?|\x1b[ -/]*)\Z")
UP = re2.compile(rb"\x1b\[[0-9]*[AF]", _OPTIONS)
"""What goes to a line above."""
_MOVES = rb"\x1b\[[0-9;]*[ABDEFGHXdfu`]|\x1b\[[12]K|\x1b[78]"
_HAS_MOVES, _MOVE = re2.compile(_MOVES, _OPTIONS), re.compile(_MOVES)
# Those that replace are Python's, whose matches cost a tenth of RE2's. Each looks at a character as
# often as `_TOKEN` does.
_FORWARD = re.compile(rb"\x1b\[[0-9]*C")
_ANY_SEQUENCE = rf"\x1b\[[0-?]*[ -/]*[@-~]?|{CONTROL_STRING}(?:{STRING_END})?|{OTHER_ESCAPE}|\x1b"
_SEQUENCES = re.compile(_ANY_SEQUENCE.encode())
"""All escape sequences, unfinished ones as well."""
_STYLES = re.compile(rf"\x1b\[([0-9;:]*)m|{_ANY_SEQUENCE}")
_SGR = re.compile(rb"\x1b\[([0-9;:]*)m")
_RESET = re.compile(rb"\x1b\[0*m")
# Neither wide nor combining, nor moving: as many cells as characters.
_NARROW_RANGES = ((0x20, 0x7E), (0xA1, 0x2FF), (0x2010, 0x2027), (0x2030, 0x205E), (0x2500, 0x25FC))
_NARROW = re.compile("[" + "".join(f"{chr(a)}-{chr(b)}" for a, b in _NARROW_RANGES) + "]*")
_REWRITES = re2.compile(rb"\x1b\[[0-9;?]*[A-HJKPXdfsu`@]|\x1b[78]", _OPTIONS)
"""What makes a line other than its characters one after the other, beside carriage returns and
backspaces: an expression that begins with one character is the faster for it."""


class Row:
    """A line of a block: a character and a style for each cell. The second cell of a wide character
    is empty; combining characters are in the cell of their letter."""

    __slots__ = ("chars", "cut", "end", "start", "styles")

    def __init__(self, start: int = 0) -> None:
        self.chars: list[str] = []
        self.styles: list[TextStyle] = []
        self.cut = 0
        """Characters that found no room."""
        self.start = self.end = start
        """Offsets of the bytes with which the line began and changed last."""

    def copy(self) -> Row:
        """The line as it is now."""
        row = Row(self.start)
        row.chars, row.styles = self.chars.copy(), self.styles.copy()
        row.cut, row.end = self.cut, self.end
        return row

    def text(self) -> str:
        """The characters, without styles."""
        return "".join(self.chars).rstrip(" ")

    def spans(self) -> Iterator[tuple[str, TextStyle]]:
        """The parts of one style, each with it."""
        at = 0
        for style, cells in groupby(self.styles):
            end = at + len(list(cells))
            yield "".join(self.chars[at:end]), style
            at = end

    def encoded(self) -> str:
        """The characters with the SGR sequences of their styles."""
        if self.styles.count(PLAIN) == len(self.styles):
            return self.text()
        parts: list[str] = []
        for text, style in self.spans():
            parts.append(sequence_of(style) or ("\x1b[m" if parts else ""))
            parts.append(text)
        if self.styles[-1] != PLAIN:
            parts.append("\x1b[m")
        return "".join(parts).rstrip(" ")


class Block:
    """The last lines of a log, as a terminal without a right margin shows them.

    Bytes may come in any pieces. A line that has left the block at its upper end is settled: it
    cannot be rewritten any more. Movements end at the block's edges.
    """

    def __init__(self, first: int = 0, style: TextStyle = PLAIN, lines: int = BLOCK_LINES) -> None:
        """`first`: the number of the first line. `lines`: how many can be rewritten."""
        self.top = first
        """The number of the upper line."""
        self.rows = [Row()]
        self.settled: list[Row] = []
        """Lines that have left, for whoever takes them away."""
        self.keeps_settled = True
        self.offset = 0
        """The offset of what is fed, which lines remember."""
        self.ups = 0
        """Movements to lines above."""
        self.low = first
        """The number of the highest line to which they have led; for whoever sets it anew."""
        self.style = style
        self._lines = lines
        self._y = self._x = 0
        self._saved: tuple[int, int, TextStyle] | None = None
        """Number of the line, cell and style that the program has saved."""
        self._elsewhere = False
        """The cursor is at a place of the screen that is no line's, as apt's bar is."""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""
        """An escape sequence that is not finished."""

    @property
    def line(self) -> int:
        """The number of the line with the cursor."""
        return self.top + self._y

    @property
    def last(self) -> int:
        """The number of the lowest line."""
        return self.top + len(self.rows) - 1

    @property
    def count(self) -> int:
        """Lines up to the lowest one, which does not count while nothing is on it."""
        return self.last + bool(self.rows[-1].chars or self.rows[-1].cut)

    @property
    def at_new_line(self) -> bool:
        """Cursor at the beginning of the lowest line, on which nothing is yet."""
        return self._y == len(self.rows) - 1 and not self._x and not self.rows[-1].chars

    def feed(self, data: bytes) -> None:
        """Takes the next bytes."""
        text = self._rest + self._decoder.decode(data)
        self._rest = ""
        at, end = 0, len(text)
        if (unfinished := _unfinished(text)) is not None:
            end = unfinished
            self._rest = _shortened(text[end:])
        for token in _TOKEN.finditer(text, 0, end):
            if token.start() > at:
                self._put(text[at : token.start()])
            at = token.end()
            self._obey(token)
        if at < end:
            self._put(text[at:end])

    def finish(self) -> None:
        """Nothing more comes: what is not finished is dropped, or shown where it is text."""
        text = self._decoder.decode(b"", final=True)
        if not self._rest:
            self._put(text)
        self._rest = ""

    def _obey(self, token: re.Match[str]) -> None:
        control = token["control"]
        if control is not None:
            if control == "\n":
                self._new_line()
            elif control == "\r":
                self._x = 0
            elif control == "\t":
                self._x = min(LONGEST_ROW, (self._x // TAB_CELLS + 1) * TAB_CELLS)
            else:
                self._x = max(0, self._x - len(control))
        elif (codes := token["codes"]) is not None:
            if len(codes) <= _LONGEST_SEQUENCE:
                self.style = styled(self.style, codes)
        elif (final := token["final"]) is not None:
            if not token["between"] and len(token["given"]) <= _LONGEST_SEQUENCE:
                self._move(final, token["given"])
        elif token["other"] == "\x1b7":
            self._save()
        elif token["other"] == "\x1b8":
            self._restore()

    def _new_line(self) -> None:
        self._x, self._elsewhere = 0, False
        self._y += 1
        if self._y < len(self.rows):
            return
        self.rows.append(Row(self.offset))
        if len(self.rows) > self._lines:
            row = self.rows.pop(0)
            self.top += 1
            self._y -= 1
            if self.keeps_settled:
                self.settled.append(row)

    def _save(self) -> None:
        self._saved = self.line, self._x, self.style

    def _restore(self) -> None:
        self._elsewhere = False
        if self._saved is not None:
            line, self._x, self.style = self._saved
            y = min(max(0, line - self.top), len(self.rows) - 1)
            self.ups += y < self._y
            self._y = y
            self.low = min(self.low, self.line)

    def _move(self, final: str, given: str) -> None:
        """Carries out a sequence that moves or erases; others have no effect."""
        if final in "Hf":
            # A place of the screen: for a moment, where the program has saved the one before.
            self._elsewhere = self._saved is not None
            return
        if final == "s" and not given:
            self._save()
        elif final == "u" and not given:
            self._restore()
        if not (given.isdecimal() and given.isascii()) and given:
            return
        number = int(given[:6] or 0)
        most = max(1, number)
        if final in "AF":
            self.ups += 1
            self._y = max(0, self._y - most)
            self.low = min(self.low, self.line)
        elif final in "BE":
            self._y = min(len(self.rows) - 1, self._y + most)
        elif final == "C":
            self._x = min(LONGEST_ROW, self._x + most)
        elif final == "D":
            self._x = max(0, self._x - most)
        elif final in "G`":
            self._x = min(LONGEST_ROW, most - 1)
        elif final in "KJ":
            self._erase(final, number)
        elif final in "XP@":
            self._change(final, min(most, LONGEST_ROW))
        if final in "EF":
            self._x = 0

    def _erase(self, final: str, which: int) -> None:
        """K erases in the line, J in what is below as well; a screen is not erased: it is a log."""
        if self._elsewhere or (final == "J" and which):
            return
        row, x = self.rows[self._y], self._x
        if which == 0:
            if x and row.chars[x : x + 1] == [""]:
                row.chars[x - 1] = " "
            del row.chars[x:], row.styles[x:]
        elif which == 1:
            end = min(x + 1, len(row.chars))
            row.chars[:end], row.styles[:end] = [" "] * end, [PLAIN] * end
            if row.chars[end : end + 1] == [""]:
                row.chars[end] = " "
        elif which == 2:
            row.chars.clear()
            row.styles.clear()
        if which in (0, 2):
            row.cut = 0
        row.end = self.offset
        if final == "J":
            for below in self.rows[self._y + 1 :]:
                below.chars.clear()
                below.styles.clear()
                below.cut, below.end = 0, self.offset

    def _change(self, final: str, count: int) -> None:
        """X writes blanks over characters, P takes them away, @ makes room before them."""
        row, x = self.rows[self._y], self._x
        if self._elsewhere or x >= len(row.chars):
            return
        if final == "X":
            count = min(count, len(row.chars) - x)
            row.chars[x : x + count], row.styles[x : x + count] = [" "] * count, [PLAIN] * count
        elif final == "P":
            del row.chars[x : x + count], row.styles[x : x + count]
        else:
            row.chars[x:x], row.styles[x:x] = [" "] * count, [PLAIN] * count
            del row.chars[LONGEST_ROW:], row.styles[LONGEST_ROW:]
        row.end = self.offset

    def _put(self, text: str) -> None:
        if not text or self._elsewhere:
            return
        row, x = self.rows[self._y], self._x
        chars = row.chars
        cells: str | list[str] = text
        if not text.isascii():
            cells = self._cells(text)
        row.end = self.offset
        room = LONGEST_ROW - x
        if len(cells) > room:
            row.cut += len(cells) - max(0, room)
            cells = cells[: max(0, room)]
        if not cells:
            return
        end = x + len(cells)
        if x > len(chars):
            row.styles += [PLAIN] * (x - len(chars))
            chars += [" "] * (x - len(chars))
        elif chars[x : x + 1] == [""]:
            chars[x - 1] = " "  # half of a wide character is left
        if chars[end : end + 1] == [""]:
            chars[end] = " "
        chars[x:end] = cells
        row.styles[x:end] = [self.style] * (end - x)
        self._x = end

    def _cells(self, text: str) -> list[str]:
        """A text's cells. What takes no cell joins the one before it."""
        cells: list[str] = []
        for char in text:
            width = cells_of(char)
            if width:
                cells.append(char)
                if width == 2:
                    cells.append("")
                continue
            row, x = self.rows[self._y].chars, self._x
            where, at = (cells, len(cells) - 1) if cells else (row, min(x, len(row)) - 1)
            if at > 0 and not where[at]:
                at -= 1
            if at < 0:
                cells.append(char)
            elif len(where[at]) <= MOST_MARKS:
                where[at] += char
        return cells

    def state(self) -> dict[str, Any]:
        """All that there is to know, as JSON has it; `restored` goes on from there."""
        pending = self._decoder.getstate()[0]
        rows = [[row.encoded(), row.cut, row.start, row.end] for row in self.rows]
        return {
            "top": self.top,
            "rows": rows,
            "y": self._y,
            "x": self._x,
            "style": sequence_of(self.style),
            "saved": self._saved and [*self._saved[:2], sequence_of(self._saved[2])],
            "elsewhere": self._elsewhere,
            "rest": self._rest,
            "pending": pending.decode("latin-1"),
        }

    @classmethod
    def restored(cls, state: dict[str, Any]) -> Block:
        """The block of which `state` was taken.

        Raises:
            KeyError, TypeError, ValueError: it is damaged.
        """
        block = cls(int(state["top"]))
        block.low = block.top
        block.rows = []
        for text, cut, start, end in state["rows"][:BLOCK_LINES]:
            shown = Block(lines=1)
            shown.feed(str(text).replace("\n", "").encode(errors="replace"))
            (row,) = shown.rows
            row.cut, row.start, row.end = int(cut), int(start), int(end)
            block.rows.append(row)
        block._y = min(max(0, int(state["y"])), len(block.rows) - 1)
        block._x = min(max(0, int(state["x"])), LONGEST_ROW)
        block.style = style_after(str(state["style"]).encode(), PLAIN)
        if (saved := state["saved"]) is not None:
            line, cell, style = saved
            where = int(line), min(max(0, int(cell)), LONGEST_ROW)
            block._saved = *where, style_after(str(style).encode(), PLAIN)
        block._elsewhere = bool(state["elsewhere"])
        block._rest = _shortened(str(state["rest"]))
        block._decoder.decode(str(state["pending"]).encode("latin-1")[:4])
        if not block.rows:
            raise ValueError("no line")
        return block


@lru_cache(maxsize=4096)
def cells_of(char: str) -> int:
    """Cells that a character takes: none where it joins the one before it."""
    if unicodedata.category(char) in ("Mn", "Me") or ord(char) in (JOINER, 0xFE0E, 0xFE0F):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def _unfinished(text: str) -> int | None:
    """Where an escape sequence begins that the text does not finish."""
    last = text.rfind("\x1b")
    # The escape may be the first half of what ends a control string.
    before = text.rfind("\x1b", 0, last) if last == len(text) - 1 else -1
    for begin in (before, last):
        if begin >= 0 and _UNFINISHED.match(text, begin):
            return begin
    return None


def _shortened(rest: str) -> str:
    """An unfinished sequence without what has no effect: it may go on for ever."""
    if rest[1:2] == "[":
        most, between = _LONGEST_SEQUENCE + 3, " !\"#$%&'()*+,-./"
        if len(rest) <= most:
            return rest
        return rest[:most].rstrip(between) + (" " if rest[-1] in between else "")
    if rest[1:2] in ("]", "P", "X", "^", "_"):
        return rest[:2] + ("\x1b" if rest.endswith("\x1b") else "")
    return rest[:2]


def style_after(data: bytes, style: TextStyle) -> TextStyle:
    """The style behind some bytes before which another one was set."""
    begin = max(0, data.rfind(b"\x1b[0m"))
    begin = max(begin, data.rfind(b"\x1b[m", begin))
    for reset in _RESET.finditer(data, begin):
        begin, style = reset.end(), PLAIN
    for codes in _SGR.findall(data, begin):
        if len(codes) <= _LONGEST_SEQUENCE:
            style = styled(style, codes.decode())
    return style


def rewrites(line: bytes) -> bool:
    """Whether a line is not its characters one after the other."""
    return b"\r" in line or b"\x08" in line or _REWRITES.search(line) is not None


def latest(line: bytes) -> bytes:
    """The end of a long line that carriage returns rewrite, with its last version in it."""
    if len(line) <= REWRITTEN_BYTES:
        return line
    last = len(line.rstrip(b"\r\x08"))
    if (begin := line.find(b"\r", max(0, last - REWRITTEN_BYTES), last)) >= 0:
        return line[begin + 1 :]
    return line[line.rfind(b"\r", 0, last) + 1 :]


def row_of(line: bytes, style: TextStyle = PLAIN) -> Row:
    """One line that is rewritten, as it is in the end; `style` was set before it."""
    block = Block(style=style, lines=1)
    block.feed(latest(line).replace(b"\n", b" "))
    block.finish()
    return block.rows[0]


def spans(text: str, style: TextStyle) -> Iterator[tuple[str, TextStyle]]:
    """The parts of a line that nothing rewrites, each with its style."""
    at = 0
    for sequence in _STYLES.finditer(text):
        begin, end = sequence.span()
        if begin > at:
            yield text[at:begin], style
        at, codes = end, sequence[1]
        if codes is not None and len(codes) <= _LONGEST_SEQUENCE:
            style = styled(style, codes)
    if at < len(text):
        yield text[at:], style


def displayed(line: bytes) -> bytes:
    """The text of one line as it is shown."""
    line = line.rstrip(b"\r")
    if b"\x1b" not in line and b"\x08" not in line:
        return _overwritten(line) if b"\r" in line else line
    if rewrites(line):
        return row_of(line).text().encode(errors="replace")
    return _SEQUENCES.sub(b"", line)


def _overwritten(line: bytes) -> bytes:
    """What carriage returns leave of a line without escape sequences."""
    line = latest(line)
    text = line.decode(errors="replace")
    versions = text.split("\r")
    if not all(map(_NARROW.fullmatch, versions)):
        return row_of(line).text().encode(errors="replace")
    shown = ""
    for version in versions:
        shown = version + shown[len(version) :]
    return shown.rstrip(" ").encode()


def all_displayed(text: bytes) -> bytes:
    """Whole lines, each as it is shown. Movements to lines above stay within their line."""
    if b"\r" in text:
        text = text.replace(b"\r\n", b"\n")
    if rewrites(text):
        return b"\n".join(map(displayed, text.split(b"\n")))
    return _SEQUENCES.sub(b"", text) if b"\x1b" in text else text


def screen(text: bytes) -> list[str]:
    """The lines of a text as they are shown, from what a log's end has in it."""
    if not UP.search(text):
        return all_displayed(text).decode(errors="replace").split("\n")
    block = Block()
    block.feed(text)
    block.finish()
    return [row.text() for row in (*block.settled, *block.rows)]


_NATIVE_FRAME = re.compile(
    r"\s*(?:@ +0x[0-9a-f]+ |#\d+ +0x[0-9a-f]+ |frame #\d+: .* 0x[0-9a-f]+\b"
    r"|(?:\[[\w.:-]+\] )?(?:\[ ?\d+\] )?/\S+\(\S*\) ?\[0x[0-9a-f]+\]\s*$)"
)


def is_native_frame(line: str) -> bool:
    """Whether a line is a frame of machine code, as absl, PyTorch, Open MPI, glibc and sanitizers
    print stacks of a crash: what a program said stands before them."""
    return _NATIVE_FRAME.match(line) is not None


def versions(text: bytes) -> bytes:
    """The lines of a text and all that they were before they were rewritten, each truncated to
    `LINE_BYTES`, in valid UTF-8."""
    if b"\x1b" in text:
        if _HAS_MOVES.search(text):
            text = _MOVE.sub(b"\n", text)
        text = _SEQUENCES.sub(b"", _FORWARD.sub(b" ", text))
    lines = text.replace(b"\r", b"\n").split(b"\n")
    text = b"\n".join([line[:LINE_BYTES] for line in lines])
    if b"\x08" in text:
        lines = [line.rstrip(b"\x08") for line in text.split(b"\n")]
        text = b"\n".join([displayed(line) if b"\x08" in line else line for line in lines])
    return text if text.isascii() else text.decode(errors="replace").encode()
