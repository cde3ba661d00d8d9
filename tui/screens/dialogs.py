"""Dialogs: a line of text, a choice, a yes or no, leaving a run, its receipt.

Kill-all works in all of them: its key is a priority binding of the app.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import StrEnum
from typing import ClassVar, TypeVar

from rich.text import Text
from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.message import Message
from textual.screen import Screen
from textual.suggester import Suggester
from textual.widgets import Input, Label, OptionList, Static
from textual.widgets.option_list import Option

from launcher.history.control import RunControl
from launcher.quantities import counted
from launcher.run.snapshot import Snapshot
from tui.failure_report import guilty_lines
from tui.keys import key_of
from tui.outcome import failure_text, headline, paragraphs, receipt_text, results_text
from tui.screens.copied_report import LOW_LINES, TALL, copy_report
from tui.screens.page import STYLES, Answer, Overlay
from tui.widgets.colours import status_colours
from tui.widgets.line_input import LineInput, ProblemLine

Choice = TypeVar("Choice", bound=str)
TAIL = 5
"""Last lines of the first failure under a receipt."""


async def ask(screen: Screen[None], dialog: Screen[Answer | None]) -> Answer | None:
    """Shows a dialog over a screen and returns its answer; for Textual workers.

    None if it was cancelled, or if another dialog is open already: keys may come faster than the
    first one appears.
    """
    if screen.app.screen is not screen:
        return None
    # Not `push_screen_wait`, which lets other tasks run before the dialog is on the stack; a
    # cancelled worker must not cancel what the dialog answers to.
    return await asyncio.shield(screen.app.push_screen(dialog, wait_for_dismiss=True))


class Dialog(Overlay[Answer | None]):
    """Box with a title, a body, and a note about its keys; going back answers None."""

    CSS_PATH = STYLES
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "Back", id="dialog.back", show=False),
    ]

    def __init__(self, title: str) -> None:
        super().__init__()
        self._title = title

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Label(self._title, classes="dialog-title", markup=False)
            yield from self.body()
            yield Label(self.note(), classes="dialog-note", markup=False)

    def body(self) -> ComposeResult:
        """Widgets between title and note."""
        raise NotImplementedError

    def note(self) -> str:
        """Text of the last line."""
        return f"{key_of(self, 'dialog.back')} cancels"


class AskText(Dialog[str]):
    """Asks for a line of text, and checks it while it is typed."""

    def __init__(
        self,
        title: str,
        value: str = "",
        problem: Callable[[str], str] = lambda text: "",
        about: str | Callable[[str], str] = "",
        suggester: Suggester | None = None,
    ) -> None:
        """`problem` returns what is wrong with a text, or an empty string; `about` says what the
        text is for, or what this one means."""
        super().__init__(title)
        self._value = value
        self._problem = problem
        self._about = about
        self._suggester = suggester

    def body(self) -> ComposeResult:
        yield LineInput(self._value, suggester=self._suggester)
        yield ProblemLine(self._said(self._value))

    def note(self) -> str:
        return f"Enter accepts, {super().note()}"

    def _said(self, text: str) -> str:
        return self._about if isinstance(self._about, str) else self._about(text)

    @on(Input.Changed)
    def _changed(self, event: Input.Changed) -> None:
        problem = self._problem(event.value)
        self.query_one(ProblemLine).show(problem, "" if problem else self._said(event.value))

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        if self._problem(event.value):
            self.app.bell()
        else:
            self.dismiss(event.value)


class Choices(OptionList):
    """Textual's list, in which a page up or down may come before it has been laid out."""

    def action_page_up(self) -> None:
        with suppress(KeyError):
            super().action_page_up()  # type: ignore[no-untyped-call]

    def action_page_down(self) -> None:
        with suppress(KeyError):
            super().action_page_down()  # type: ignore[no-untyped-call]


class Choose(Dialog[Choice]):
    """Asks for one of a few choices; each is a key of its own."""

    def __init__(self, title: str, choices: Mapping[Choice, str], why: str = "") -> None:
        """`choices` maps each key, which is the answer, to what it does; `why` stands above them,
        where there is something to say."""
        super().__init__(title)
        self._choices = choices
        self._why = why

    def body(self) -> ComposeResult:
        if self._why:
            yield Label(self._why, classes="dialog-why", markup=False)
        options = (Option(f"{key}  {does}") for key, does in self._choices.items())
        yield Choices(*options, markup=False)

    def on_key(self, event: events.Key) -> None:
        for key in self._choices:
            if key == event.character:
                event.stop()
                self.dismiss(key)

    @on(OptionList.OptionSelected)
    def _selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(list(self._choices)[event.option_index])


class Confirm(Dialog[bool]):
    """One question; whoever goes back has said no."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y,enter", "dismiss(True)", "Yes", id="dialog.yes", show=False),
        Binding("n,q", "dismiss(False)", "No", id="dialog.no", show=False),
    ]

    def __init__(self, question: str, why: str) -> None:
        super().__init__(question)
        self._why = why

    def note(self) -> str:
        return f"{key_of(self, 'dialog.yes')} yes   {key_of(self, 'dialog.no')} no"

    def body(self) -> ComposeResult:
        yield Label(self._why, classes="dialog-why", markup=False)


class LeaveAnswer(StrEnum):
    """Answers of the leave dialog; their values are its keys."""

    KILL = "k"
    DETACH = "d"
    STAY = "s"


class LeaveDialog(Choose[LeaveAnswer]):
    """Asks what to do with the run before leaving it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        # An app's keys stop at a modal screen.
        Binding("q", "dismiss(None)", "Stay", id="leave", show=False),
    ]

    def __init__(self, alive: int, *, queued: bool, why: str = "") -> None:
        """`alive` tasks are up; `queued`: the run still waits for its nodes; `why` says what holds
        when the run is detached from."""
        kill = "Leave the queue" if queued else "Kill all"
        choices = {  # the first one is what Enter takes: it harms nothing
            LeaveAnswer.STAY: "Stay",
            LeaveAnswer.DETACH: "Detach: the run continues without a screen",
            LeaveAnswer.KILL: f"{kill}, show the receipt, leave",
        }
        tasks = f"{counted(alive, 'task')} {'is' if alive == 1 else 'are'}"
        title = f"The run is active: {tasks} up"
        if queued:
            title = "The run is in the queue: nothing has started"
        super().__init__(title, choices, why)

    def note(self) -> str:
        return f"{key_of(self, 'interrupt')} again: kill all and leave"


class ReceiptScreen(Dialog[None]):
    """Shows how the run ended and, per host, what is left of it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,space", "dismiss", "Back", show=False),
        Binding("q", "app.leave", "Leave", id="leave", show=False),
        Binding("l", "app.again", "Launch it again", id="again", show=False),
        Binding("e", "edit", "Edit its file", id="end.edit", show=False),
        Binding("y", "report", "Copy a report", id="report", show=False),
    ]

    class Left(Message):
        """The run has been left; there is nothing more to show of it."""

        def __init__(self, code: int) -> None:
            self.code = code
            super().__init__()

    def __init__(self, control: RunControl, *, leaving: bool) -> None:
        super().__init__("Receipt")
        self._control = control
        self._snapshot = control.snapshot()
        self._leaving = leaving

    def body(self) -> ComposeResult:
        with VerticalScroll():
            yield Static(self._text(), markup=False, id="receipt-text")

    def show(self, snapshot: Snapshot) -> None:
        """Shows a later state of the run."""
        if snapshot != self._snapshot:
            self._snapshot = snapshot
            self.query_one("#receipt-text", Static).update(self._text())

    def note(self) -> str:
        if self._leaving:
            again = f"   {key_of(self, 'kill_all')} kills again"
            return f"any key leaves{again if self._snapshot.unconfirmed else ''}"
        keys = {"dialog.back": "back", "again": "launch again", "end.edit": "edit"}
        keys |= {"report": "copy report", "leave": "leave"}
        if self._snapshot.unconfirmed:
            keys = {"kill_all": "kill again", **keys}
            del keys["report"]  # it has no room beside
        return "   ".join(f"{key_of(self, key)} {does}" for key, does in keys.items())

    def _text(self) -> Text:
        colours = status_colours(self.app)
        now = self._snapshot
        brief = self.app.size.height < TALL
        lines = guilty_lines(now, self._control.logs)
        failure = failure_text(now, colours, LOW_LINES if brief else TAIL, brief=brief, lines=lines)
        receipt = receipt_text(now, colours).append_text(results_text(now))
        # A host on which something may be left comes before what the run has died of.
        rest = (failure, receipt) if now.clean else (receipt, failure)
        return paragraphs(headline(now, colours), *rest).rich

    async def action_edit(self) -> None:
        """Opens the file of the run in the editor."""
        self.dismiss()
        self.app.call_next(self.app.run_action, "edit_file")

    async def action_report(self) -> None:
        """Copies what a colleague needs to know of the end of the run."""
        await copy_report(self.app, self._control)

    def on_key(self) -> None:
        """Leaves, when that is all there is left to do."""
        if self._leaving:
            self.post_message(self.Left(self._snapshot.exit_code or 0))
