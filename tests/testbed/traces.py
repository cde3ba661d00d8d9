"""What a testbed leaves on this machine."""

from __future__ import annotations

import os
from pathlib import Path

from tests.testbed import network, proc
from tests.testbed.namespaces import Testbed

_SPACES = ("net", "pid", "mnt", "uts")


def show(testbed: Testbed) -> list[str]:
    """Return what `traces` needs to find a testbed: the time, bridge, directory and namespaces."""
    spaces = [
        str(os.stat(f"/proc/{host.pid}/ns/{kind}").st_ino) for host in testbed for kind in _SPACES
    ]
    return [str(proc.now()), testbed.bridge, str(testbed.directory), *spaces]


def traces(shown: list[str]) -> list[str]:
    """Return all that is left of a testbed.

    A later one, of another test run, may be given the same bridge and namespace numbers.
    """
    moment, bridge, directory, *spaces = shown
    with network.lock():
        others = {claim.bridge for claim in network.claims() if str(claim.directory) != directory}
        names = [name for name in os.listdir("/sys/class/net") if name.split("-")[0] == bridge]
    left = [] if bridge in others else names
    if os.path.exists(directory):
        left.append(directory)
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    left += [line for line in mounts if directory in line]
    for process in [each for each in proc.scan() if each.started < float(moment)]:
        for kind in _SPACES:
            try:
                inode = os.stat(f"/proc/{process.pid}/ns/{kind}").st_ino
            except OSError:
                continue
            if str(inode) in spaces:
                left.append(f"{process} in {kind}:{inode}")
    return left
