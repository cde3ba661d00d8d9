"""Sanitising of text that comes from hosts, servers, files and tasks.

A terminal acts on escape sequences and control characters; bidirectional controls and zero-width
characters make a line look different from its text; lone surrogates cannot be written at all.
`printable` is for text inside our own messages, `escaped` for a value of a file that is quoted,
`pictured` for text that must stay complete, `visible` for a text that is edited on one line,
`without_escapes` for text that goes to a program. Lines of logs in panes, which keep their colours,
are the business of `tui.log.sanitise`.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

LONGEST = 2000
_SEQUENCE = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor, erase, modes
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)"  # OSC (title, clipboard), DCS, SOS, PM, APC
    r"|\x1b[ -/]*[0-~]"  # character sets, save and restore, reset
)
_CONTROL = re.compile(rf"{_SEQUENCE.pattern}|[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_BEYOND_ASCII = re.compile(r"[^ -~]")
_ACTED_ON = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_VISIBLE = {0x7F: 0x2421} | {code: 0x2400 + code for code in range(0x20)}
_INVISIBLE = {picture: code for code, picture in _VISIBLE.items()}
_DROPPED = "\u200d\ufeff"
"""Joiners and byte order marks, which the panes drop as well: emoji are made with them."""


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
    return text if text.isprintable() else _BEYOND_ASCII.sub(lambda match: _picture(match[0]), text)


def without_escapes(text: str) -> str:
    """Removes escape sequences and control characters. Tabs stay."""
    return _CONTROL.sub("", text)


def visible(text: str) -> str:
    """Replaces control characters by their pictures: a newline is ␊."""
    return text.translate(_VISIBLE)


def invisible(line: str) -> str:
    """Returns the text that `visible` has shown."""
    return line.translate(_INVISIBLE)


@lru_cache(maxsize=4096)
def _picture(character: str) -> str:
    if character == "\t" or unicodedata.category(character) not in _ACTED_ON:
        return character
    if character in _DROPPED:
        return ""
    return chr(_VISIBLE.get(ord(character), 0x2426))
