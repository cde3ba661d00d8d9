"""What commands write: messages to the person at the terminal on stderr, data on stdout, which may
have names of files in it that need not be valid in its encoding."""

from __future__ import annotations

import os
import sys

from launcher.printable import printable

TYPE_CHECKING = False  # `typing` and `json` are slow to import for a message
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

_NO_TEXT = r"[\ud800-\udfff]"
"""What stands for a byte of a name that could not be decoded."""


def message(text: str) -> None:
    """Writes `tfmux: text` to stderr; what a terminal would act on is taken out."""
    write_line(f"tfmux: {printable(text)}")


def write_line(text: str) -> None:
    """Writes a line to stderr, or nothing any more once its terminal or its reader has gone."""
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")


def write(parts: Iterable[str]) -> None:
    """Writes a text to stdout; of a name that could not be decoded, the bytes that it has on the
    disk."""
    sys.stdout.flush()
    out, encoding = sys.stdout.buffer, sys.stdout.encoding
    for part in parts:
        out.write(part.encode(encoding, "surrogateescape"))
    out.flush()


def write_json(value: Any) -> None:
    """Writes a value for a program to stdout. JSON knows no bytes that are no text, and strict
    readers refuse all of it for half a surrogate pair: U+FFFD stands for each."""
    import json
    import re

    text = re.sub(_NO_TEXT, "\ufffd", json.dumps(value, ensure_ascii=False))
    sys.stdout.write(json.dumps(json.loads(text), indent=2) + "\n")
