"""Colours of the theme in the form that Rich understands.

A theme may name a colour of the terminal's own palette (`ansi_blue`), or a share of a colour
(`ansi_blue 50%`).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from rich.color import Color as RichColor
from rich.color import ColorSystem, ColorType
from rich.color_triplet import ColorTriplet
from rich.segment import Segment
from rich.style import Style
from rich.terminal_theme import TerminalTheme
from textual.app import App
from textual.color import Color, ColorParseError
from textual.filter import LineFilter

from tui.format import StatusColor


def theme_colour(app: App[Any], name: str) -> str:
    """A colour of the theme; empty where it has none, or one that depends on what is below it."""
    colour = _theme_colour(app, name)
    return "" if colour is None else colour.rich_color.name


def text_colour(app: App[Any], name: str) -> str:
    """A colour of the theme for text, readable on its background; empty as `theme_colour`."""
    colour, below = _theme_colour(app, name), _theme_colour(app, "background")
    if colour is None or below is None or colour.ansi is not None or below.ansi is not None:
        return theme_colour(app, name)
    style = Style(color=colour.rich_color, bgcolor=below.rich_color)
    readable = readable_style(style, TEXT_CONTRAST, sixteen=False).color
    return "" if readable is None else readable.name


def _theme_colour(app: App[Any], name: str) -> Color | None:
    word, _, share = app.theme_variables.get(name, "").partition(" ")
    try:
        colour = Color.parse(word)
        if share and colour.ansi is None:
            below = Color.parse(app.theme_variables["background"])
            colour = below.blend(colour, float(share.removesuffix("%")) / 100)
    except (ColorParseError, ValueError):
        return None
    return colour


def status_colours(app: App[Any]) -> dict[StatusColor, str]:
    """The theme's style of each status: what is bad is bold as well, so that it stands out where
    there are no colours."""
    styles = {color: text_colour(app, f"status-{color}") for color in StatusColor}
    return styles | {StatusColor.BAD: f"bold {styles[StatusColor.BAD]}"}


SIXTEEN = TerminalTheme(
    (0, 0, 0),
    (170, 170, 170),
    [
        *((0, 0, 0), (170, 0, 0), (0, 170, 0), (170, 85, 0)),
        *((0, 0, 170), (170, 0, 170), (0, 170, 170), (170, 170, 170)),
    ],
    [
        *((85, 85, 85), (255, 85, 85), (85, 255, 85), (255, 255, 85)),
        *((85, 85, 255), (255, 85, 255), (85, 255, 255), (255, 255, 255)),
    ],
)
"""What a terminal of sixteen colours has, as Rich takes it: the yellow of a log, or of a task's
name, stays yellow. In Textual's own palette it is an orange, which is next to red."""
_DEFAULTS = {
    "status-waiting": ("#8a8f98", "#5f6670", "#aaaaaa", "#555555", "#8f8f8f", "#666666"),
    "status-busy": ("#d7a13b", "#8a5a00", "#ffff55", "#aa00aa", "#b0b0b0", "#4a4a4a"),
    "status-good": ("#4fae68", "#1a7a36", "#55ff55", "#000000", "#b0b0b0", "#4a4a4a"),
    "status-off": ("#8a8f98", "#5f6670", "#aaaaaa", "#555555", "#8f8f8f", "#666666"),
    "status-bad": ("#f0645c", "#b3201a", "#ff5555", "#aa0000", "#ffffff", "#000000"),
    "accent-text": ("#6aa5e8", "#0b57b0", "#55ffff", "#0000aa", "#ffffff", "#000000"),
}
"""Colours on dark and on light, and those of a terminal of sixteen colours: there the nearest to an
amber would be red, as what has failed, and neither green nor yellow is readable on white. Last the
greys where no colours are wanted: a red or a blue as grey is dimmer than the text beside it."""


def has_sixteen_colours(app: App[Any]) -> bool:
    """Whether the terminal has sixteen colours."""
    return app.console.color_system == "standard"


def has_few_colours(app: App[Any]) -> bool:
    """Whether the terminal has sixteen colours, or none are wanted (`NO_COLOR`)."""
    return app.no_color or has_sixteen_colours(app)


def status_defaults(app: App[Any], *, dark: bool) -> dict[str, str]:
    """Colours of the status colours, for themes that do not name them."""
    kind = 2 if app.no_color else int(has_sixteen_colours(app))
    column = 2 * kind + (not dark)
    return {name: colours[column] for name, colours in _DEFAULTS.items()}


# --- contrast -------------------------------------------------------------------------------------

TEXT_CONTRAST: Final = 4.5
MARK_CONTRAST: Final = 3.0
"""Least contrast of text and of marks with what is behind them, by WCAG 2.1 (1.4.3 and 1.4.11)."""
_FRAMES = frozenset("─│╭╮╰╯ " + "".join(map(chr, (0x2581, 0x2594, 0x258F, 0x2595))))
"""Characters that only divide the screen: a person needs none of them to understand it."""
_BLACK, _WHITE = ColorTriplet(0, 0, 0), ColorTriplet(255, 255, 255)
_XTERM: Final = (
    *((0, 0, 0), (205, 0, 0), (0, 205, 0), (205, 205, 0)),
    *((0, 0, 238), (205, 0, 205), (0, 205, 205), (229, 229, 229)),
    *((127, 127, 127), (255, 0, 0), (0, 255, 0), (255, 255, 0)),
    *((92, 92, 255), (255, 0, 255), (0, 255, 255), (255, 255, 255)),
)
"""The sixteen colours of xterm; `SIXTEEN` are those of the console and of most other terminals."""
_BEHIND: Final = {8: 0, 7: 15}
"""Colours behind text on a terminal of sixteen: on its greys hardly any other one is readable."""


class Readable(LineFilter):
    """Gives each text and mark enough contrast with what is behind it, whatever theme, log and
    terminal there is: colours that have too little become lighter or darker."""

    def __init__(self, *, sixteen: bool = False) -> None:
        """`sixteen`: the terminal has that many colours."""
        super().__init__()
        self._sixteen = sixteen

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """The segments with readable styles."""
        return [
            Segment(text, style and readable_style(style, least(text), self._sixteen), control)
            for text, style, control in segments
        ]


def least(text: str) -> float:
    """Contrast that a text needs: none where it is blank or part of a frame."""
    if any(map(str.isalnum, text)):
        return TEXT_CONTRAST
    return 0.0 if _FRAMES.issuperset(text) else MARK_CONTRAST


@lru_cache(4096)
def readable_style(style: Style, least: float, sixteen: bool) -> Style:
    """A style whose colours have this contrast at least; a blank has the background of the text
    beside it."""
    if style.bgcolor is None:
        return style
    if sixteen:
        return style + _one_of_sixteen(style.color or style.bgcolor, style.bgcolor, least)
    if style.color is None:
        return style
    front, behind = style.color.get_truecolor(), style.bgcolor.get_truecolor()
    if _contrast(front, behind) >= least:
        return style
    return style + Style(color=RichColor.from_triplet(_readable(front, behind, least)))


def _readable(front: ColorTriplet, behind: ColorTriplet, least: float) -> ColorTriplet:
    """The colour, moved towards white or black as far as it must be."""
    end = max(_WHITE, _BLACK, key=lambda end: _contrast(end, behind))
    for tenths in range(1, 10):
        mixed = ColorTriplet(
            *(one + (other - one) * tenths // 10 for one, other in zip(front, end, strict=True))
        )
        if _contrast(mixed, behind) >= least:
            return mixed
    return end


def _one_of_sixteen(front: RichColor, behind: RichColor, least: float) -> Style:
    """Colours of a terminal that has sixteen: the nearest, or that of the other brightness, or
    black or white."""
    near = [each.downgrade(ColorSystem.STANDARD).number or 0 for each in (front, behind)]
    below = _BEHIND.get(near[1], near[1])
    tries = (near[0], near[0] ^ 8, 15, 0)
    chosen = next((each for each in tries if _contrast_of_sixteen(each, below) >= least), tries[0])
    return Style(color=_standard(chosen), bgcolor=_standard(below))


def _standard(number: int) -> RichColor:
    return RichColor(str(number), ColorType.STANDARD, number=number)


def _contrast_of_sixteen(one: int, other: int) -> float:
    """The least contrast of two colours on the palettes that terminals have."""
    return min(
        _contrast(ColorTriplet(*_XTERM[one]), ColorTriplet(*_XTERM[other])),
        _contrast(_standard(one).get_truecolor(SIXTEEN), _standard(other).get_truecolor(SIXTEEN)),
    )


@lru_cache(4096)
def _contrast(one: ColorTriplet, other: ColorTriplet) -> float:
    """Contrast by WCAG 2.1, from 1 to 21."""
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: ColorTriplet) -> float:
    red, green, blue = (
        part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4
        for part in colour.normalized
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
