"""Text on stdout that may have names of files in it, which need not be valid in its encoding."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable
from typing import Any

_NO_TEXT = re.compile(r"[\ud800-\udfff]")
"""What stands for a byte of a name that could not be decoded."""


def write(parts: Iterable[str]) -> None:
    """Writes a text; of a name that could not be decoded, the bytes that it has on the disk."""
    sys.stdout.flush()
    out, encoding = sys.stdout.buffer, sys.stdout.encoding
    for part in parts:
        out.write(part.encode(encoding, "surrogateescape"))
    out.flush()


def write_json(value: Any) -> None:
    """Writes a value for a program. JSON knows no bytes that are no text, and strict readers refuse
    all of it for half a surrogate pair: U+FFFD stands for each."""
    text = _NO_TEXT.sub("\ufffd", json.dumps(value, ensure_ascii=False))
    sys.stdout.write(json.dumps(json.loads(text), indent=2) + "\n")
