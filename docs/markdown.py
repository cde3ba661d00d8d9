"""Markdown that the generators of the reference write."""

from __future__ import annotations

from collections.abc import Iterable


def table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    """Lines of a table."""
    heads = list(heads)
    cells = [heads, ["---"] * len(heads), *rows]
    return [f"|{''.join(map(_cell, row))}" for row in cells]


def _cell(text: str) -> str:
    return f" {text.replace('|', chr(92) + '|')} |" if text else " |"
