"""Regular expressions over log bytes, in RE2's syntax.

A log may hold anything, and expressions of users meet it. RE2 takes time linear in the text
whatever the expression is; Python's own took seconds for a line of 30,000 digits.
"""

from __future__ import annotations

import re
from typing import Any

import re2

LINE_BYTES = 4096
"""How much of the beginning of a line an expression sees."""


def compile_pattern(source: str | bytes) -> Any:
    """An RE2 expression over bytes. `^` and `$` are a line's ends, and no match goes beyond a
    line.

    Raises:
        ValueError: RE2 cannot read it; the text says what to write instead.
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
    """The names of an expression's groups."""
    return frozenset(name.decode(errors="replace") for name in expression.groupindex)


def cut_lines(text: bytes) -> bytes:
    """The lines of a text without what of each goes beyond `LINE_BYTES`. A carriage return ends
    a line, too: progress bars have nothing else."""
    lines = text.replace(b"\r", b"\n").split(b"\n")
    return b"\n".join([line[:LINE_BYTES] for line in lines])


def _words(raw: bytes, reason: str) -> str:
    try:
        re.compile(raw)
    except re.error as error:
        return f"this is no regular expression: {error}"
    except (OverflowError, RecursionError):
        pass
    return (
        f"RE2, which reads this expression, does not have all that Python's has ({reason}): write "
        r"it without look-ahead, look-behind, back-references and possessive repeats, \z for \Z, "
        "and at most {1000}"
    )
