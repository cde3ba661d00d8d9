"""The scene on which everything goes wrong."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.beds.namespaces import Bed
from tests.faults.scene import Scene


@pytest.fixture
def scene(bed: Bed, tmp_path: Path) -> Iterator[Scene]:
    """The bed with strangers on each host."""
    with Scene(bed, tmp_path) as stage:
        yield stage
