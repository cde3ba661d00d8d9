"""Secrets whose values are known: those of variables that tasks get from here (`env_from`).

They are kept in memory alone, and masked wherever they stand, without an expression: the launcher
process does it on its control loop. What only looks like a secret is the business of `masking`.
"""

from __future__ import annotations

import base64
import json
import shlex
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import quote, quote_plus

MASK = "[masked]"
SHORTEST = 6
"""Characters of a value from which on it is masked wherever it stands: `1`, or a short word, would
be masked in each line."""
_SHORTEST_LINE = 12
"""Characters of one of several lines of a value from which on it is masked alone."""
_SHORTEST_PART = 8
"""Characters of a value that are masked where it is cut, by the end of a line."""
_MOST_LINES = 200


class SecretValues:
    """The values of some variables, in the forms in which programs print them."""

    def __init__(self, variables: Mapping[str, str | None]) -> None:
        """Values by the names of their variables; None where a variable is not set here."""
        values = {name: value for name, value in variables.items() if value is not None}
        self.unknown = sorted(variables.keys() - values.keys())
        """The names of variables whose values are not known here."""
        self.short = sorted(name for name, value in values.items() if not _forms(value))
        """The names of values that are too short to be masked."""
        forms = {form for value in values.values() for form in _forms(value)}
        self._forms = sorted(forms, key=len, reverse=True)
        wholes = {value.strip() for value in values.values() if _forms(value)}
        self._wholes = [value for value in wholes if len(value) > _SHORTEST_PART]

    def mask(self, text: str) -> str:
        """The text without the values, and without the beginning of one that the end of a line
        cuts."""
        for form in self._forms:
            if form in text:
                text = text.replace(form, MASK)
        return "\n".join(map(self._mask_cut, text.split("\n"))) if self._wholes else text

    def _mask_cut(self, line: str) -> str:
        for mark in ("…", "..."):
            if line.endswith(mark):
                return self._mask_end(line.removesuffix(mark)) + mark
        return self._mask_end(line)

    def _mask_end(self, line: str) -> str:
        for value in self._wholes:
            at = line.find(value[:_SHORTEST_PART], max(0, len(line) - len(value)))
            if at >= 0 and value.startswith(line[at:]):
                return line[:at] + MASK
        return line


def _forms(value: str) -> Iterator[str] | list[str]:
    """The forms of a value that are masked; none where it is too short."""
    whole = value.strip()
    if len(whole) < SHORTEST:
        return []
    lines = whole.splitlines()[:_MOST_LINES]
    parts = [line.strip() for line in lines if len(line.strip()) >= _SHORTEST_LINE]
    return list(dict.fromkeys(form for part in (whole, *parts) for form in _written(part)))


def _written(text: str) -> Iterator[str]:
    """A text as programs write it: as it is, in JSON, in a shell's or Python's quotes, in a URL, in
    base64 (also behind other bytes, as a password is in a `Basic` header) and in hex."""
    yield text
    for form in (json.dumps(text), json.dumps(text, ensure_ascii=False), repr(text)):
        yield form[1:-1]
    yield shlex.quote(text).removeprefix("'").removesuffix("'")
    yield from (quote(text, safe=""), quote(text), quote_plus(text))
    data = text.encode("utf-8", "surrogatepass")
    if len(data) < _SHORTEST_PART:
        return
    yield data.hex()
    for before in range(3):
        coded = base64.b64encode(bytes(before) + data).decode()
        kept = coded[-(-before * 8 // 6) : (before + len(data)) * 8 // 6]
        yield kept
        yield kept.replace("+", "-").replace("/", "_")


def names_of(names: Iterable[str]) -> str:
    """Names in a sentence."""
    return ", ".join(dict.fromkeys(names))
