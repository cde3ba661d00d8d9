"""Messages of the command line to the person at the terminal; stdout is for data."""

from __future__ import annotations

import os
import sys

from launcher.printable import printable


def message(text: str) -> None:
    """Writes `tfmux: text` to stderr; what a terminal would act on is taken out."""
    write_line(f"tfmux: {printable(text)}")


def write_line(text: str) -> None:
    """Writes a line to stderr, or nothing any more once its terminal or its reader has gone."""
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")
