"""Query: what is looked for in logs, as an expression on chunks of whole lines."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cached_property
from typing import Any

import re2

from launcher.frozen import frozen
from launcher.lines import all_displayed, rewrites
from launcher.printable import CSI

from .remarks import remark_source

MAX_PER_LINE = 1000
"""Hits that are counted in one line: each may cost a look at the rest of the line."""
_TOKEN = re.compile(
    r"(?P<edge>[\^$]|\\[bBAz])"
    r"|(?P<frame>\(\?:|[()|]|(?:[*+?]|\{\d+(?:,\d*)?\})\??)"
    r"|(?P<char>\\[dDwWsS]|\\\W|\[\^?\]?(?:\\[dDwWsS]|\\\W|[^\]\\[])*\]|\.|[^\\\[\](){}*+?|^$.])"
)


@frozen
class Chunk:
    """Whole lines of a log."""

    place: int | Callable[[], int]
    """The number of the first one, or what finds it: most chunks have no hit, and counting lines
    takes as long as searching in them."""
    data: bytes
    end: int
    """Offset in the file of the end of the chunk."""
    settled: bool = True
    """No program can rewrite its lines any more; else they come again when the log has grown."""

    @cached_property
    def first(self) -> int:
        """The number of the first line."""
        return self.place if isinstance(self.place, int) else self.place()

    @cached_property
    def after(self) -> int:
        """The number of the line after the chunk."""
        return self.first + self.data.count(b"\n")

    @property
    def is_shown(self) -> bool:
        """Its bytes are what is shown of it: they have no colours, and nothing is rewritten."""
        return not any(mark in self.data for mark in (b"\x1b", b"\r", b"\x08"))


class Query:
    """A query: a regular expression (RE2's syntax, which is Python's without what
    can take for ever), or the text itself when it is none. Without capitals it finds both cases.

    RE2 because a person types expressions while logs run: none of its expressions can hold up
    the other threads, and it goes through gigabytes in a second.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        options = re2.Options()
        options.log_errors = False
        options.case_sensitive = any(char.isupper() for char in text)
        expression = text
        try:
            self._pattern = re2.compile(f"(?m){text}", options)
        except re2.error:
            expression = re2.escape(text)
            self._pattern = re2.compile(expression, options)
        self._prefilter: Any = None
        coarse = prefilter(expression)
        if coarse is not None:
            with suppress(re2.error):  # too large with all the colours in it
                self._prefilter = re2.compile(coarse, options)

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Begin and end of each hit in a text that is drawn."""
        for match in self._pattern.finditer(text):
            if match.group():
                yield match.span()

    def lines(self, chunk: Chunk) -> tuple[list[int], int]:
        """The numbers of the lines that hit, and how many hits there are."""
        data = chunk.data
        if not chunk.is_shown:
            first = self._prefilter
            if first is not None and not first.search(data) and not rewrites(data):
                return [], 0
            data = all_displayed(data)
        hits: list[int] = []
        count = at = here = 0
        line = -1
        found = self._pattern.finditer(data, 0)
        while (match := next(found, None)) is not None:
            start, end = match.span()
            if start == end:
                continue
            count += 1
            if line < 0:
                line = chunk.first
            line += data.count(b"\n", at, start)
            at = start
            if not hits or hits[-1] != line:
                hits.append(line)
                here = 0
            here += 1
            if here == MAX_PER_LINE:
                newline = data.find(b"\n", start)
                found = self._pattern.finditer(data, newline + 1 if newline >= 0 else len(data))
        return hits, count


def prefilter(pattern: str) -> str | None:
    """The expression with a change of colour allowed after each character, and without anchors.

    Coloured bytes that it does not match hold no hit, and RE2 goes through them with it many times
    as fast as colours are taken out. None for an expression with parts that are not understood
    here.
    """
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


class _Errors(Query):
    def lines(self, chunk: Chunk) -> tuple[list[int], int]:
        """The lines that hit and are no remark; each counts once."""
        hits, _ = super().lines(chunk)
        if hits:
            lines = chunk.data.split(b"\n")
            hits = [hit for hit in hits if remark_source(lines[hit - chunk.first]) is None]
        return hits, len(hits)


ERRORS = _Errors(
    r"^(?:Traceback \(most recent call last\)|[\w.]*(?:Error|Exception)\b)"
    r"|\b(?:ERROR|FATAL|CRITICAL)\b|: [EF] (?:tensorflow|external)/|^[EF]\d{4} "
    r"|[Ss]egmentation fault|[Oo]ut of memory|core dumped"
)
