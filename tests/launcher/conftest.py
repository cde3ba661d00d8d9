"""Fixtures of the launcher's tests."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.launcher.agent_client import Client
from tests.launcher.run_driver import RunDriver

NOBODY = 65534


@pytest.fixture
def home() -> Iterator[Path]:
    """A directory of the user as whom the test runs: where that would be root, it is `NOBODY`."""
    path = Path(tempfile.mkdtemp(dir="/tmp"))  # `tmp_path` is closed to other users
    root = os.getuid() == 0
    try:
        if root:
            os.chown(path, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, 0)
        yield path
    finally:
        if root:
            os.setresuid(0, 0, 0)
        shutil.rmtree(path)


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
