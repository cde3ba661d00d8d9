"""The demos: ready cluster files, one for each of the trainer's modes."""

from __future__ import annotations

import difflib
import sys
from pathlib import Path

from launcher.errors import TfmuxError
from tui.exits import Exit

FOLDER = Path(__file__).resolve().parent.parent / "demos"


def names() -> list[str]:
    """All demos, the default one first."""
    found = sorted(path.stem for path in FOLDER.glob("*.toml"))
    return sorted(found, key=lambda name: name != "async")


def find(name: str) -> Path:
    """The cluster file of a demo.

    Raises:
        TfmuxError: there is none of that name; the nearest one is named.
    """
    if name in names():
        return FOLDER / f"{name}.toml"
    near = difflib.get_close_matches(name, names(), 1)
    hint = f"did you mean {near[0]}?" if near else "`tfmux demo --list` names them"
    raise TfmuxError(f"there is no demo {name!r}; {hint}")


def show_list() -> int:
    """Prints a line a demo: its name, and the first comment of its file."""
    wide = max(len(name) for name in names())
    for name in names():
        first = (FOLDER / f"{name}.toml").read_text().partition("\n")[0]
        sys.stdout.write(f"{name:<{wide}}  {first.lstrip('# ')}\n")
    return Exit.SUCCESS
