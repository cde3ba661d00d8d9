"""asyncssh, as all modules here import it: so that no other program is started for that.

`tfmux` and the launcher process switch off its X.509 certificates, which OpenSSH lacks, before:
they take a sixth of its import. A program that imports `launcher` may want them for itself.
"""

from __future__ import annotations

import ctypes.util
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ("asyncssh",)

_LINKER_CACHE = Path("/etc/ld.so.cache")


@contextmanager
def _libraries_by_cache() -> Iterator[None]:
    """Has only those libraries looked for that the linker's cache names: asyncssh can use two which
    few machines have, and for each name Python would start `ldconfig`, a compiler and two
    linkers."""
    find = ctypes.util.find_library
    try:
        names = b"" if os.environ.get("LD_LIBRARY_PATH") else _LINKER_CACHE.read_bytes()
    except OSError:  # macOS, musl
        names = b""

    def find_known(name: str) -> str | None:
        for found in re.findall(rb"\blib%s\.so[.\d]*" % re.escape(os.fsencode(name)), names):
            library = os.fsdecode(found)
            with suppress(OSError):  # it is of another architecture
                ctypes.CDLL(library)
                return library
        return None

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
