"""Text on stdout that may have names of files in it, which need not be valid in its encoding."""

from __future__ import annotations

import sys
from collections.abc import Iterable


def write(parts: Iterable[str]) -> None:
    """Writes a text; of a name that could not be decoded, the bytes that it has on the disk."""
    sys.stdout.flush()
    out, encoding = sys.stdout.buffer, sys.stdout.encoding
    for part in parts:
        out.write(part.encode(encoding, "surrogateescape"))
    out.flush()
