"""Prefilter of regular expressions on coloured lines: what it does not match cannot be a hit.

Colours may change in the middle of whatever an expression finds, so they are taken out first,
which is slow. The prefilter is the same expression with a change of colour allowed after each
character and without anchors; RE2 goes through coloured bytes with it many times as fast, and
only chunks of a log that it matches are searched closely.
"""

from __future__ import annotations

import re

from launcher.printable import CSI

_TOKEN = re.compile(
    r"(?P<edge>[\^$]|\\[bBAz])"
    r"|(?P<frame>\(\?:|[()|]|(?:[*+?]|\{\d+(?:,\d*)?\})\??)"
    r"|(?P<char>\\[dDwWsS]|\\\W|\[\^?\]?(?:\\[dDwWsS]|\\\W|[^\]\\[])*\]|\.|[^\\\[\](){}*+?|^$.])"
)


def prefilter(pattern: str) -> str | None:
    """The prefilter of an expression; None for one with parts that are not understood here."""
    parts: list[str] = []
    at = 0
    for token in _TOKEN.finditer(pattern):
        if token.start() != at:
            return None
        at = token.end()
        if token["char"]:
            parts.append(f"(?:{token['char']}(?:{CSI})*)")
        elif token["frame"]:
            parts.append(token["frame"])
    # What is left of "(?i)" and its like would be an expression, but another one.
    if at != len(pattern) or re.search(r"\(\?[^:]", pattern):
        return None
    return "".join(parts)
