"""F9 without a run on the screen: every living run is listed, and after one question ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text
from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Label, Static

from launcher.errors import TfmuxError
from launcher.run.states import RunPhase
from launcher.session.control import RunControl
from tui.catalog import RunEntry
from tui.format import StatusColor
from tui.keys import key_of
from tui.outcome import receipt_text
from tui.screens.prompts import Asker
from tui.sessions import Sessions
from tui.widgets.colours import status_colours

_FRAME = 0.1


class KillLiving(ModalScreen[None]):
    """The question, the kill as it goes on, and the receipts."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,y", "kill", "Kill", show=False),
        Binding("escape,n", "back", "Back", show=False),
    ]

    def __init__(self, runs: Sequence[RunEntry], sessions: Sessions, asker: Asker) -> None:
        super().__init__()
        self._runs = list(runs)
        self._sessions = sessions
        self._asker = asker
        self._killing = False
        self._started: dict[str, RunControl] = {}
        self._failed: dict[str, str] = {}

    def compose(self) -> ComposeResult:
        """What is about to be ended, and the keys."""
        with Vertical(classes="dialog wide"):
            yield Label(id="title", classes="dialog-title", markup=False)
            with VerticalScroll():
                yield Static(id="runs", markup=False)
            yield Label(id="hint", classes="dialog-note", markup=False)

    def on_mount(self) -> None:
        self._show()
        self.set_interval(_FRAME, self._show)

    def action_kill(self) -> None:
        """Ends them; again: KILL at once."""
        if not self._killing:
            self._killing = True
            for run in self._runs:
                self._end(run)
        else:
            for session in self._started.values():
                if session.snapshot().state is not RunPhase.ENDED:
                    session.kill_all()

    def action_back(self) -> None:
        """Leaves; what is being ended goes on to its end."""
        self.dismiss(None)

    @work(thread=True, group="kill", exit_on_error=False)
    def _end(self, entry: RunEntry) -> None:
        name = entry.summary.run_id
        try:
            session = self._sessions.attach(name, self._asker)
        except (TfmuxError, OSError, KeyError, ValueError) as error:
            self._failed[name] = str(error)
            return
        session.kill_all()
        self._started[name] = session

    @property
    def _done(self) -> bool:
        ended = [s for s in self._started.values() if s.snapshot().state is RunPhase.ENDED]
        return self._killing and len(ended) + len(self._failed) == len(self._runs)

    def _show(self) -> None:
        count = len(self._runs)
        runs = "this run" if count == 1 else f"these {count} runs"
        key = key_of(self, "kill_all")
        if not self._killing:
            title, hint = (
                f"Kill {runs}, on all hosts?",
                f"Enter, y or {key}: kill   Esc: leave them",
            )
        elif not self._done:
            title, hint = f"Killing {runs}", f"{key} again: KILL now"
        else:
            title, hint = "Receipts", "Esc back"
        self.query_one("#title", Label).update(title)
        self.query_one("#hint", Label).update(hint)
        colours = status_colours(self.app)
        text = Text()
        for entry in self._runs:
            self._tell(text, entry, colours)
        self.query_one("#runs", Static).update(text)

    def _tell(self, text: Text, entry: RunEntry, colours: dict[StatusColor, str]) -> None:
        name = entry.summary.run_id
        text.append(f"{name}\n", "bold")
        session = self._started.get(name)
        if name in self._failed:
            text.append(f"  {self._failed[name]}\n", colours[StatusColor.BAD])
        elif session is None and not self._killing:
            hosts = entry.living.hosts if entry.living else ()
            for host in hosts:
                tasks = " ".join(str(task) for task in host.tasks) or "no task"
                text.append(f"  {host.name}  {host.unreachable or tasks}\n")
            if not hosts:
                tended = f"tended by the launcher {entry.launcher}" if entry.launcher else ""
                text.append(f"  {tended or 'its hosts have not answered yet'}\n", "dim")
        elif session is None or session.snapshot().state is not RunPhase.ENDED:
            alive = sum(t.state.live for t in session.snapshot().tasks) if session else 0
            text.append(f"  ending, {alive} tasks alive\n", colours[StatusColor.BUSY])
        else:
            text.append("  ")
            text.append_text(receipt_text(session.snapshot(), colours))
            text.append("\n")
