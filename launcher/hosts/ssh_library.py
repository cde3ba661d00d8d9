"""asyncssh, as all modules here import it: so that no compiler is started for that."""

from __future__ import annotations

import ctypes.util
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ("asyncssh",)

_LINKER_CACHE = Path("/etc/ld.so.cache")


@contextmanager
def _libraries_by_cache() -> Iterator[None]:
    """Has only those libraries looked for that the linker's cache names: asyncssh can use two which
    few machines have, and for each name Python would start a compiler and two linkers."""
    find = ctypes.util.find_library
    try:
        names = b"" if os.environ.get("LD_LIBRARY_PATH") else _LINKER_CACHE.read_bytes()
    except OSError:  # macOS, musl
        names = b""

    def find_known(name: str) -> str | None:
        return find(name) if b"lib%s.so" % os.fsencode(name) in names else None

    if names:
        ctypes.util.find_library = find_known
    try:
        yield
    finally:
        ctypes.util.find_library = find


with _libraries_by_cache():
    import asyncssh
    import asyncssh.config
    import asyncssh.encryption
    import asyncssh.kex
    import asyncssh.mac
    import asyncssh.public_key
