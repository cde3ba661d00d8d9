"""The scene on which everything goes wrong."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.beds import guard, proc
from tests.beds.namespaces import Bed
from tests.conftest import require_bed
from tests.faults.scene import Scene


@pytest.fixture(scope="module")
def town() -> Iterator[Bed]:
    """One bed for all tests of a module that leave its hosts as they were."""
    require_bed()
    with Bed() as hosts:
        yield hosts


@pytest.fixture
def scene(town: Bed, tmp_path: Path) -> Iterator[Scene]:
    """The module's bed with strangers on each host; nothing else lives there afterwards."""
    try:
        with Scene(town, tmp_path) as stage:
            yield stage
        found = guard.leaks(town.processes)
        if found:
            pytest.fail(f"left on hosts:\n{guard.describe(found)}", pytrace=False)
    finally:
        for host in town:
            if not host.up:
                host.boot()
            for process in host.leftovers():
                proc.signal_process(process, signal.SIGKILL)


@pytest.fixture
def fresh_scene(bed: Bed, tmp_path: Path) -> Iterator[Scene]:
    """The same on a bed of the test's own, to do things to its hosts that last."""
    with Scene(bed, tmp_path) as stage:
        yield stage
