"""The footer line: the keys that matter here and now."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text
from textual.widget import Widget

from .fit import Part, fit


class KeyFooter(Widget):
    """Keys and what they do, the most important first; those that do not fit are left out."""

    def __init__(self, keys: Sequence[tuple[str, str]] = ()) -> None:
        super().__init__()
        self._keys = list(keys)

    def show(self, keys: Sequence[tuple[str, str]]) -> None:
        """Other keys."""
        if list(keys) != self._keys:
            self._keys = list(keys)
            self.refresh()

    def render(self) -> Text:
        """`F9 kill all  q leave …`."""
        width = self.size.width
        parts = [Part(i, f"{key}\x00{does}") for i, (key, does) in enumerate(self._keys)]
        row = Text(no_wrap=True, end="")
        key_style = f"bold {self.app.theme_variables.get('accent-text', '')}"
        for i, part in enumerate(fit(parts, width, gap="\x01").plain.split("\x01")):
            key, _, does = part.partition("\x00")
            row.append("  " if i else "")
            row.append(key, key_style)
            row.append(f" {does}")
        row.truncate(width)
        return row
