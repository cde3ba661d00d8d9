"""Free ports for tests and benchmarks."""

from __future__ import annotations

import fcntl
import os
import random
import tempfile
from contextlib import suppress
from pathlib import Path

from launcher.agent.ports import free

_FOLDER = Path(tempfile.gettempdir(), f"tfmux-test-port-locks-{os.getuid()}")
_held: list[int] = []
"""Descriptors of locks, one for each port that was handed out here."""


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on, below those of outgoing connections, which another process
    could have before they are used; none twice, as long as this process lives."""
    _FOLDER.mkdir(exist_ok=True)
    picked: list[int] = []
    for port in random.sample(range(15000, 32000), 17000):
        if len(picked) == count:
            break
        lock = os.open(_FOLDER / str(port), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if free(port):
                picked.append(port)
                _held.append(lock)
                continue
        os.close(lock)
    assert len(picked) == count, "no free port is left on this machine"
    return picked
