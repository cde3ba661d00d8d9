"""A `/tmp` of a mount namespace's own, in which the program under test stays visible."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from tests.support.paths import REPOSITORY

_TMP = Path("/tmp")


def mounting(*kept: Path) -> str:
    """Shell lines that mount an empty `/tmp`; its mounts must be private already.

    The project and its interpreter may be below `/tmp` themselves: they are bound to their places
    again, and so are `kept`.
    """
    lines = ["mount -t tmpfs -o mode=1777 tmp /mnt"]
    for path in _outermost((REPOSITORY, Path(sys.prefix), Path(sys.base_prefix), *kept)):
        place = shlex.quote(str("/mnt" / path.relative_to(_TMP)))
        lines += [f"mkdir -p {place}", f"mount --rbind {shlex.quote(str(path))} {place}"]
    return "\n".join([*lines, "mount --move /mnt /tmp"])


def _outermost(paths: tuple[Path, ...]) -> list[Path]:
    """The paths below `/tmp`, without those that lie in another one."""
    below = {path.resolve() for path in paths if path.resolve().is_relative_to(_TMP)}
    return sorted(path for path in below if below.isdisjoint(path.parents))
