"""Choices of a person on the screens, kept for the next time: theme, layout, and how lines look.

They are in `$XDG_STATE_HOME/tfmux/screens.json`. Several screens may write it: each changes only
what was chosen there. A file that cannot be read or written is no reason to say anything.
"""

from __future__ import annotations

import json
import threading
from contextlib import suppress
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from launcher.cluster.saved_file import SaveError, write
from launcher.frozen import frozen
from launcher.paths import state_home

_MOST_BYTES = 64 * 1024


@frozen
class Remembered:
    """What a person has chosen; empty texts where nothing was."""

    theme: str = ""
    layout: str = ""
    stamps: str = ""
    wrap: bool = True
    hide_prefix: bool = False
    remarks: bool = False
    directory: str = ""
    """Where lines were saved last."""


class Memory:
    """The choices, as they were read and have been changed since."""

    def __init__(self) -> None:
        self._path = state_home() / "screens.json"
        self.choices = _read(self._path)
        self._writing = threading.Lock()

    def keep(self, **changes: Any) -> None:
        """Changes some choices, and writes them in a thread: no screen waits for a disk."""
        self.choices = replace(self.choices, **changes)
        threading.Thread(target=self._write, args=(changes,), name="memory", daemon=True).start()

    def _write(self, changes: dict[str, Any]) -> None:
        with self._writing, suppress(SaveError):
            choices = replace(_read(self._path), **changes)
            write(self._path, json.dumps(asdict(choices), indent=1) + "\n")


def _read(path: Path) -> Remembered:
    """The choices in a file, without those that are none."""
    try:
        with path.open("rb") as file:
            found = json.loads(file.read(_MOST_BYTES))
    except (OSError, ValueError, RecursionError):
        return Remembered()
    if not isinstance(found, dict):
        return Remembered()
    kinds = {each.name: type(each.default) for each in fields(Remembered)}
    known: dict[str, Any] = {
        name: value for name, value in found.items() if type(value) is kinds.get(name)
    }
    return Remembered(**known)
