"""Lines of a log as a terminal shows them, for whoever asks what they say.

The bytes on disk stay as they came; what is looked for in them (a readiness pattern, metrics) is
looked for in the text that a person sees and copies: without colours, links and other escape
sequences.
"""

from __future__ import annotations

import re2

from .printable import CONTROL_STRING, CSI, OTHER_ESCAPE, STRING_END

_ESCAPE = b"\x1b"
_OPTIONS = re2.Options()
_OPTIONS.encoding = re2.Options.Encoding.LATIN1
_SEQUENCES = re2.compile(
    rf"{CSI}|{CONTROL_STRING}(?:{STRING_END})|{OTHER_ESCAPE}".encode(), _OPTIONS
)


LINE_BYTES = 4096
"""Bytes at the beginning of a line that an expression sees."""


def shown(text: bytes) -> bytes:
    """The lines of a text as they are shown, each truncated to `LINE_BYTES`, in valid UTF-8. A
    carriage return ends a line as well, since progress bars use nothing else."""
    if _ESCAPE in text:
        text = _SEQUENCES.sub(b"", text)
    lines = text.replace(b"\r", b"\n").split(b"\n")
    text = b"\n".join([line[:LINE_BYTES] for line in lines])
    return text if text.isascii() else text.decode(errors="replace").encode()
