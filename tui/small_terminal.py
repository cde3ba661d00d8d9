"""A terminal too small for any screen: one plain line says so, and nothing is laid out for it.

Textual's own widgets fail where they get less than a cell to wrap a text into. So no screen is laid
out for less than `LEAST`; in a smaller terminal its keys work, and a line is drawn in its place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.geometry import Size

from launcher.run.states import RunPhase

if TYPE_CHECKING:  # the first frame of `tfmux` waits for this module
    from launcher.run.snapshot import Snapshot

LEAST = Size(16, 5)
"""The smallest screen that is laid out."""
_ENLARGE = "enlarge the terminal"


def laid_out(terminal: Size) -> Size:
    """The size of the screens in a terminal."""
    return Size(max(terminal.width, LEAST.width), max(terminal.height, LEAST.height))


def is_too_small(terminal: Size) -> bool:
    """Nothing that is laid out fits."""
    return laid_out(terminal) != terminal


def line_for(snapshot: Snapshot | None, kill_key: str, terminal: Size) -> str:
    """The line, as much of it as there is room for: the run's state first."""
    if snapshot is None:
        text = _ENLARGE
    elif snapshot.state is RunPhase.ENDED:
        text = f"{snapshot.outcome}; {_ENLARGE}"
    else:
        text = f"{snapshot.state}; {kill_key} kills all; {_ENLARGE}"
    return text[: terminal.width]
