"""Completion of the last word of a line: the rest of the first candidate, taken with →."""

from __future__ import annotations

import re
from collections.abc import Sequence

from textual.suggester import Suggester

_LAST_WORD = re.compile(r"[^\s,;@]*$")


class Completion(Suggester):
    """Suggests from a list of candidates."""

    def __init__(self, candidates: Sequence[str]) -> None:
        super().__init__(use_cache=False, case_sensitive=True)
        self._candidates = candidates

    async def get_suggestion(self, value: str) -> str | None:
        """The whole line with its last word completed."""
        found = matching(value, self._candidates)
        return _LAST_WORD.sub("", value) + found[0] if found else None


def matching(value: str, candidates: Sequence[str]) -> list[str]:
    """The candidates that begin with the last word and are longer."""
    match = _LAST_WORD.search(value)
    word = match[0] if match else ""
    return [name for name in candidates if word and name.startswith(word) and name != word]
