"""Control pictures (␀ … ␡) for control characters, so that any text is one line, and back."""

from __future__ import annotations

_PICTURES = 0x2400


def visible(text: str) -> str:
    """Control characters as their pictures: a newline is ␊."""
    return "".join(
        chr(_PICTURES + ord(c)) if ord(c) < 0x20 else "␡" if c == "\x7f" else c for c in text
    )


def invisible(line: str) -> str:
    """The text that `visible` has shown."""
    return "".join(
        chr(ord(c) - _PICTURES) if 0 <= ord(c) - _PICTURES < 0x20 else "\x7f" if c == "␡" else c
        for c in line
    )
