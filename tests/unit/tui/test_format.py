"""Figures and times as people read them."""

from __future__ import annotations

import pytest

from launcher import quantities


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-1, "0 s"), (9.9, "9 s"), (13, "10 s"), (99, "95 s"), (101, "1 min"), (5999, "99 min"),
     (6000, "1 h"), (47.9 * 3600, "47 h"), (48 * 3600, "2 d"), (86400 * 30, "30 d")],
)  # fmt: skip
def test_ages(seconds: float, text: str) -> None:
    """Calm for seconds, whole units for the rest."""
    assert quantities.age(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0:00"), (62, "1:02"), (3723, "1:02:03"), (-5, "0:00")]
)
def test_clocks(seconds: float, text: str) -> None:
    """Hours only where there are any."""
    assert quantities.clock(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (812, "812 B"), (1500, "1.5 KB"), (64e3, "64 KB"), (1.2e9, "1.2 GB")],
)
def test_sizes(count: float, text: str) -> None:
    """Two figures are enough."""
    assert quantities.size(count) == text


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 hosts"), (1, "1 host"), (12_000, "12,000 hosts")]
)
def test_counts(count: int, text: str) -> None:
    """Singular, plural, groups of three."""
    assert quantities.counted(count, "host") == text
