"""Thinning of a run's metrics file: a month of metric lines takes no more room than an hour.

The newest lines stay as they are. Of older ones so many stay that the distance between two of a
task is a share of their age: a curve has as many points in its first day as in its last hour.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

LARGEST = 8 << 20
"""Bytes of a run's metrics file. Of a quarter, some 14,000 lines, all stay; another quarter is for
those before them, and half is what comes until the next time."""
_SHARES = [2.0 ** (power / 4) for power in range(-48, 0)]
"""Shares of its age by which two lines of a task are apart."""


class _Older(NamedTuple):
    """An older line that may go."""

    number: int
    time: float
    size: int


def thinned(data: bytes, largest: int = LARGEST) -> bytes:
    """The lines of a metrics file that may have `largest` bytes: the last quarter of that as it is,
    and of the lines before it so many that they need no more than another one. Older lines that
    hold no metrics go."""
    room = largest // 4
    start = 0
    if len(data) > room:
        start = data.find(b"\n", len(data) - room - 1) + 1 or len(data)
    lines = data[:start].splitlines(keepends=True)
    kept: list[_Older] = []
    series = sorted(_series(lines), key=_size)
    for number, each in enumerate(series):
        # What the small ones leave is for the others: an evaluation an hour stays whole.
        few = _few(each, room // (len(series) - number))
        room -= _size(few)
        kept += few
    return b"".join(lines[one.number] for one in sorted(kept)) + data[start:]


def _size(lines: Iterable[_Older]) -> int:
    return sum(one.size for one in lines)


def _series(lines: Sequence[bytes]) -> list[list[_Older]]:
    """The lines of each task that name the same figures, and those of each host's GPUs, in their
    order: one of an evaluation must not go for the hundreds of steps around it."""
    series: dict[tuple[str, ...], list[_Older]] = {}
    for number, line in enumerate(lines):
        try:
            record = json.loads(line)
            time = float(record["time"])
            gpus = record["event"] == "gpus"
            key = ("", str(record["host"])) if gpus else (str(record["task"]), *record["values"])
        except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
            continue
        if math.isfinite(time):
            series.setdefault(key, []).append(_Older(number, time, len(line)))
    return list(series.values())


def _few(series: Sequence[_Older], room: int) -> Sequence[_Older]:
    """A task's lines, or so many as there is room for: the last, the first,
    and those between that are far enough from the next one."""
    if _size(series) <= room:
        return series
    few: Sequence[_Older] = [one for one in series[-1:] if one.size <= room]
    low, high = 0, len(_SHARES)
    while low < high:
        middle = (low + high) // 2
        apart = _apart(series, _SHARES[middle])
        if _size(apart) <= room:
            few, high = apart, middle
        else:
            low = middle + 1
    return few


def _apart(series: Sequence[_Older], share: float) -> list[_Older]:
    first, last = series[0], series[-1]
    later, now, apart = last.time, last.time, [last, first]
    for one in reversed(series[1:-1]):
        # A clock that was set makes lines that are newer than those behind them.
        if abs(later - one.time) > share * abs(now - one.time):
            later = one.time
            apart.append(one)
    return apart
