"""Curves of the metrics screen: round ticks, ends, curves that cross, plots without colours."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.store.metrics import PointColumns
from tui.curves import (
    Band,
    Curve,
    band,
    by_step,
    rates,
    resampled,
    scale,
    step_ticks,
    tick_texts,
    time_ticks,
)
from tui.widgets.plot import MEDIAN, Drawn, Scene, marker, plot


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
    text = plot(Scene(drawn, (0.0, 100.0)), width, height, of.get("colourless", False))
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
    text = plot(Scene([Drawn(0, flat), Drawn(1, flat)], (0.0, 100.0)), 60, 8, False)
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
    found = plot(Scene(drawn, (0.0, 100.0)), 80, height, False).plain.split("\n")
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


def test_a_curve_over_steps_forgets_what_was_done_again() -> None:
    """Given a task that begins anew at step 20 after it had reached 40, then the curve over steps
    goes on from 20; a value before the first step has no place."""
    steps: Curve = ([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [10.0, 20.0, 30.0, 40.0, 20.0, 50.0])
    losses: Curve = ([0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [9.0, 8.0, 7.0, 6.0, 5.0, 7.5, 4.0])
    assert by_step(losses, steps) == ([10.0, 20.0, 50.0], [8.0, 7.5, 4.0])
    assert by_step(losses, ([], [])) == ([], [])


def test_a_band_is_that_of_the_curves_that_live() -> None:
    """Given five curves of which one ends early and one begins late, then least, middle and largest
    are of those that are there; without a curve there is no band."""
    whole = [([0.0, 50.0, 100.0], [level] * 3) for level in (1.0, 2.0, 9.0)]
    early: Curve = ([0.0, 20.0], [100.0, 100.0])
    late: Curve = ([80.0, 100.0], [-5.0, -5.0])
    found = band([*whole, early, late, ([], [])], 11)
    assert found.xs == [10.0 * place for place in range(11)]
    assert found.highs == [100.0] * 3 + [9.0] * 8
    assert found.lows == [1.0] * 8 + [-5.0] * 3
    assert found.middles[5] == 2.0 and found.middles[0] == 5.5
    assert band([], 5) == Band([], [], [], [])


def test_a_band_is_filled_behind_its_median() -> None:
    """From the least to the largest value, between its places too; with its marker in place of
    colours, and the place of a failure on the scale of steps below."""
    one = Band([0.0, 100.0], [1.0, 1.0], [2.0, 2.0], [3.0, 3.0])
    median = Drawn(MEDIAN, (one.xs, one.middles), "median")
    scene = Scene([median], (0.0, 100.0), failed=50.0, band=one, steps=True)
    found = plot(scene, 80, 12, True).plain.split("\n")
    filled = [row for row in found if "░" in row]
    assert len(filled) >= 8 and all(row.count("░") > 60 for row in filled)
    assert any(marker(MEDIAN) * 9 in row and row.endswith("median") for row in found)
    assert "✗" in found[-2] and found[-1].split()[0] == "0" and "100" in found[-1]
    assert all("│" in row[20:60] for row in found[:-2] if "░" not in row and "-" not in row)


def test_steps_are_round() -> None:
    """1, 2 or 5 × 10^n, however many steps there are."""
    assert step_ticks(0, 1147, 4) == [0, 500, 1000]
    assert step_ticks(0, 3e9, 5) == [0, 1e9, 2e9, 3e9]
