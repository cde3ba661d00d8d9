"""tfmux with a key, Ctrl-T, whose arrivals are written down: `python -m bench.timed FILE …`."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import tui.app
from tui.main import main

ARRIVALS = Path(sys.argv.pop(1)).open("a", buffering=1)


class Timed(tui.app.TfmuxApp):
    """The app with one more key."""

    def on_mount(self) -> None:
        self.bind("ctrl+t", "arrived")

    def action_arrived(self) -> None:
        """The key has come to its handler."""
        ARRIVALS.write(f"{time.monotonic()}\n")


if __name__ == "__main__":
    tui.app.TfmuxApp = Timed  # type: ignore[misc]
    sys.exit(main())
