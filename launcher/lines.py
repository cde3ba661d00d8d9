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


def without_sequences(text: bytes) -> bytes:
    """The text without its escape sequences; one that is cut off at the end stays."""
    return _SEQUENCES.sub(b"", text) if _ESCAPE in text else text
