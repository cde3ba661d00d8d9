"""The beds themselves: what they promise to the tests that stand on them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.beds.namespaces import Bed


def ssh(home: Path, host: str, command: str) -> str:
    """Run a command on a host with the system's OpenSSH client and return its output."""
    done = subprocess.run(
        ["ssh", "-F", str(home / ".ssh/config"), "-o", "BatchMode=yes", host, command],
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.bed
def test_each_host_is_a_machine_of_its_own(bed: Bed, tfmux_home: Path) -> None:
    """Names, accounts, homes and process tables are each host's own."""
    bed.give_access(tfmux_home)
    for host in bed:
        words = ssh(tfmux_home, host.name, "hostname; id -un; pwd; cat /proc/1/comm").split()
        assert words == [host.name, host.account.name, host.account.home, "sshd"]
