"""Names of hosts in `~/.ssh/config`."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

_DEEPEST_INCLUDE = 8
_MOST_ALIASES = 2000


def aliases() -> list[str]:
    """Lists the `Host` names of `~/.ssh/config` and the files it includes, in their order.

    Patterns (`*`, `?`, `!`) and files that cannot be read are skipped.
    """
    start = Path("~/.ssh/config").expanduser()
    found: dict[str, None] = {}
    _read_ssh_config(start, start.parent, found, _DEEPEST_INCLUDE)
    return list(found)


def _read_ssh_config(path: Path, home: Path, found: dict[str, None], depth: int) -> None:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    for line in text.splitlines():
        words = _ssh_words(line)
        if len(words) < 2:
            continue
        keyword = words[0].lower()
        if keyword == "host":
            for name in words[1:]:
                if not set("*?!") & set(name) and len(found) < _MOST_ALIASES:
                    found[name] = None
        elif keyword == "include" and depth:
            for pattern in words[1:]:
                for included in _included(pattern, home):
                    _read_ssh_config(included, home, found, depth - 1)


def _ssh_words(line: str) -> list[str]:
    """Splits a line into keyword and arguments; `Keyword=value` is valid as well."""
    keyword, _, rest = line.strip().replace("=", " ", 1).partition(" ")
    try:
        return [keyword, *shlex.split(rest, comments=True)] if keyword[:1] != "#" else []
    except ValueError:
        return [keyword, *rest.split()]


def _included(pattern: str, home: Path) -> list[Path]:
    path = Path(os.path.expanduser(pattern))
    if not path.is_absolute():
        path = home / path
    try:
        return sorted(Path(path.anchor).glob(str(path.relative_to(path.anchor))))
    except (OSError, ValueError):
        return []
