"""What a test may take is said by the folder that it lies in.

A test of `unit` or `screens` that starts a process, or takes more than a quarter of a second of a
processor's time, fails; one of `long` may take time. All others are watched for processes that they
leave.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies

from tests.support.paths import REPOSITORY
from tests.support.promises import SHOWN_BY

QUICK = ("unit", "screens")
NO_PROCESS = (*QUICK, "long")
PARTS = ("test", "prove")
"""What `make test` and `make prove` run; neither runs a test of the other."""
_SECONDS = 0.25
_SLOW = 12.0
"""How much longer the same work may take on the slowest and busiest machine."""
_LANES = 3
"""How many tests of TensorFlow run at a time. They compute, with a low priority, and all others
mostly wait: beside each other they fill two processors."""
_SHARED = 8
"""How many tests of a module use one testbed of it; the next ones have another."""
_TESTS = REPOSITORY / "tests"


def names(tiers: Collection[str]) -> str:
    """Folders, as a person writes them."""
    return " and ".join(f"tests/{tier}" for tier in tiers)


def tier_of(path: Path) -> str | None:
    """The folder of a test; None for what lies elsewhere."""
    if not path.is_relative_to(_TESTS) or path == _TESTS:
        return None
    tier = path.relative_to(_TESTS).parts[0]
    return None if tier.endswith(".py") else tier


def in_part(item: pytest.Item, part: str | None) -> bool:
    """Whether `make PART` runs the test: `prove` has what is marked so, and attacks but for those
    that show a promise."""
    attack = "attacks" in item.path.parts and _function(item) not in SHOWN_BY
    proof = attack or item.get_closest_marker("prove") is not None
    return part is None or proof == (part == "prove")


def _function(item: pytest.Item) -> str:
    name = getattr(item, "originalname", item.name)
    return f"{item.path.relative_to(REPOSITORY)}::{name}"


def group(items: list[pytest.Item]) -> None:
    """Keep on one worker what shares a testbed, and on some workers what computes."""
    lane, sharing = 0, Counter[str]()
    for item in items:
        if "shared_testbed" in getattr(item, "fixturenames", ()):
            name = item.path.stem
            sharing[name] += 1
            item.add_marker(pytest.mark.xdist_group(f"{name}{sharing[name] // _SHARED}"))
        elif tier_of(item.path) == "tensorflow":
            lane = (lane + 1) % _LANES
            item.add_marker(pytest.mark.xdist_group(f"tensorflow{lane}"))


def prepare_quick() -> None:
    """See to it that quick tests pay for nothing that is not theirs: Hypothesis's table of all
    characters takes a second where no earlier run has kept it."""
    strategies.text().validate()


def refuse_tensorflow() -> None:
    """Fail where the import of a test imports TensorFlow: each worker would do it, for seconds, and
    who runs quick tests need not have it."""
    if "tensorflow" in sys.modules:
        raise pytest.UsageError("a test imports TensorFlow: let tests.support.lazily do it")


@contextmanager
def no_process_started(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fail a test that starts a process after all."""
    started: list[object] = []
    start: Any = subprocess.Popen.__init__

    def noted(self: subprocess.Popen[bytes], args: object, *others: Any, **options: Any) -> None:
        started.append(args)
        start(self, args, *others, **options)

    monkeypatch.setattr(subprocess.Popen, "__init__", noted)
    yield
    if started:
        pytest.fail(f"move it to tests/processes: it started {started}", pytrace=False)


@contextmanager
def no_time_spent(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a quick test that takes too long, on the processor's clock. Whichever test comes first
    imports what the program imports late, and compiles it in a new clone: that is nobody's time."""
    before, modules = time.process_time(), len(sys.modules)
    yield
    seconds, imported = time.process_time() - before, len(sys.modules) > modules
    if tier_of(request.path) in QUICK and seconds > _SECONDS * _SLOW and not imported:
        pytest.fail(
            f"move it to tests/long: it took {seconds:.2f} s of processor time, and a test of "
            f"{names(QUICK)} takes at most {_SECONDS} s",
            pytrace=False,
        )
