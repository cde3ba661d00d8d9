"""Footer: keys and what they do, in one row."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text
from textual.widget import Widget

from tui.keys import key_hints
from tui.widgets.colours import theme_colour

Hints = Sequence[tuple[str, str]]


class KeyFooter(Widget):
    """Keys and what they do, the most important first; those that do not fit are left out."""

    def __init__(self, hints: Hints = ()) -> None:
        super().__init__()
        self._shown: tuple[Hints, Hints, bool] = (hints, (), False)

    def show(self, hints: Hints, *, fixed: Hints = (), typing: bool = False) -> None:
        """Shows other keys: pairs of command ids and text, after pairs of `fixed` keys and text.
        While a person is `typing`, keys that type a character are no commands."""
        if (hints, fixed, typing) != self._shown:
            self._shown = (hints, fixed, typing)
            self.refresh()

    def render(self) -> Text:
        """`F9 kill all  q leave …`."""
        hints, fixed, typing = self._shown
        row = Text(no_wrap=True, end="")
        key_style = f"bold {theme_colour(self.app, 'accent-text')}"
        for key, does in [*fixed, *key_hints(self, hints, typing=typing)]:
            if row.cell_len + len(key) + len(does) + 3 > self.size.width:
                break
            row.append("  " if row else "")
            row.append(key, key_style)
            row.append(f" {does}")
        return row
