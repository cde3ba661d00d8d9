"""From a log's own colours to the theme's: the one place where a `Look` becomes a style."""

from __future__ import annotations

from rich.color import Color as RichColor
from rich.color import ColorType
from rich.style import Style
from rich.terminal_theme import TerminalTheme
from textual.color import Color

from tui.log.sanitise import PLAIN, TRUE_COLOUR, Attr, Look


class Painter:
    """Styles for one background, each made once. Palette colours are taken from the theme, so
    that a task's yellow is readable on a light screen too; without colours (`NO_COLOR`) they
    are greys, as the rest of the screen is."""

    def __init__(
        self, foreground: Color, background: Color, palette: TerminalTheme, colourless: bool
    ) -> None:
        self._foreground = foreground
        self._background = background
        self._palette = palette
        self._colourless = colourless
        self._styles: dict[Look, Style] = {}
        self.base = self.style(PLAIN)

    def style(self, look: Look) -> Style:
        """The style of a look on this background."""
        style = self._styles.get(look)
        if style is None:
            style = self._styles[look] = self._make(look)
        return style

    def _make(self, look: Look) -> Style:
        fg = self._foreground if look.fg < 0 else self._colour(look.fg)
        bg = self._background if look.bg < 0 else self._colour(look.bg)
        attr = look.attr
        if attr & Attr.DIM:
            fg = bg.blend(fg, 0.6)
        if self._colourless:
            fg, bg = fg.monochrome, bg.monochrome
        return Style(
            color=fg.rich_color,
            bgcolor=bg.rich_color,
            bold=bool(attr & Attr.BOLD),
            italic=bool(attr & Attr.ITALIC),
            underline=bool(attr & Attr.UNDERLINE),
            reverse=bool(attr & Attr.REVERSE),
            strike=bool(attr & Attr.STRIKE),
        )

    def _colour(self, number: int) -> Color:
        if number >= TRUE_COLOUR:
            return Color(number >> 16 & 255, number >> 8 & 255, number & 255)
        kind = ColorType.STANDARD if number < 16 else ColorType.EIGHT_BIT
        rich = RichColor(str(number), kind, number=number)
        return Color.from_rich_color(RichColor.from_triplet(rich.get_truecolor(self._palette)))
