"""What goes on with a run when its screen leaves."""

from __future__ import annotations

import sys

from launcher.session.session import Session


def detach_command(session: Session) -> list[str]:
    """A launcher without a screen that goes on with the run."""
    # -P: no `queue.py` or `launcher/` of the working directory takes the place of ours.
    words = ["-P", "-m", "tui.main", "attach", session.folder.run_id, "--headless"]
    return [sys.executable, *words]
