"""Order of a parallel run: what takes longest begins first, and what shares something stays
together on one worker."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.quick import is_quick

_TRAINER = Path(__file__).parent / "trainer"
_LANES = 3
"""How many tests of the trainer run at a time. They compute, with a low priority, and all others
mostly wait: beside each other they fill two processors."""


def arrange(items: list[pytest.Item]) -> None:
    """Sort the tests and group them, for `--dist loadgroup`."""
    ranks = {}
    lane = 0
    for item in items:
        if is_quick(item):
            ranks[item] = 3
        elif _TRAINER in item.path.parents:
            ranks[item] = 0
            lane = (lane + 1) % _LANES
            item.add_marker(pytest.mark.xdist_group(f"trainer{lane}"))
        elif "shared_testbed" in getattr(item, "fixturenames", ()):
            ranks[item] = 1
            item.add_marker(pytest.mark.xdist_group(item.path.stem))
        else:
            ranks[item] = 1 if item.get_closest_marker("slow") else 2
    items.sort(key=ranks.__getitem__)
