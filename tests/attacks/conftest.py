"""The scene of `tests/faults`, for attacks."""

from __future__ import annotations

from tests.faults.conftest import scene, town

__all__ = ["scene", "town"]
