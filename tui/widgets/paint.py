"""Rich styles for the text styles of logs, in the colours of the theme."""

from __future__ import annotations

from rich.color import Color as RichColor
from rich.color import ColorType
from rich.style import Style
from rich.terminal_theme import TerminalTheme
from textual.color import Color

from tui.log.sanitise import PLAIN, TRUE_COLOUR, Attr, TextStyle


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
        self._styles: dict[TextStyle, Style] = {}
        self.base = self.style(PLAIN)

    def style(self, text_style: TextStyle) -> Style:
        """The Rich style of a text style on this background."""
        style = self._styles.get(text_style)
        if style is None:
            style = self._styles[text_style] = self._make(text_style)
        return style

    def _make(self, text_style: TextStyle) -> Style:
        fg = self._foreground if text_style.fg < 0 else self._colour(text_style.fg)
        bg = self._background if text_style.bg < 0 else self._colour(text_style.bg)
        attr = text_style.attr
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
