"""Messages of the command line to the person at the terminal; stdout is for data."""

from __future__ import annotations

import sys

from launcher.printable import printable


def message(text: str) -> None:
    """Writes `tfmux: text` to stderr; what a terminal would act on is taken out."""
    print(f"tfmux: {printable(text)}", file=sys.stderr, flush=True)
