"""Sanitising of text that comes from hosts, servers, files and tasks.

A terminal acts on escape sequences and control characters; bidirectional controls and zero-width
characters make a line look different from its text; lone surrogates cannot be written at all.
`printable` is for text inside our own messages, `escaped` for a value of a file that is quoted,
`pictured` for text that must stay complete, `visible` for a text that is edited on one line,
`without_escapes` for text that goes to a program. What lines of logs show is the business of
`lines`, and how panes draw them that of `tui.log.sanitise`, with sequences and pictures of this
module.
"""

from __future__ import annotations

import re

LONGEST = 2000
CSI = r"\x1b\[[0-?]*[ -/]*[@-~]"
"""Colours, cursor, erase, modes."""
CONTROL_STRING, STRING_END = r"\x1b[\]PX^_][^\x07\x1b\n]*", r"\x07|\x1b\\"
"""OSC (title, clipboard), DCS, SOS, PM, APC; and what ends them. A line's end does as well: nobody
hides the rest of a log in one."""
OTHER_ESCAPE = r"\x1b[ -/]*[0-~]"
"""Character sets, save and restore, reset."""
_SEQUENCE = re.compile(rf"{CSI}|{CONTROL_STRING}(?:{STRING_END})|{OTHER_ESCAPE}")
_CONTROL = re.compile(rf"{_SEQUENCE.pattern}|[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_VISIBLE = {0x7F: 0x2421} | {code: 0x2400 + code for code in range(0x20)}
_INVISIBLE = {picture: code for code, picture in _VISIBLE.items()}
# Direction overrides can make a line read differently from what it says, and what is invisible can
# hide in a word: all of Unicode's categories Cf, Zl and Zp, and letters and marks without a glyph.
_UNSEEN = (
    *(0x00AD, 0x034F, 0x061C, 0x06DD, 0x070F, 0x08E2, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x3164),
    *(0xFEFF, 0xFFA0, 0x110BD, 0x110CD),
    *range(0x0600, 0x0606),
    *range(0x0890, 0x0892),
    *range(0x180B, 0x1810),
    *range(0x200B, 0x2010),
    *range(0x2028, 0x202F),
    *range(0x2060, 0x2070),
    *range(0xFFF0, 0xFFFC),
    *range(0x13430, 0x13440),
    *range(0x1BCA0, 0x1BCA4),
    *range(0x1D173, 0x1D17B),
    *range(0xE0000, 0xE0200),
)
JOINER = 0x200D
"""Emoji are made with it. It is left out of what is shown: they are drawn in their parts."""
PICTURES = dict.fromkeys((*range(0x80, 0xA0), *range(0xD800, 0xE000), *_UNSEEN), 0x2426) | _VISIBLE
"""Stand-ins for all characters that a terminal acts on or that nobody sees: control pictures, and ␦
for what has none."""
_PICTURED: dict[int, int | None] = {**PICTURES, 0x09: 0x09, JOINER: None}


def printable(text: str, limit: int = LONGEST) -> str:
    """Makes one line of at most `limit` characters: escape sequences are removed, every other
    character that is not printable becomes a blank."""
    if len(text) > limit:
        text = text[: limit - 1] + "…"
    if text.isprintable():
        return text
    text = _SEQUENCE.sub("", text)
    return "".join(character if character.isprintable() else " " for character in text)


def escaped(text: str) -> str:
    """Writes what is not printable as an escape of Python, such as `\\x1b`."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def pictured(text: str) -> str:
    """Replaces what a terminal would act on by control pictures: ␛ for an escape, ␦ for what has
    no picture of its own. Tabs stay."""
    return text if text.isascii() and text.isprintable() else text.translate(_PICTURED)


def without_escapes(text: str) -> str:
    """Removes escape sequences and control characters. Tabs stay."""
    return _CONTROL.sub("", text)


def visible(text: str) -> str:
    """Replaces control characters by their pictures: a newline is ␊."""
    return text.translate(_VISIBLE)


def invisible(line: str) -> str:
    """Returns the text that `visible` has shown."""
    return line.translate(_INVISIBLE)
