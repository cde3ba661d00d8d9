"""Shown until a run can be: it is being launched or attached to, and its tasks are not known yet.

Nothing waits here: a thread begins, the run's client tells what has become of it, and a launcher
process that stands still is named.
"""

from __future__ import annotations

import time
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import Label

from launcher.quantities import age
from tui.keys import key_of
from tui.run_clients import PendingRun
from tui.screens.dialogs import Dialog

SHOWN_SECONDS = 0.5
"""Time after which the dialog is drawn: a launch seldom takes as long."""


class StartingScreen(Dialog[None]):
    """What a run waits for before it has a screen. The kill key is the app's."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("l", "retry", "Kill it, and launch again", id="starting.retry"),
    ]

    class Retry(Message):
        """A person wants another try."""

    def __init__(self, beginning: PendingRun) -> None:
        super().__init__(beginning.what)
        self.beginning = beginning
        self._text = Label("", classes="dialog-text", markup=False)

    def body(self) -> ComposeResult:
        yield self._text

    def note(self) -> str:
        back, kill = key_of(self, "dialog.back"), key_of(self, "kill_all")
        again = f", {key_of(self, 'starting.retry')} launches again" if self._can_retry else ""
        return f"{kill} kills it, {back} goes back{again}"

    def on_mount(self) -> None:
        self.query_one(".dialog").display = False
        self.set_timer(SHOWN_SECONDS, self._draw)
        self.set_interval(1.0, self.show_news)

    def _draw(self) -> None:
        self.query_one(".dialog").display = True
        self.show_news()

    @property
    def _can_retry(self) -> bool:
        return self.beginning.launches

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """What was launched elsewhere is not launched again here."""
        return action != "retry" or self._can_retry

    def show_news(self) -> None:
        """Shows what the run waits for."""
        run = self.beginning.run
        waited = age(time.monotonic() - self.beginning.since)
        if run is None:
            text = f"for {waited}: its files are read"
        else:
            text = run.standstill or f"for {waited}: its launcher process begins"
        if self.beginning.killed:
            text += "\nthe kill is on its way"
        self._text.update(text)

    def action_retry(self) -> None:
        self.post_message(self.Retry())
