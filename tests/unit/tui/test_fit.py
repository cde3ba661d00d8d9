"""Rows of ranked parts: what a narrow row leaves out."""

from __future__ import annotations

import pytest

from tui.widgets.fit import Importance, Part, fit

NAMED = [
    Part(Importance.NAME, "mnist-between-graph", shortens=True),
    Part(Importance.STATE, "ps ✓"),
    Part(Importance.STATE, " ▸ workers 3/3", joins=True),
    Part(Importance.STATE, "step 12/90"),
    Part(Importance.BAR, "━━━━━╌╌╌╌╌"),
    Part(Importance.LOSS, "loss 0.21"),
]
FAILED = [
    Part(Importance.NAME, "mnist"),
    Part(Importance.NEWS, "first: worker:1 exit 1"),
    Part(Importance.RATE, "331 steps/s"),
    Part(Importance.LOSS, "loss 3"),
]
HOST = [Part(0, "ps:0"), Part(4, " @tf1", joins=True), Part(1, "ready")]


@pytest.mark.parametrize(
    ("parts", "width", "row"),
    [
        (NAMED, 99, "mnist-between-graph  ps ✓ ▸ workers 3/3  step 12/90  ━━━━━╌╌╌╌╌  loss 0.21"),
        (NAMED, 62, "mnist-between-graph  ps ✓ ▸ workers 3/3  step 12/90  loss 0.21"),
        (NAMED, 61, "mnist-between-graph  ps ✓ ▸ workers 3/3  step 12/90"),
        (NAMED, 42, "mnist-bet…  ps ✓ ▸ workers 3/3  step 12/90"),
        (NAMED, 37, "ps ✓ ▸ workers 3/3  step 12/90"),
        (NAMED, 17, "ps ✓  step 12/90"),
        (FAILED, 40, "mnist  first: worker:1 exit 1  loss 3"),
        (FAILED, 20, "first: worker:1 exi…"),
        (HOST, 16, "ps:0 @tf1  ready"),
        (HOST, 12, "ps:0  ready"),
        (HOST, 9, "ps:0 @tf1"),
    ],
)
def test_what_counts_less_goes_first_and_what_still_fits_stays(
    parts: list[Part], width: int, row: str
) -> None:
    """A part that joins goes with the one before it; a name is cut before it goes."""
    assert fit(parts, width).plain == row
