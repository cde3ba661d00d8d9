"""Filter of all drawn rows: no character that a terminal acts on leaves the app in a text.

Text from elsewhere is made printable where it comes in; this is the second net.
"""

from __future__ import annotations

from functools import cache

from rich.cells import cell_len
from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

from launcher.printable import PICTURES


class NoControls(LineFilter):
    """Takes control characters, direction overrides and what is invisible out of rows."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """The segments, the same ones where nothing has to be taken out."""
        if all(segment.text.isprintable() for segment in segments):
            return segments
        return [
            Segment(segment.text.translate(_stand_ins()), segment.style, segment.control)
            for segment in segments
        ]


@cache
def _stand_ins() -> dict[int, str]:
    """Replacements. A row keeps its width, so characters without a cell are left out."""
    return {code: "␦" * cell_len(chr(code)) for code in PICTURES}
