"""Real trainer processes on loopback, ended whatever happens to the test."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterator

import pytest

from tests.paths import REPOSITORY
from tests.trainer.tasks import Tasks


@pytest.fixture
def tasks(tmp_path: pathlib.Path) -> Iterator[Tasks]:
    """Starts trainer processes; those that still live at the end of the test are killed."""
    with Tasks(tmp_path) as started:
        yield started


@pytest.fixture(scope="session")
def digits_directory() -> str | None:
    """A directory of real MNIST IDX files; None, the embedded digits, where there is none."""
    default = REPOSITORY.parent / "shared" / "data" / "mnist10k"
    path = pathlib.Path(os.environ.get("TFMUX_TEST_DATA", default))
    return str(path) if path.is_dir() else None
