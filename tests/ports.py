"""Free ports for tests and benchmarks."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from launcher.agent.ports import Picker

_CLAIMS = Path(tempfile.gettempdir(), f"tfmux-test-ports-{os.getuid()}")


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on, below those of outgoing connections, which another process
    could have before they are used; none twice, as long as this process lives."""
    return Picker(str(_CLAIMS)).pick(count, ())
