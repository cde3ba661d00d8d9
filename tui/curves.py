"""Curves of metrics over time: resampling, smoothing, the value at a moment."""

from __future__ import annotations

import math
from bisect import bisect_right
from itertools import pairwise

from launcher.store.metrics import Point

Curve = tuple[list[float], list[float]]
"""Seconds since the start, and values."""


def curve(points: list[Point], name: str, started: float) -> Curve:
    """One metric of a task; values that are no numbers (NaN, infinite) are left out."""
    xs, ys = [], []
    for point in points:
        value = point.values.get(name)
        if value is not None and math.isfinite(value):
            xs.append(point.time - started)
            ys.append(value)
    return xs, ys


def rates(points: list[Point], started: float, span: float = 2.0) -> Curve:
    """Global steps a second, each over at least `span` seconds: single lines come in bursts."""
    xs, ys = [], []
    steps = [(p.time, p.values["step"]) for p in points if "step" in p.values]
    first = 0
    for last in range(1, len(steps)):
        passed = steps[last][0] - steps[first][0]
        if passed >= span:
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
    """At most `cells` points, each the mean of its share: a plot has no room for more."""
    xs, ys = of
    if len(xs) <= cells:
        return of
    edges = [len(xs) * i // cells for i in range(cells + 1)]
    spans = [(a, b) for a, b in pairwise(edges) if b > a]
    return (
        [sum(xs[a:b]) / (b - a) for a, b in spans],
        [sum(ys[a:b]) / (b - a) for a, b in spans],
    )


def value_at(of: Curve, x: float) -> float | None:
    """The last value at or before a moment."""
    at = bisect_right(of[0], x) - 1
    return of[1][at] if at >= 0 else None
