"""Curves of the metrics screen: round ticks, ends, curves that cross, plots without colours."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.store.metrics import PointColumns
from tui.curves import Curve, rates, resampled, scale, tick_texts, time_ticks
from tui.widgets.plot import Drawn, marker, plot


@pytest.mark.parametrize(
    ("low", "high", "texts"),
    [
        (0.02, 2.4, ["0", "0.5", "1.0", "1.5", "2.0", "2.5"]),
        (0, 2200, ["0", "0.5k", "1.0k", "1.5k", "2.0k", "2.5k"]),
        (0.1234, 0.1301, ["0.122", "0.124", "0.126", "0.128", "0.130", "0.132"]),
        (-3, 7e6, ["-2M", "0", "2M", "4M", "6M", "8M"]),
        (1e-6, 9e-6, ["0", "2e-06", "4e-06", "6e-06", "8e-06", "1e-05"]),
    ],
)
def test_a_scale_is_round_and_short(low: float, high: float, texts: list[str]) -> None:
    """1, 2 or 5 × 10^n apart, in as many digits as tell them apart."""
    assert tick_texts(scale(low, high, 10)) == texts


@given(st.floats(-1e15, 1e15), st.floats(1e-6, 1e15), st.integers(1, 40))
def test_a_scale_has_three_values_and_holds_the_curve(low: float, wide: float, rows: int) -> None:
    """Whatever the range: in order, no two with the same text, and not crowded."""
    if wide > 1e-6 * abs(low):
        found = scale(low, low + wide, rows)
        assert 3 <= len(found) <= max(7, rows // 2 + 1) and found == sorted(found)
        assert found[0] <= low + wide * 1e-6 and found[-1] >= low + wide * (1 - 1e-6)
        assert len(set(tick_texts(found))) == len(found)


def test_times_are_round_on_a_clock() -> None:
    """Not every 50 s, but every minute; days too."""
    assert time_ticks(0, 240, 5) == [0, 60, 120, 180, 240]
    assert time_ticks(3500, 12_000, 3) == [3600, 7200, 10_800]
    assert time_ticks(0, 86_400 * 40, 5) == [0, 864_000, 1_728_000, 2_592_000, 3_456_000]


def rows(curves: list[Curve], width: int = 60, height: int = 12, **of: bool) -> list[str]:
    """The rows of a plot of curves from 0 to 100 s."""
    drawn = [Drawn(number, one) for number, one in enumerate(curves)]
    text = plot(drawn, width, height, (0.0, 100.0), None, of.get("colourless", False))
    return text.plain.split("\n")


def dots(curves: list[Curve]) -> list[int]:
    """The dots of each cell of a plot, as the bits of its braille."""
    return [max(0, ord(letter) - 0x2800) & 0xFF for row in rows(curves) for letter in row]


def columns(row: str) -> list[int]:
    """The columns of a row that have dots."""
    return [at for at, letter in enumerate(row) if "\u2800" < letter <= "\u28ff"]


@pytest.mark.parametrize("count", [2, 30, 59, 61, 119, 5000])
def test_a_curve_is_drawn_to_its_end(count: int) -> None:
    """In the first and the last column, however many points are drawn as one."""
    xs = [100 * i / (count - 1) for i in range(count)]
    found = rows([(xs, [float(i) for i in range(count)])])
    dots = [column for row in found for column in columns(row)]
    assert max(dots) == 59
    assert min(dots) == len(found[0].split("┤")[0].split("│")[0]) + 1
    assert resampled((xs, xs), 50)[0][-1] == 100


def test_the_newest_rate_is_that_of_the_newest_point() -> None:
    """Although less than a whole span has passed since the rate before."""
    times, steps = array("d", range(1000, 1010)), array("d", range(0, 100, 10))
    xs, ys = rates(PointColumns(times, steps), 1000.0)
    assert xs == [2, 4, 6, 8, 9] and ys == [10] * 5


def test_curves_that_cross_leave_each_other_in_sight() -> None:
    """Two curves in the same cells: both have a share of them, with dots of both."""
    flat: Curve = ([0.0, 100.0], [1.0, 1.0])
    text = plot([Drawn(0, flat), Drawn(1, flat)], 60, 8, (0.0, 100.0), None, False)
    styles = [str(span.style) for span in text.spans if "color" in str(span.style)]
    assert abs(styles.count(styles[0]) - len(styles) / 2) <= 4
    rising: Curve = ([0.0, 100.0], [0.0, 1.0])
    falling: Curve = ([0.0, 100.0], [1.0, 0.0])
    both, up, down = map(dots, ([rising, falling], [rising], [falling]))
    assert both == [one | other for one, other in zip(up, down, strict=True)]
    assert any(one & ~other and other & ~one for one, other in zip(up, down, strict=True))


@pytest.mark.parametrize("height", [8, 12, 20])
def test_names_stand_at_the_ends_of_curves(height: int) -> None:
    """Also of curves that end in the same place, each in a row of its own."""
    flat: Curve = ([0.0, 100.0], [1.0, 1.0])
    drawn = [Drawn(number, flat, f"worker:{number}") for number in range(3)]
    found = plot(drawn, 80, height, (0.0, 100.0), None, False).plain.split("\n")
    assert sorted(row.split()[-1] for row in found if "worker" in row) == [
        f"worker:{number}" for number in range(3)
    ]
    assert sum("┤" in row for row in found) >= 3


def test_without_colours_each_curve_has_a_marker() -> None:
    """Two curves apart: each drawn with its own character, none in braille."""
    found = rows([([0.0, 100.0], [0.0, 0.0]), ([0.0, 100.0], [5.0, 5.0])], colourless=True)
    drawn = [number for row in found for number in (1, 0) if marker(number) * 9 in row]
    assert drawn == [1, 0] and marker(0) != marker(1)
    assert not any(columns(row) for row in found)
