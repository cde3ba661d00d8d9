"""Host names of the user's SSH configuration, for completion.

Only names are read; the options of a host are read by asyncssh when it logs in.
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path

_DEEPEST = 8
_MOST = 2000


def aliases() -> list[str]:
    """Lists the `Host` names of `~/.ssh/config` and the files it includes, in their order.

    Patterns (`*`, `?`, `!`) and files that cannot be read are skipped.
    """
    start = Path("~/.ssh/config").expanduser()
    found: dict[str, None] = {}
    _read(start, start.parent, found, _DEEPEST)
    return list(found)


def _read(path: Path, home: Path, found: dict[str, None], depth: int) -> None:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    for line in text.splitlines():
        words = _words(line)
        if len(words) < 2:
            continue
        keyword = words[0].lower()
        if keyword == "host":
            for name in words[1:]:
                if not set("*?!") & set(name) and len(found) < _MOST:
                    found[name] = None
        elif keyword == "include" and depth:
            for pattern in words[1:]:
                for included in _matching(pattern, home):
                    _read(included, home, found, depth - 1)


def _words(line: str) -> list[str]:
    """Splits a line into keyword and arguments; `Keyword=value` is valid as well."""
    keyword, _, rest = line.strip().replace("=", " ", 1).partition(" ")
    try:
        return [keyword, *shlex.split(rest, comments=True)] if keyword[:1] != "#" else []
    except ValueError:
        return [keyword, *rest.split()]


def _matching(pattern: str, home: Path) -> list[Path]:
    path = Path(os.path.expanduser(pattern))
    if not path.is_absolute():
        path = home / path
    try:
        return sorted(Path(path.anchor).glob(str(path.relative_to(path.anchor))))
    except (OSError, ValueError):
        return []
