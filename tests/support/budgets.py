"""How much the tests try: the same and little in `make test`, at random and much in `make soak`.

`make soak` sets `SOAK`; the tests marked `soak` run there alone. `make prove` has the `variants`
that `make test` leaves out.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, TypeVar

import pytest
from hypothesis import settings
from hypothesis.database import DirectoryBasedExampleDatabase

T = TypeVar("T")
SOAK = "SOAK" in os.environ
_TIMES = 20
_FOUND = ".hypothesis/soak"
"""Where examples that have failed are kept, to be tried first by the next soak."""


def budget(little: T, much: T) -> T:
    """What a test tries, and what it tries in a soak."""
    return much if SOAK else little


def examples(count: int, **more: Any) -> settings:
    """Settings of a property test with up to a hundred examples, the same in each run; in a soak
    twenty times as many, new ones in each run."""
    if SOAK:
        database = DirectoryBasedExampleDatabase(_FOUND)
        return settings(max_examples=_TIMES * count, deadline=None, database=database, **more)
    assert count <= 100, "more belong into a soak"
    return settings(max_examples=count, deadline=None, derandomize=True, database=None, **more)


def soon(seconds: float, bound: float) -> bool:
    """Whether something took no longer than its bound, in a soak only: `make test` fills all
    processors with tests, and what waits for ever fails there, too."""
    return not SOAK or seconds < bound


def soak(*values: object) -> Any:
    """Parameters of a test that are tried in a soak only."""
    return pytest.param(*values, marks=pytest.mark.soak)


def variants(
    names: str | tuple[str, ...], rows: Iterable[Any], *, test: int, **more: Any
) -> pytest.MarkDecorator:
    """Parametrize a test with rows of which `make test` tries the first, so many, and `make prove`
    the others: they show the same behaviour."""
    single = isinstance(names, str) and "," not in names
    marked: list[Any] = []
    for row in rows:
        given = row if hasattr(row, "marks") else pytest.param(*((row,) if single else row))
        left_out = len(marked) >= test
        marks = (*given.marks, pytest.mark.prove) if left_out else given.marks
        marked.append(pytest.param(*given.values, marks=marks, id=given.id))
    return pytest.mark.parametrize(names, marked, **more)
