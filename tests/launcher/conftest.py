"""Fixtures of the launcher's tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.launcher.agent_client import Client
from tests.launcher.run_driver import RunDriver


@pytest.fixture
def driver() -> RunDriver:
    """A run whose whole cluster is ready."""
    driver = RunDriver()
    driver.running()
    return driver


@pytest.fixture
def client() -> Iterator[Client]:
    """An admitted channel to a fresh agent; whatever is left of it is ended."""
    with Client(f"t-{os.urandom(4).hex()}") as channel:
        channel.hello()
        yield channel
        if channel.process.poll() is None:
            with suppress(AssertionError):  # it is ending by itself
                channel.kill()
                channel.leave()
