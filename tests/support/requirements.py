"""What a test needs of the machine: skipped where it is missing, and in CI a failure."""

from __future__ import annotations

import os

import pytest

from tests.testbed import namespaces


def require_testbed() -> None:
    """Skip the test, or fail it in CI, when this machine cannot carry the testbed of four hosts."""
    require(namespaces.missing())


def require(reason: str | None) -> None:
    """Skip the test, or fail it in CI, for that reason if there is one."""
    if reason is not None and os.environ.get("CI"):
        pytest.fail(f"{reason}, and in CI a missing testbed is a failure", pytrace=False)
    if reason is not None:
        pytest.skip(reason)
