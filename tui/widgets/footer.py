"""Footer: keys and what they do, in one row."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text
from textual.widget import Widget

from tui.widgets.colours import theme_colour


class KeyFooter(Widget):
    """Keys and what they do, the most important first; those that do not fit are left out."""

    def __init__(self, keys: Sequence[tuple[str, str]] = ()) -> None:
        super().__init__()
        self._keys = list(keys)

    def show(self, keys: Sequence[tuple[str, str]]) -> None:
        """Shows other keys."""
        if list(keys) != self._keys:
            self._keys = list(keys)
            self.refresh()

    def render(self) -> Text:
        """`F9 kill all  q leave …`."""
        row = Text(no_wrap=True, end="")
        key_style = f"bold {theme_colour(self.app, 'accent-text')}"
        for key, does in self._keys:
            if row.cell_len + len(key) + len(does) + 3 > self.size.width:
                break
            row.append("  " if row else "")
            row.append(key, key_style)
            row.append(f" {does}")
        return row
