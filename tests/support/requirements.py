"""What a test needs of the machine: skipped where it is missing, and in CI a failure."""

from __future__ import annotations

import os
import shutil

import pytest

from tests.testbed import namespaces, podman, slurm


def require_testbed() -> None:
    """Skip the test, or fail it in CI, when this machine cannot carry the testbed of four hosts."""
    require(namespaces.missing())


def require(reason: str | None) -> None:
    """Skip the test, or fail it in CI, for that reason if there is one."""
    if reason is not None and os.environ.get("CI"):
        pytest.fail(f"{reason}, and in CI that is a failure", pytrace=False)
    if reason is not None:
        pytest.skip(reason)


def lacking() -> list[str]:
    """Return a line for each part of the machine whose tests are skipped here, with the reason."""
    from tests.testbed import browser  # imports aiohttp, which quick tests do not use

    found = {
        "hosts": namespaces.missing(),
        "Slurm": slurm.missing(),
        "containers": podman.missing(),
        "the browser": browser.missing(),
        "tmux": None if shutil.which("tmux") else "tmux is not installed",
    }
    where = "fail" if os.environ.get("CI") else "are left out"
    return [f"tests of {part} {where}: {reason}" for part, reason in found.items() if reason]
