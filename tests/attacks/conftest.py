"""Fixtures of the attacks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.attacks.clients import Clients
from tests.faults.conftest import scenario, shared_testbed
from tests.testbed.inprocess import SshServer

__all__ = ["scenario", "shared_testbed"]


@pytest.fixture
def clients(ssh_server: SshServer, tfmux_home: Path) -> Clients:
    """OpenSSH's client and ours, and a server that both know."""
    return Clients(tfmux_home, ssh_server)
