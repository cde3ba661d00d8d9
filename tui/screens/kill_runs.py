"""Kill dialog for active runs: lists them, kills them after one question, shows the receipts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text
from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import Label, Static

from launcher.errors import TfmuxError
from launcher.quantities import counted
from launcher.run.states import RunPhase
from launcher.session.control import RunControl
from tui.catalog import RunEntry
from tui.format import StatusColor
from tui.keys import key_of
from tui.outcome import receipt_text
from tui.run_clients import RunClients
from tui.screens.dialogs import Dialog
from tui.screens.prompts import PromptDialogs
from tui.widgets.colours import status_colours

_FRAME = 0.1


class KillRunsDialog(Dialog[None]):
    """The question, the kill as it goes on, and the receipts. Leaving it stops no kill."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y,enter", "kill", "Kill", id="dialog.yes", show=False),
        Binding("n", "dismiss(None)", "Back", id="dialog.no", show=False),
    ]

    def __init__(
        self, runs: Sequence[RunEntry], clients: RunClients, prompts: PromptDialogs
    ) -> None:
        super().__init__("")
        self._runs = list(runs)
        self._clients = clients
        self._prompts = prompts
        self._killing = False
        self._started: dict[str, RunControl] = {}
        self._failed: dict[str, str] = {}

    def body(self) -> ComposeResult:
        with VerticalScroll():
            yield Static(id="runs", markup=False)

    def on_mount(self) -> None:
        self._show()
        self.set_interval(_FRAME, self._show)

    def action_kill(self) -> None:
        """Kills them; again: KILL at once."""
        if not self._killing:
            self._killing = True
            for run in self._runs:
                self._kill(run)
        else:
            for client in self._started.values():
                if client.snapshot().state is not RunPhase.ENDED:
                    client.kill_all(force=True)

    @work(thread=True, group="kill", exit_on_error=False)
    def _kill(self, entry: RunEntry) -> None:
        name = entry.summary.run_id
        try:
            client = self._clients.attach(name, self._prompts)
        except (TfmuxError, OSError, KeyError, ValueError) as error:
            self._failed[name] = str(error)
            return
        client.kill_all()
        self._started[name] = client

    @property
    def _done(self) -> bool:
        ended = [s for s in self._started.values() if s.snapshot().state is RunPhase.ENDED]
        return self._killing and len(ended) + len(self._failed) == len(self._runs)

    def _show(self) -> None:
        count = len(self._runs)
        runs = "this run" if count == 1 else f"these {counted(count, 'run')}"
        key, yes, back = (key_of(self, each) for each in ("kill_all", "dialog.yes", "dialog.back"))
        title, hint = f"Kill {runs}, on all hosts?", f"{yes} or {key} kills   {back} cancels"
        if self._done:
            title, hint = "Receipts", f"{back} back"
        elif self._killing:
            title, hint = f"Killing {runs}", f"{key} again: KILL now"
        self.query_one(".dialog-title", Label).update(title)
        self.query_one(".dialog-note", Label).update(hint)
        colours = status_colours(self.app)
        text = Text()
        for entry in self._runs:
            self._append(text, entry, colours)
        self.query_one("#runs", Static).update(text)

    def _append(self, text: Text, entry: RunEntry, colours: dict[StatusColor, str]) -> None:
        name = entry.summary.run_id
        text.append(f"{name}\n", "bold")
        client = self._started.get(name)
        if name in self._failed:
            text.append(f"  {self._failed[name]}\n", colours[StatusColor.BAD])
        elif client is None and not self._killing:
            hosts = entry.report.hosts if entry.report else ()
            for host in hosts:
                tasks = " ".join(str(task) for task in host.tasks) or "no task"
                text.append(f"  {host.name}  {host.unreachable or tasks}\n")
            if not hosts:
                by = f"launcher process: pid {entry.launcher}" if entry.launcher else ""
                text.append(f"  {by or 'its hosts have not answered yet'}\n", "dim")
        elif client is None or client.snapshot().state is not RunPhase.ENDED:
            alive = sum(t.state.live for t in client.snapshot().tasks) if client else 0
            text.append(f"  killing, {counted(alive, 'task')} alive\n", colours[StatusColor.BUSY])
        else:
            text.append("  ")
            text.append_text(receipt_text(client.snapshot(), colours))
            text.append("\n")
