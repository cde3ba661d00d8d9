"""Host names that the user's own SSH configuration knows, for completion.

Only names are read: what an alias means is asyncssh's business when it logs in.
"""

from __future__ import annotations

import shlex
from pathlib import Path

_DEEPEST = 8
_MOST = 2000


def aliases(config: Path | None = None) -> list[str]:
    """The `Host` names of `~/.ssh/config` and the files it includes, in their order.

    Patterns (`*`, `?`, `!`) name no host and are left out, and so is what cannot be read.
    """
    start = Path("~/.ssh/config").expanduser() if config is None else config
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
    """A line's keyword and arguments; `Keyword=value` is the same as `Keyword value`."""
    keyword, _, rest = line.strip().replace("=", " ", 1).partition(" ")
    try:
        return [keyword, *shlex.split(rest, comments=True)] if keyword[:1] != "#" else []
    except ValueError:
        return [keyword, *rest.split()]


def _matching(pattern: str, home: Path) -> list[Path]:
    path = Path(pattern).expanduser()
    if not path.is_absolute():
        path = home / path
    try:
        return sorted(Path(path.anchor).glob(str(path.relative_to(path.anchor))))
    except (OSError, ValueError):
        return []
