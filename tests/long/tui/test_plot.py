"""Curves of the metrics screen: round ticks, ends, curves that cross, plots without colours."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from tui.curves import band, curve
from tui.widgets.plot import Drawn, Scene, plot

VALUES = st.floats(allow_nan=True, allow_infinity=True)


@given(
    st.lists(st.lists(VALUES, max_size=40), max_size=4),
    st.integers(0, 60),
    st.integers(0, 20),
    st.booleans(),
    st.booleans(),
)
def test_any_values_are_drawn_in_the_room_there_is(
    values: list[list[float]], width: int, height: int, colourless: bool, steps: bool
) -> None:
    """NaN, infinite, huge, constant, none: no row is wider than the plot."""
    drawn = []
    for number, of in enumerate(values):
        drawn.append(Drawn(number, curve(map(float, range(len(of))), of, 0.0)))
    scene = Scene(drawn, (0.0, 40.0), 7.0, 12.0, band([one.curve for one in drawn], 9), steps)
    text = plot(scene, width, height, colourless)
    if any(one.curve[0] for one in drawn) and height > 2 and width > 20:
        assert len(text.plain.split("\n")) == height
        assert max(map(cell_len, text.plain.split("\n"))) <= width
