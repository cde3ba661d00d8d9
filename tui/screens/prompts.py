"""What only a person can answer when a host is logged in to: a key's fingerprint, a passphrase,
a password, a question of the server's own. Nothing of an answer is stored.

The launcher asks on its own loop and waits there; the dialog lives on the screen's loop.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import threading
from typing import Any, ClassVar

from textual import on
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Label, OptionList
from textual.widgets.option_list import Option

from launcher.hosts.auth_prompt import YES, AuthPrompt, PromptKind
from tui.keys import key_of
from tui.widgets.line_input import LineInput

NO = "no"


class QuestionDialog(ModalScreen[str | None]):
    """One question; answers None when it was left. F9 is the app's and works here too."""

    DEFAULT_CSS = "QuestionDialog .dialog-text { width: 1fr; margin: 1 0; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "Refuse", show=False),
    ]

    def __init__(self, question: AuthPrompt) -> None:
        super().__init__()
        self.question = question

    def compose(self) -> ComposeResult:
        """The question, a field or the choices, and what the keys do."""
        question = self.question
        with Vertical(classes="dialog wide"):
            yield Label(f"{question.host} asks", classes="dialog-title", markup=False)
            yield Label(question.text, classes="dialog-text", markup=False)
            yield LineInput(password=question.secret)
            secret = "not shown, not stored; " if question.secret else ""
            yield Label(
                f"{secret}Enter answers, Esc refuses, {key_of(self, 'kill_all')} kills all",
                classes="dialog-note",
                markup=False,
            )

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value)


class HostKeyDialog(ModalScreen[str | None]):
    """First contact: shows the key, and trusts it only when that is chosen."""

    DEFAULT_CSS = "HostKeyDialog .dialog-text { width: 1fr; margin: 1 0; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer('yes')", "Trust", show=False),
        Binding("n,escape", "answer('no')", "Refuse", show=False),
    ]

    def __init__(self, question: AuthPrompt) -> None:
        super().__init__()
        self.question = question

    def compose(self) -> ComposeResult:
        """The fingerprint, and two choices; refusing is the one that Enter takes."""
        with Vertical(classes="dialog wide"):
            yield Label(
                f"First contact with {self.question.host}", classes="dialog-title", markup=False
            )
            yield Label(self.question.text, classes="dialog-text", markup=False)
            yield OptionList(
                Option("n  No, do not log in", id=NO),
                Option("y  Yes, this is its key: trust it from now on", id=YES),
                markup=False,
            )
            yield Label(
                "Compare it with the host's own: ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub",
                classes="dialog-note",
                markup=False,
            )

    def on_mount(self) -> None:
        self.set_focus(self.query_one(OptionList))

    def action_answer(self, answer: str) -> None:
        """Answers."""
        self.dismiss(answer)

    @on(OptionList.OptionSelected)
    def _selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(event.option_id or NO)


class Asker:
    """Answers a launcher's questions with dialogs of one app, one after the other."""

    def __init__(self) -> None:
        self._app: App[Any] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._context = contextvars.copy_context()
        self._ready = threading.Event()
        self._turn = asyncio.Lock()
        self._asking: set[asyncio.Task[None]] = set()

    def serve(self, app: App[Any]) -> None:
        """The app that shows the dialogs; called on its loop."""
        self._app = app
        self._loop = asyncio.get_running_loop()
        self._context = contextvars.copy_context()  # Textual finds its app in there
        self._ready.set()

    async def __call__(self, question: AuthPrompt) -> str | None:
        """Asks; awaited on the launcher's loop. When that gives up, the dialog goes too."""
        await asyncio.to_thread(self._ready.wait)
        loop = self._loop
        assert loop is not None
        answered: concurrent.futures.Future[str | None] = concurrent.futures.Future()

        def begin() -> None:
            task = loop.create_task(self._show(question, answered), context=self._context)
            self._asking.add(task)
            task.add_done_callback(self._asking.discard)

        try:
            loop.call_soon_threadsafe(begin)
        except RuntimeError:  # the screen has gone
            return None
        return await asyncio.wrap_future(answered)

    async def _show(
        self, question: AuthPrompt, answered: concurrent.futures.Future[str | None]
    ) -> None:
        """Shows a dialog until it is answered, or nobody waits for it any more."""
        app = self._app
        assert app is not None
        async with self._turn:
            gone = asyncio.Event()
            loop = asyncio.get_running_loop()
            answered.add_done_callback(lambda _: loop.call_soon_threadsafe(gone.set))
            if answered.cancelled():
                return

            def take(answer: str | None) -> None:
                if not answered.done():
                    answered.set_result(answer)

            host_key = question.kind is PromptKind.HOST_KEY
            dialog = HostKeyDialog(question) if host_key else QuestionDialog(question)
            await app.push_screen(dialog, take)
            await gone.wait()
            if dialog.is_current:
                dialog.dismiss(None)
