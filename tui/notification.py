"""Notifications of the terminal itself: its bell, or a message on the desktop (OSC 9, OSC 777).

They say that a run on the screen has ended, or that its first task has failed, while the person
looks elsewhere. What a terminal does not know it ignores, or prints: only those get an OSC sequence
that are known to show it, all others ring their bell.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING

from launcher.printable import printable
from launcher.run.states import Outcome, RunPhase
from tui.streams import without_secrets

if TYPE_CHECKING:
    from launcher.run.snapshot import Snapshot

BELL = "\a"
_LONGEST = 200
_TOGETHER_SECONDS = 60.0
"""A run that ends so soon after the failure that was told ends because of it."""
_OSC_9 = ("iTerm.app", "iTerm2", "WezTerm", "ghostty", "xterm-kitty", "xterm-ghostty")
_OSC_777 = ("foot", "rxvt-unicode")


class Notify(StrEnum):
    """Setting `notify` of `config.toml`: how news of a run are announced."""

    OFF = "off"
    BELL = "bell"
    DESKTOP = "desktop"


class RunNews:
    """Finds what is worth a notification in the snapshots of the run on the screen."""

    def __init__(self, notify: Notify) -> None:
        self._notify = notify
        self._run = ""
        """The run that was seen alive."""
        self._failed_at: float | None = None

    def sequence(self, snapshot: Snapshot, *, focused: bool) -> str:
        """Escape sequence for the news of this snapshot; empty while the terminal has the focus."""
        news = self.read(snapshot)
        return "" if focused or not news else sequence(self._notify, news, os.environ)

    def read(self, snapshot: Snapshot) -> str:
        """Text of the news since the last snapshot; empty if there are none."""
        ended, failure = snapshot.state is RunPhase.ENDED, snapshot.first_failure
        if self._run != snapshot.run_id:
            if not ended:
                self._run = snapshot.run_id
                self._failed_at = None if failure is None else failure.time
            return ""  # what has ended before it was opened is no news
        if ended:
            self._run = ""
            told_at = self._failed_at
            now = snapshot.ended or 0.0
            failed = snapshot.outcome is Outcome.FAILED and told_at is not None
            if failed and told_at is not None and now - told_at < _TOGETHER_SECONDS:
                return ""
            return f"{snapshot.run_id}: {snapshot.outcome}, exit code {snapshot.exit_code}"
        if failure is not None and self._failed_at is None:
            self._failed_at = failure.time
            return f"{snapshot.run_id}: {failure.task} on {failure.host} failed: {failure.how}"
        return ""


def sequence(notify: Notify, text: str, environ: Mapping[str, str]) -> str:
    """Escape sequence that notifies in this terminal. `text` may have words of hosts in it: nothing
    in it can end the sequence, or begin another one."""
    if notify is Notify.OFF:
        return ""
    names = {environ.get(name, "") for name in ("TERM", "TERM_PROGRAM", "LC_TERMINAL")}
    inside = "TMUX" in environ or environ.get("TERM", "").startswith(("screen", "tmux"))
    if notify is Notify.BELL or inside:
        return BELL
    clean = printable(without_secrets(text), _LONGEST)
    if names.intersection(_OSC_9):
        return f"\x1b]9;tfmux: {clean}\x1b\\"
    if environ.get("TERM", "").startswith(_OSC_777):
        return f"\x1b]777;notify;tfmux;{clean.replace(';', ',')}\x1b\\"
    return BELL
