"""Regular expressions over log bytes, in RE2's syntax.

Expressions of users are searched in logs that may have any content. RE2 takes time linear in the
text whatever the expression is; Python's own took seconds for a line of 30,000 digits.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import re2

LINE_BYTES = 4096
"""Bytes at the beginning of a line that an expression sees."""


@lru_cache(maxsize=64)  # thousands of tasks have the same ones
def compile_pattern(source: str | bytes) -> Any:
    """Compiles an RE2 expression over bytes. `^` and `$` match at the ends of a line, and no match
    goes beyond a line.

    Raises:
        ValueError: it is not valid; the text says what to write instead.
    """
    raw = source.encode() if isinstance(source, str) else source
    options = re2.Options()
    options.log_errors = False
    options.never_nl = True
    options.encoding = re2.Options.Encoding.LATIN1  # logs are bytes: `.` is any of them
    try:
        return re2.compile(b"(?m)" + raw, options)
    except re2.error as error:
        (reason,) = error.args
        raise ValueError(_words(raw, reason.decode(errors="replace"))) from None


def group_names(expression: Any) -> frozenset[str]:
    """Returns the names of an expression's groups."""
    return frozenset(name.decode(errors="replace") for name in expression.groupindex)


def cut_lines(text: bytes) -> bytes:
    """Truncates each line of a text to `LINE_BYTES`. A carriage return ends a line as well, since
    progress bars use nothing else."""
    lines = text.replace(b"\r", b"\n").split(b"\n")
    return b"\n".join([line[:LINE_BYTES] for line in lines])


def _words(raw: bytes, reason: str) -> str:
    try:
        re.compile(raw)
    except re.error as error:
        return f"not a regular expression: {error}"
    except (OverflowError, RecursionError):
        pass
    return (
        f"not supported by RE2 ({reason}): write it without look-ahead, look-behind, "
        r"back-references and possessive repeats, \z for \Z, and at most {1000}"
    )
