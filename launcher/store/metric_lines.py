"""Metric lines in logs: the step, the loss and whatever else a line names.

Works for any script: the patterns known by default are the bundled trainer's progress line,
Keras' and tqdm's progress bars and `step N … loss X`; a cluster file may give its own. Only
the last part of a large chunk is looked at: under a flood of hundreds of thousands of lines a
second the newest figures count, not all of them, and of a line only its first 4 KiB.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from ..cluster.patterns import LINE_BYTES, compile_pattern, cut_lines
from .metrics import Point

LOOK_BYTES = 32 * 1024
_NUMBER = rb"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+|nan|inf)"

DEFAULT_PATTERNS: dict[bytes, bytes] = {
    # After 300 training steps (912 global steps), loss on training batch is 0.4512.  (0.010 …
    # Done: 1370 training steps (2001 global steps) in 37.6 s, …
    b" training steps (": rb"\b(?:After|Done:) \d+ training steps \((?P<step>\d+) global steps?\)"
    rb"(?:, loss on training batch is (?P<loss>" + _NUMBER + rb")\b)?",
    # Keras: 12/100 ━━━━ 0:01 12ms/step - accuracy: 0.91 - loss: 0.31
    b"loss: ": rb"(?P<step>\d+)/(?P<total>\d+) [^\n\r]*?\bloss: (?P<loss>" + _NUMBER + rb")",
    # tqdm:  37%|███▋      | 37/100 [00:03<00:06, 9.9it/s, loss=0.21]
    b"|": rb"\| *(?P<step>\d+)/(?P<total>\d+) \[[^\]\n\r]*?(?:loss=(?P<loss>"
    + _NUMBER
    + rb")[^\]\n\r]*)?\]",
    b"tep": rb"\b[Ss]tep[ :=]+(?P<step>\d+)\b[^\n\r]{0,200}?\bloss[ :=]+(?P<loss>"
    + _NUMBER
    + rb")",
}
"""Each with bytes that stand in all its lines: they are looked for first, which is a hundred times
faster than the expression, and most logs have none of them."""


class Extractor:
    """Finds the metric lines in one task's log bytes, chunk after chunk.

    A line cut in two by the end of a chunk is put together again. `rate` is global steps a
    second between the first and the last of the last few points.
    """

    def __init__(self, pattern: str | None = None) -> None:
        """`pattern` is the cluster file's own; without it the defaults are tried in order and
        the first that ever matches is kept.

        Raises:
            ValueError: the pattern is no regular expression.
        """
        sources = {b"": pattern.encode()} if pattern else DEFAULT_PATTERNS
        self._patterns = {within: compile_pattern(source) for within, source in sources.items()}
        self._rest = b""
        self._recent: list[tuple[float, float]] = []

    def feed(self, data: bytes, now: float) -> Iterator[Point]:
        """Yields a point for each metric line that has become whole."""
        text = (self._rest + data[-LOOK_BYTES:])[-LOOK_BYTES:]
        cut = max(text.rfind(b"\n"), text.rfind(b"\r")) + 1
        self._rest = text[cut:][:LINE_BYTES]
        for match in self._matches(text[:cut]):
            values = _figures(match)
            if not values:
                continue
            if "step" in values:
                recent = self._recent[-7:]
                fell = bool(recent) and values["step"] < recent[-1][1]
                self._recent = [*([] if fell else recent), (now, values["step"])]
            yield Point(now, values)

    @property
    def rate(self) -> float | None:
        """Global steps a second over the last few points; None before there are two."""
        if len(self._recent) < 2:
            return None
        (began, first), (ended, last) = self._recent[0], self._recent[-1]
        return (last - first) / (ended - began) if ended > began else None

    def _matches(self, text: bytes) -> Iterator[Any]:
        likely = {within: expr for within, expr in self._patterns.items() if within in text}
        lines = cut_lines(text) if likely else b""
        for within, pattern in likely.items():
            if pattern.search(lines):
                self._patterns = {within: pattern}
                return iter(pattern.finditer(lines))
        return iter(())


def _figures(match: Any) -> dict[str, float]:
    """The figures that a line names; what is no number, and a step that is none, is left out."""
    values = {}
    for raw, text in match.groupdict().items():
        name = raw.decode(errors="replace")
        try:
            value = float(text) if text is not None else math.nan
        except ValueError:
            continue
        if text is not None and (math.isfinite(value) or name not in ("step", "total")):
            values[name] = value
    return values
