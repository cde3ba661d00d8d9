"""The scenarios on which everything goes wrong."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import require_testbed
from tests.faults.scenario import FaultScenario
from tests.faults.slurm_scenario import Scenario
from tests.testbed import guard, proc
from tests.testbed.namespaces import Testbed
from tests.testbed.slurm import SlurmBed


@pytest.fixture(scope="module")
def shared_testbed() -> Iterator[Testbed]:
    """One testbed for all tests of a module that leave its hosts as they were."""
    require_testbed()
    with Testbed() as hosts:
        yield hosts


@pytest.fixture
def scenario(shared_testbed: Testbed, tmp_path: Path) -> Iterator[FaultScenario]:
    """The module's testbed with bystanders on each host; nothing else lives there afterwards."""
    try:
        with FaultScenario(shared_testbed, tmp_path) as stage:
            yield stage
        found = guard.leaks(shared_testbed.processes)
        if found:
            pytest.fail(f"left on hosts:\n{guard.describe(found)}", pytrace=False)
    finally:
        for host in shared_testbed:
            if not host.up:
                host.boot()
            for process in host.leftovers():
                proc.signal_process(process, signal.SIGKILL)


@pytest.fixture
def fresh_scenario(testbed: Testbed, tmp_path: Path) -> Iterator[FaultScenario]:
    """The same on a testbed of the test's own, to do things to its hosts that last."""
    with FaultScenario(testbed, tmp_path) as stage:
        yield stage


@pytest.fixture
def slurm_scenario(slurm_bed: SlurmBed, tmp_path: Path) -> Iterator[Scenario]:
    """A Slurm cluster of four nodes; nothing lives there afterwards."""
    yield Scenario(slurm_bed, tmp_path)
    assert slurm_bed.leftovers() == []
