"""Patterns of `.gitignore` files and of `exclude`, with git's rules."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import re2
from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

# pathspec does not know POSIX's classes. None of these begins with "!", which negates, or has a
# slash, which no class matches.
_CLASSES = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "blank": " \t",
    "cntrl": "\0-\x1f\x7f",
    "digit": "0-9",
    "graph": "0-~!-.",
    "lower": "a-z",
    "print": " -.0-~",
    "punct": ":-@!-.[-`{-~",
    "space": " \t-\r",
    "upper": "A-Z",
    "xdigit": "0-9A-Fa-f",
}
_PARTS = re.compile(r"\\.|\[[!^]?\]?(?:\[:\w+:\]|[^]])*\]")
_LAST_STARS = re.compile(r"(^!?|/)(\*\*?)(/?)\s*$")
_QUIET = re2.Options()
_QUIET.log_errors = False


class IgnoreRules:
    """Patterns of one file; the last one that matches a path decides."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._patterns = list(_valid(lines))[::-1]

    def ignores(self, path: str) -> bool | None:
        """Says whether a path is ignored; None: no pattern matches it. The path of a directory ends
        in a slash. Patterns that match only a directory above it have been applied to that."""
        name = path.encode(errors="surrogateescape")
        for expression, include in self._patterns:
            if expression.fullmatch(name):
                return include
        return None


def parse_pattern(line: str) -> tuple[Any, bool] | None:
    """Compiles one pattern, for matching in linear time; says whether what it matches is ignored or
    taken back. None: the line is empty or a comment.

    Raises:
        ValueError: it is not valid.
    """
    try:
        line = _LAST_STARS.sub(_at_least_one, _PARTS.sub(_portable, line))
        expression, include = GitIgnoreSpecPattern.pattern_to_regex(line)
        if expression is None or include is None:
            return None
        return re2.compile(expression, _QUIET), include
    except (re2.error, KeyError) as error:
        raise ValueError(str(error)) from None


def _valid(lines: Iterable[str]) -> Iterator[tuple[Any, bool]]:
    for line in lines:
        try:
            pattern = parse_pattern(line)
        except ValueError:
            continue  # git accepts it, and it matches nothing
        if pattern is not None:
            yield pattern


def _portable(part: re.Match[str]) -> str:
    if part[0].startswith("\\"):
        return "/" if part[0] == r"\/" else part[0]
    return re.sub(r"\[:(\w+):\]", lambda name: _CLASSES[name[1]], part[0])


def _at_least_one(stars: re.Match[str]) -> str:
    """For `*` and `**` pathspec makes expressions that match only the beginning of a path."""
    return f"{stars[1]}{'**/' if stars[2] == '**' else ''}?*{stars[3]}"
