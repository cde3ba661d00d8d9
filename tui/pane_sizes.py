"""Record of the pane sizes that a person has chosen for a cluster.

`$XDG_DATA_HOME/tfmux/panes/NAME.json` holds the cells of each split that was changed by hand.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

from launcher.cluster.fields import name_problem
from launcher.cluster.saved_file import SaveError, write
from launcher.paths import panes_home
from launcher.store.disk_thread import DiskThread
from launcher.store.json_lines import form, open_regular
from tui.pane_boxes import PAGE_LIMIT, Sizes

_SPLIT = re.compile(r"(chief )?(rows|columns) \d{1,2}|chief (beside|above)")
_MOST_BYTES = 1 << 14
_MOST_CELLS = 10_000


class PaneSizes:
    """Reads the record of a cluster and writes it, without waiting for the disk."""

    def __init__(self, cluster: str, failed: Callable[[str], None]) -> None:
        """`failed` gets a sentence on another thread when the record cannot be written."""
        self._path = None if name_problem(cluster) else panes_home() / f"{cluster}.json"
        self._failed = failed
        self._worker = DiskThread("pane sizes", lambda error: failed(str(error)))

    def load(self) -> dict[str, tuple[int, ...]]:
        """The record; empty where there is none, or one that this program did not write."""
        try:
            return _read(self._path) if self._path is not None else {}
        except (OSError, ValueError, RecursionError):
            return {}

    def save(self, sizes: Sizes) -> None:
        """Writes the record; one that is still to be written is replaced."""
        if self._path is not None:
            path, text = self._path, json.dumps(sizes)
            self._worker.drop(lambda job: True)
            self._worker.put(lambda: self._write(path, text))

    def close(self) -> None:
        """Ends the thread that writes."""
        self._worker.stop()

    def _write(self, path: Path, text: str) -> None:
        try:
            write(path, text)
        except (SaveError, OSError) as error:
            self._failed(f"the sizes of the panes are not remembered: {error}")


def _read(path: Path) -> dict[str, tuple[int, ...]]:
    with open_regular(path) as file:
        text = file.read(_MOST_BYTES + 1)
    if len(text) > _MOST_BYTES:
        raise ValueError(f"{path} is too long")
    record = form(dict[str, tuple[int, ...]]).validate_json(text, strict=True)
    for name, lengths in record.items():
        fits = 2 <= len(lengths) <= PAGE_LIMIT
        if not _SPLIT.fullmatch(name) or not fits or not all(0 < n <= _MOST_CELLS for n in lengths):
            raise ValueError(f"{path}: not a record of pane sizes")
    return dict(record)
