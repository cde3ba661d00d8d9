"""Kill dialog for active runs: lists them, kills them after one question, shows the receipts."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import Label, Static

from launcher.history.control import RunControl
from launcher.history.run_list import ListedRun
from launcher.quantities import counted
from launcher.run.states import RunPhase
from tui.format import StatusColor
from tui.keys import key_of
from tui.outcome import receipt_text
from tui.run_clients import RunClients
from tui.screens.dialogs import Dialog
from tui.screens.prompt_dialogs import PromptDialogs
from tui.widgets.colours import status_colours

_FRAME = 0.1


class KillRunsDialog(Dialog[None]):
    """The question, the kill as it goes on, and the receipts. Leaving it stops no kill."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y,enter", "kill", "Kill", id="dialog.yes", show=False),
        Binding("n", "dismiss(None)", "Back", id="dialog.no", show=False),
    ]

    def __init__(
        self, runs: Sequence[ListedRun], clients: RunClients, prompts: PromptDialogs
    ) -> None:
        super().__init__("")
        self._runs = list(runs)
        self._clients = clients
        self._prompts = prompts
        self._kills: dict[str, Future[RunControl]] = {}
        """By run, each with the client that the run is killed by."""

    def body(self) -> ComposeResult:
        with VerticalScroll():
            yield Static(id="runs", markup=False)

    def on_mount(self) -> None:
        self._show()
        self.set_interval(_FRAME, self._show)

    def action_kill(self) -> None:
        """Kills them; again: KILL at once."""
        if not self._kills:
            ids = [run.summary.run_id for run in self._runs]
            self._kills = {each: self._clients.kill(each, self._prompts) for each in ids}
        else:
            for kill in self._kills.values():
                kill.add_done_callback(_force)

    @property
    def _done(self) -> bool:
        return bool(self._kills) and all(map(_has_ended, self._kills.values()))

    def _show(self) -> None:
        count = len(self._runs)
        runs = "this run" if count == 1 else f"these {counted(count, 'run')}"
        key, yes, back = (key_of(self, each) for each in ("kill_all", "dialog.yes", "dialog.back"))
        title, hint = f"Kill {runs}, on all hosts?", f"{yes} or {key} kills   {back} cancels"
        if self._done:
            title, hint = "Receipts", f"{back} back"
        elif self._kills:
            title, hint = f"Killing {runs}", f"{key} again: KILL now"
        self.query_one(".dialog-title", Label).update(title)
        self.query_one(".dialog-note", Label).update(hint)
        colours = status_colours(self.app)
        text = Text()
        for entry in self._runs:
            self._append(text, entry, colours)
        self.query_one("#runs", Static).update(text)

    def _append(self, text: Text, entry: ListedRun, colours: dict[StatusColor, str]) -> None:
        name = entry.summary.run_id
        text.append(f"{name}\n", "bold")
        kill = self._kills.get(name)
        if kill is None:
            for host in entry.hosts:
                tasks = " ".join(str(task) for task in host.tasks) or "no task"
                text.append(f"  {host.name}  {host.unreachable or tasks}\n")
            if not entry.hosts:
                by = f"launcher process: pid {entry.launcher}" if entry.launcher else ""
                text.append(f"  {by or 'its hosts have not answered yet'}\n", "dim")
        elif not kill.done():
            text.append("  connecting\n", colours[StatusColor.BUSY])
        elif (error := kill.exception()) is not None:
            text.append(f"  {error}\n", colours[StatusColor.BAD])
        elif (snapshot := kill.result().snapshot()).state is not RunPhase.ENDED:
            alive = sum(task.state.live for task in snapshot.tasks)
            text.append(f"  killing, {counted(alive, 'task')} alive\n", colours[StatusColor.BUSY])
        else:
            text.append("  ")
            text.append_text(receipt_text(snapshot, colours).rich)
            text.append("\n")


def _has_ended(kill: Future[RunControl]) -> bool:
    """The run has ended, or could not be reached."""
    if not kill.done() or kill.exception() is not None:
        return kill.done()
    return kill.result().snapshot().state is RunPhase.ENDED


def _force(kill: Future[RunControl]) -> None:
    if not _has_ended(kill):
        kill.result().kill_all(force=True)
