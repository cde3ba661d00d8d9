"""Prompts of SSH logins, in dialogs: a host key, a passphrase, a password, a server's own question.

The launcher asks on a loop of its own and waits there; the dialog is on the app's loop. Nothing
of an answer is stored.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import threading
from typing import Any

from textual import on
from textual.app import App, ComposeResult
from textual.widgets import Input, Label

from launcher.hosts.auth_prompt import YES, AuthPrompt, PromptKind
from tui.keys import key_of
from tui.screens.dialogs import Choose, Dialog
from tui.widgets.line_input import LineInput

NO = "no"


class PromptDialog(Dialog[str]):
    """One prompt; Escape refuses. The kill key is the app's and works here too."""

    def __init__(self, prompt: AuthPrompt) -> None:
        super().__init__(f"{prompt.host} asks")
        self.prompt = prompt

    def body(self) -> ComposeResult:
        yield Label(self.prompt.text, classes="dialog-text", markup=False)
        yield LineInput(password=self.prompt.secret)

    def note(self) -> str:
        secret = "not shown, not stored; " if self.prompt.secret else ""
        back, kill = key_of(self, "dialog.back"), key_of(self, "kill_all")
        return f"{secret}Enter answers, {back} refuses, {kill} kills all"

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value)


class HostKeyDialog(Choose[str]):
    """First contact: shows the key, and trusts it only when that is chosen; Enter refuses."""

    def __init__(self, prompt: AuthPrompt) -> None:
        super().__init__(
            f"First contact with {prompt.host}",
            {"n": "No, do not log in", "y": "Yes, this is its key: trust it from now on"},
            prompt.text,
            "Compare it with the host's own: ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub",
        )


class PromptDialogs:
    """Answers the prompts of launchers with dialogs of one app, one after the other."""

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

    async def __call__(self, prompt: AuthPrompt) -> str | None:
        """Asks; awaited on the launcher's loop. When that gives up, the dialog goes too."""
        await asyncio.to_thread(self._ready.wait)
        loop = self._loop
        assert loop is not None
        answered: concurrent.futures.Future[str | None] = concurrent.futures.Future()

        def begin() -> None:
            task = loop.create_task(self._show(prompt, answered), context=self._context)
            self._asking.add(task)
            task.add_done_callback(self._asking.discard)

        try:
            loop.call_soon_threadsafe(begin)
        except RuntimeError:  # the screen has gone
            return None
        return await asyncio.wrap_future(answered)

    async def _show(
        self, prompt: AuthPrompt, answered: concurrent.futures.Future[str | None]
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

            host_key = prompt.kind is PromptKind.HOST_KEY

            def answer(text: str | None) -> None:
                if host_key:
                    text = YES if text == "y" else NO
                if not answered.done():
                    answered.set_result(text)

            dialog = HostKeyDialog(prompt) if host_key else PromptDialog(prompt)
            await app.push_screen(dialog, answer)
            await gone.wait()
            if dialog.is_current:
                dialog.dismiss(None)
