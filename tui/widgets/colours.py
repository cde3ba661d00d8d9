"""Colours of the theme in the form that Rich understands.

A theme may name a colour of the terminal's own palette (`ansi_blue`), or a share of a colour
(`ansi_blue 50%`).
"""

from __future__ import annotations

from typing import Any

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


def status_defaults(*, dark: bool) -> dict[str, str]:
    """Colours of the status colours, for themes that do not name them."""
    return {
        "status-waiting": "#8a8f98" if dark else "#5f6670",
        "status-busy": "#d7a13b" if dark else "#8a5a00",
        "status-good": "#4fae68" if dark else "#1a7a36",
        "status-off": "#8a8f98" if dark else "#5f6670",
        "status-bad": "#f0645c" if dark else "#b3201a",
        "accent-text": "#6aa5e8" if dark else "#0b57b0",
    }
