"""The Textual app: it owns the keys that work everywhere, above all kill-all."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from textual.app import App
from textual.binding import Binding, BindingType
from textual.widgets import Input

from launcher.control import RunControl
from launcher.states import RunState
from tui.screens.dialogs import Leave, LeaveDialog, ReceiptScreen
from tui.screens.run import RunScreen

RECEIPT_SECONDS = 1.5
"""How long a clean receipt is shown before the app leaves by itself."""


class TfmuxApp(App[int]):
    """Shows one run. Its result is the run's exit code; 0 after detaching."""

    TITLE = "tfmux"
    CSS_PATH = Path(__file__).with_name("app.tcss")
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        # Priority: a dialog or a text field must never swallow them.
        Binding("f9", "kill_all", "Kill all, on all hosts", id="kill_all", priority=True),
        Binding("ctrl+q", "leave", "Leave", priority=True, show=False),
        Binding("ctrl+c", "interrupt", "Leave", priority=True, show=False),
        Binding("q", "leave", "Leave", id="leave"),
    ]

    def __init__(self, control: RunControl) -> None:
        super().__init__()
        self.control = control
        self._leaving = False
        self._asked = False

    def on_mount(self) -> None:
        self.push_screen(RunScreen(self.control))
        self.set_interval(0.1, self._watch_end)

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """Colours of the moods, for themes that do not name them."""
        dark = self.current_theme.dark
        return {
            "mood-waiting": "#8a8f98" if dark else "#5f6670",
            "mood-busy": "#d7a13b" if dark else "#8a5a00",
            "mood-good": "#4fae68" if dark else "#1a7a36",
            "mood-off": "#8a8f98" if dark else "#5f6670",
            "mood-bad": "#f0645c" if dark else "#b3201a",
            "accent-text": "#6aa5e8" if dark else "#0b57b0",
        }

    # kill-all and leaving

    def action_kill_all(self) -> None:
        """TERM to everything on all hosts; again: KILL. No question, from any screen."""
        if self.control.snapshot().state is RunState.ENDED:
            self._show_receipt()
            return
        self._asked = True
        self.control.kill_all()

    def action_interrupt(self) -> None:
        """Ctrl-C: copies what is selected in a text field; else leaves, and in the dialog that
        asks how, kills all."""
        focused = self.focused
        if isinstance(focused, Input) and focused.selected_text:
            focused.action_copy()
        elif isinstance(self.screen, LeaveDialog):
            self.screen.dismiss(Leave.KILL)
        elif self._leaving:
            self.action_kill_all()
        else:
            self.action_leave()

    def action_leave(self) -> None:
        """Leaves at once when the run is over; else asks."""
        snapshot = self.control.snapshot()
        if snapshot.state is RunState.ENDED or not self.control.living:
            self.exit(snapshot.exit_code or 0)
        elif snapshot.state is RunState.KILLING:
            self._leaving = True
            self.notify("leaves when the receipt is there; F9: KILL now")
        elif not isinstance(self.screen, LeaveDialog):
            alive = sum(task.state.live for task in snapshot.tasks)
            self.push_screen(LeaveDialog(alive), self._leave)

    def _leave(self, choice: Leave | None) -> None:
        if choice is Leave.KILL:
            self._leaving = True
            self.action_kill_all()
        elif choice is Leave.DETACH:
            self.control.detach()
            self.exit(0)

    def _watch_end(self) -> None:
        """Shows the receipt when a kill has come to its end."""
        if not (self._asked or self._leaving):
            return
        snapshot = self.control.snapshot()
        if snapshot.state is not RunState.ENDED:
            return
        self._asked = False
        self._show_receipt()
        if self._leaving and (snapshot.receipt is None or snapshot.receipt.clean):
            self.set_timer(RECEIPT_SECONDS, lambda: self.exit(snapshot.exit_code or 0))
        self._leaving = False

    def _show_receipt(self) -> None:
        if isinstance(self.screen, LeaveDialog):
            self.screen.dismiss(Leave.STAY)
        if not any(isinstance(screen, ReceiptScreen) for screen in self.screen_stack):
            self.push_screen(ReceiptScreen(self.control.snapshot(), leaving=self._leaving))
