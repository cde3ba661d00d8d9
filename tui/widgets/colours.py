"""Colours of the theme in the form that Rich understands.

A theme may name a colour of the terminal's own palette (`ansi_blue`), or a share of a colour
(`ansi_blue 50%`).
"""

from __future__ import annotations

from typing import Any

from rich.terminal_theme import TerminalTheme
from textual.app import App
from textual.color import Color, ColorParseError

from tui.format import StatusColor


def theme_colour(app: App[Any], name: str) -> str:
    """A colour of the theme; empty where it has none, or one that depends on what is below it."""
    word, _, share = app.theme_variables.get(name, "").partition(" ")
    try:
        colour = Color.parse(word)
        if share and colour.ansi is None:
            below = Color.parse(app.theme_variables["background"])
            colour = below.blend(colour, float(share.removesuffix("%")) / 100)
    except (ColorParseError, ValueError):
        return ""
    return colour.rich_color.name


def status_colours(app: App[Any]) -> dict[StatusColor, str]:
    """The theme's colour of each status."""
    return {color: theme_colour(app, f"status-{color}") for color in StatusColor}


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
    "status-waiting": ("#8a8f98", "#5f6670", "#aaaaaa", "#555555"),
    "status-busy": ("#d7a13b", "#8a5a00", "#ffff55", "#aa5500"),
    "status-good": ("#4fae68", "#1a7a36", "#55ff55", "#00aa00"),
    "status-off": ("#8a8f98", "#5f6670", "#aaaaaa", "#555555"),
    "status-bad": ("#f0645c", "#b3201a", "#ff5555", "#aa0000"),
    "accent-text": ("#6aa5e8", "#0b57b0", "#55ffff", "#0000aa"),
}
"""On dark and on light; and the same on a terminal of sixteen colours, each one of these: the
nearest to an amber would be red, as what has failed."""


def status_defaults(*, dark: bool, sixteen: bool = False) -> dict[str, str]:
    """Colours of the status colours, for themes that do not name them."""
    column = 2 * sixteen + (not dark)
    return {name: colours[column] for name, colours in _DEFAULTS.items()}
