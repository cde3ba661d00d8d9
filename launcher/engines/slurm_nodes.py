"""Names of nodes, as `scontrol show hostnames` prints them."""

from __future__ import annotations

import re

from .engine import EngineError

_MOST = 4096
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,252}")


def node_names(printed: str) -> tuple[str, ...]:
    """Reads the names.

    Raises:
        EngineError: there are none, or too many, or what is printed are no names.
    """
    names = printed.split()
    if not 0 < len(names) <= _MOST or not all(map(_NAME.fullmatch, names)):
        raise EngineError("scontrol show hostnames did not print names of nodes")
    return tuple(names)
