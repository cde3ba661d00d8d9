"""Patterns that users write: regular expressions over log bytes, and the rules of `.gitignore`.

Expressions of users are searched in logs that may have any content. RE2 takes time linear in the
text whatever the expression is; Python's own took seconds for a line of 30,000 digits.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

import re2

_LONGEST = 4096
"""Bytes of an expression, and of a pattern: of longer ones time and memory grow faster."""
_MOST_MEMORY = 2 << 20
"""Bytes that RE2 may take for one expression."""


@lru_cache(maxsize=64)  # thousands of tasks have the same ones
def compile_pattern(source: str | bytes) -> Any:
    """Compiles an RE2 expression over UTF-8. `^` and `$` match at the ends of a line, and no match
    goes beyond a line.

    Raises:
        ValueError: it is not valid; the text says what to write instead.
    """
    raw = source.encode() if isinstance(source, str) else source
    if len(raw) > _LONGEST:
        raise ValueError(f"a regular expression of {len(raw):,} bytes: write at most {_LONGEST:,}")
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MOST_MEMORY
    options.never_nl = True
    try:
        return re2.compile(b"(?m)" + raw, options)
    except re2.error as error:
        (reason,) = error.args
        raise ValueError(_words(raw, reason.decode(errors="replace"))) from None


def group_names(expression: Any) -> frozenset[str]:
    """Returns the names of an expression's groups."""
    return frozenset(name.decode(errors="replace") for name in expression.groupindex)


def _words(raw: bytes, reason: str) -> str:
    try:
        with warnings.catch_warnings(action="ignore"):  # of sets that may mean more one day
            re.compile(raw)
    except re.error as error:
        return f"not a regular expression: {error}"
    except (OverflowError, RecursionError):
        pass
    return (
        f"not supported by RE2 ({reason}): write it without look-ahead, look-behind, "
        r"back-references and possessive repeats, \z for \Z, and at most {1000}"
    )


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
    """Patterns of one `.gitignore`, or of `exclude`; the last one that matches a path decides."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._patterns = list(_valid_patterns(lines))[::-1]

    def line(self, path: str) -> tuple[int, str, bool] | None:
        """Returns the number (from 1) and the text of the line that decides of a path, and whether
        it ignores the path; None: no pattern matches it. The path of a directory ends in a slash.
        Patterns that match only a directory above it have been applied to that."""
        name = path.encode(errors="surrogateescape")
        for number, text, expression, include in self._patterns:
            if expression.fullmatch(name):
                return number, text, include
        return None

    def ignores(self, path: str) -> bool | None:
        """Says whether a path is ignored; None: no pattern matches it. See `line`."""
        found = self.line(path)
        return None if found is None else found[2]


def parse_ignore_pattern(line: str) -> tuple[Any, bool] | None:
    """Compiles one line of a `.gitignore`, for matching in linear time; says whether what it
    matches is ignored or taken back. None: the line is empty or a comment.

    Raises:
        ValueError: it is not valid.
    """
    from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern  # slow, and rarely needed

    if len(line) > _LONGEST:
        raise ValueError(f"longer than {_LONGEST:,} characters: this is not a path")
    try:
        line = _LAST_STARS.sub(_at_least_one, _PARTS.sub(_portable, line))
        expression, include = GitIgnoreSpecPattern.pattern_to_regex(line)
        if expression is None or include is None:
            return None
        return re2.compile(expression, _QUIET), include
    except (re2.error, KeyError) as error:
        raise ValueError(str(error)) from None


def _valid_patterns(lines: Iterable[str]) -> Iterator[tuple[int, str, Any, bool]]:
    for number, line in enumerate(lines, 1):
        try:
            pattern = parse_ignore_pattern(line)
        except ValueError:
            continue  # git accepts it, and it matches nothing
        if pattern is not None:
            yield (number, line.strip(), *pattern)


def _portable(part: re.Match[str]) -> str:
    if part[0].startswith("\\"):
        return "/" if part[0] == r"\/" else part[0]
    return re.sub(r"\[:(\w+):\]", lambda name: _CLASSES[name[1]], part[0])


def _at_least_one(stars: re.Match[str]) -> str:
    """For `*` and `**` pathspec makes expressions that match only the beginning of a path."""
    return f"{stars[1]}{'**/' if stars[2] == '**' else ''}?*{stars[3]}"
