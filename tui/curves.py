"""Curves of metrics over time or steps: resampling, smoothing, bands, values at a place, ticks,
sparklines."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from launcher.store.metrics import PointColumns

Curve = tuple[list[float], list[float]]
"""Seconds since the start, or global steps, in their order, and values."""
LARGEST = 1e300
"""Sums and differences of smaller values are finite."""
_SPARKS = "▁▂▃▄▅▆▇█"
SPARK_CELLS = 12
FEWEST_VALUES = 4


def curve(times: Iterable[float], values: Iterable[float], started: float) -> Curve:
    """One metric of a task; values that are no numbers (NaN, infinite or near it) are left out."""
    xs, ys = [], []
    for time, value in zip(times, values, strict=False):  # a point may just be added
        if abs(value) < LARGEST:
            xs.append(time - started)
            ys.append(value)
    return xs, ys


_SPAN = 2.0
"""Seconds over which a rate is taken at least: single lines come in bursts."""


def rates(points: PointColumns, started: float) -> Curve:
    """Global steps a second; the last one is that of the newest point."""
    xs, ys = [], []
    steps = list(zip(*curve(points.times, points.steps, 0.0), strict=True))
    first = 0
    for last in range(1, len(steps)):
        newest = last == len(steps) - 1
        if newest:  # over a span that may overlap the one before
            while first and steps[last][0] - steps[first][0] < _SPAN:
                first -= 1
        passed = steps[last][0] - steps[first][0]
        if passed >= _SPAN:
            gained = steps[last][1] - steps[first][1]
            if gained >= 0:  # a restarted task begins again at an earlier step
                xs.append(steps[last][0] - started)
                ys.append(gained / passed)
            first = last
    return xs, ys


def smoothed(of: Curve, weight: float) -> Curve:
    """An exponential moving average, as TensorBoard draws it: 0 is none, 0.9 is much. Early
    values are corrected for the average's empty beginning."""
    if weight <= 0:
        return of
    total, seen, ys = 0.0, 0, []
    for value in of[1]:
        total = total * weight + (1 - weight) * value
        seen += 1
        ys.append(total / (1 - weight**seen))
    return of[0], ys


def resampled(of: Curve, cells: int) -> Curve:
    """About `cells` points, each the mean of its share, between the first and the last one: a plot
    has no room for more."""
    xs, ys = of
    if len(xs) <= cells:
        return of
    edges = [len(xs) * i // cells for i in range(cells + 1)]
    spans = [(a, b) for a, b in pairwise(edges) if b > a]
    return (
        [xs[0], *(sum(xs[a:b]) / (b - a) for a, b in spans), xs[-1]],
        [ys[0], *(sum(ys[a:b]) / (b - a) for a, b in spans), ys[-1]],
    )


def value_at(of: Curve, x: float) -> float | None:
    """The last value at or before a moment."""
    at = bisect_right(of[0], x) - 1
    return of[1][at] if at >= 0 else None


def by_step(of: Curve, steps: Curve) -> Curve:
    """A curve of time as one of global steps. What a task had reached beyond a step at which it has
    begun anew goes, as TensorBoard does it."""
    xs: list[float] = []
    ys: list[float] = []
    for time, value in zip(*of, strict=True):
        step = value_at(steps, time)
        if step is not None:
            while xs and xs[-1] >= step:
                xs.pop()
                ys.pop()
            xs.append(step)
            ys.append(value)
    return xs, ys


class Band(NamedTuple):
    """The least, the middle and the largest value of several curves, at the same places."""

    xs: list[float]
    lows: list[float]
    middles: list[float]
    highs: list[float]


_HELD = 0.05
"""Share of the whole span for which the last value of a curve counts: others may be a bit ahead."""


def band(curves: Sequence[Curve], places: int) -> Band:
    """The band of some curves at so many places between the first point and the last one; each
    curve counts from its beginning to its end."""
    found = Band([], [], [], [])
    whole = [of for of in curves if of[0]]
    if not whole:
        return found
    first, last = min(xs[0] for xs, _ in whole), max(xs[-1] for xs, _ in whole)
    held = (last - first) * _HELD
    at = [0] * len(whole)
    for place in range(places):
        x = first + (last - first) * place / max(1, places - 1)
        values = []
        for number, (xs, ys) in enumerate(whole):
            here = at[number]
            while here < len(xs) and xs[here] <= x:
                here += 1
            at[number] = here
            if here and x <= xs[-1] + held:
                values.append(ys[here - 1])
        if values:
            for column, value in zip(
                found, (x, min(values), median(values), max(values)), strict=True
            ):
                column.append(value)
    return found


_ROUND = (1, 2, 5, 10)
_SPANS = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 18_000, 36_000, 86_400)
_UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_PLAIN = (1e-4, 1e15)
"""Sizes of values that are written without an exponent."""


def scale(low: float, high: float, rows: int) -> list[float]:
    """Round values, 1, 2 or 5 × 10^n apart, that reach from `low` or less to `high` or more: at
    least three, and one for each second row where more have room."""
    power = math.floor(math.log10(high - low)) + 1
    chosen: list[float] = []
    for step in (digit * 10.0**exponent for exponent in (power, power - 1, power - 2, power - 3)
                 for digit in (5, 2, 1)):  # fmt: skip
        first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
        if last - first >= 2 and chosen and 2 * (last - first) > rows:
            break
        if last - first >= 2:
            chosen = [number * step for number in range(first, last + 1)]
    return chosen


def time_ticks(low: float, high: float, most: int) -> list[float]:
    """At most `most` moments, in seconds, that are round on a clock."""
    days = (86_400.0 * number * 10**power for power in range(9) for number in _ROUND)
    return _multiples(low, high, most, (*map(float, _SPANS), *days))


def step_ticks(low: float, high: float, most: int) -> list[float]:
    """At most `most` round numbers of steps."""
    return _multiples(
        low, high, most, (float(n) * 10**power for power in range(18) for n in _ROUND)
    )


def tick_texts(values: list[float]) -> list[str]:
    """Ticks in words that differ: `0.05`, `20`, `1.5k`, `2e-06`."""
    largest = max(map(abs, values), default=0.0)
    unit, letter = next(((u, name) for u, name in _UNITS if largest >= u), (1.0, ""))
    form = "f"
    if largest and not _PLAIN[0] <= largest < _PLAIN[1]:
        form, unit, letter = "e", 1.0, ""
    texts: list[str] = []
    for digits in range(17):
        texts = [f"{value / unit:.{digits}{form}}" for value in values]
        pairs = zip(texts, values, strict=True)
        if all(abs(float(text) * unit - value) <= largest * 1e-9 for text, value in pairs):
            break
    return [f"{text}{letter}" if float(text) else "0" for text in texts]


def _multiples(low: float, high: float, most: int, steps: Iterable[float]) -> list[float]:
    for step in steps:
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        if last - first < most:
            return [number * step for number in range(first, last + 1)]
    return []


def sparkline(
    values: list[float], cells: int = SPARK_CELLS, span: tuple[float, float] | None = None
) -> str:
    """The values as a row of blocks, each cell the mean of its share, between the least and the
    largest of them or those of a `span`; empty where a few values are no curve yet."""
    finite = [value for value in values if abs(value) < LARGEST]
    if len(finite) < FEWEST_VALUES:
        return ""
    cells = min(cells, len(finite))
    means = []
    for i in range(cells):
        share = finite[len(finite) * i // cells : len(finite) * (i + 1) // cells]
        means.append(sum(share) / len(share))
    low, high = span or (min(means), max(means))
    if high == low:
        return _SPARKS[0] * cells
    top = len(_SPARKS) - 1
    shares = (min(1.0, max(0.0, (mean - low) / (high - low))) for mean in means)
    return "".join(_SPARKS[round(share * top)] for share in shares)
