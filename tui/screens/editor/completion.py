"""Completion of the last word of a line: the rest of the first candidate, taken with →."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from textual.suggester import Suggester

_LAST_WORD = re.compile(r"[^\s,;@]*$")


class Completion(Suggester):
    """Suggests from candidates that may depend on the line."""

    def __init__(self, candidates: Callable[[str], Sequence[str]]) -> None:
        super().__init__(use_cache=False, case_sensitive=True)
        self._candidates = candidates

    async def get_suggestion(self, value: str) -> str | None:
        """The whole line with its last word completed."""
        found = matching(value, self._candidates(value))
        word = last_word(value)
        return value[: len(value) - len(word)] + found[0] if found else None


def last_word(value: str) -> str:
    """What is being typed."""
    match = _LAST_WORD.search(value)
    return match[0] if match else ""


def matching(value: str, candidates: Sequence[str]) -> list[str]:
    """The candidates that begin with the last word and are longer."""
    word = last_word(value)
    if not word:
        return []
    return [name for name in candidates if name.startswith(word) and name != word]
