"""Files without a name, through which a process hears what another one writes."""

from __future__ import annotations

import os
import sys
from typing import IO


def nameless_file() -> IO[bytes]:
    """A file that is gone when both processes have closed it."""
    if sys.platform == "linux":  # `tempfile` takes as long to import as the interpreter to start
        return open(os.memfd_create("launcher"), "w+b", buffering=0)
    else:
        from tempfile import TemporaryFile

        return TemporaryFile()
