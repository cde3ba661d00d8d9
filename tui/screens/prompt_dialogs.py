"""Prompts of SSH logins, in dialogs: host keys, a passphrase, a password, a server's own question.

The launcher asks on a loop of its own and waits there; the dialog is on the app's loop. Nothing
of an answer is stored.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from typing import Any

from textual import on
from textual.app import App, ComposeResult
from textual.widgets import Input, Label

from launcher.hosts.auth_prompt import AuthPrompt, PromptKind
from tui.keys import key_of
from tui.screens.dialogs import Dialog
from tui.screens.host_key_dialog import HostKeyDialog, OpenPrompt
from tui.screens.page import Answer
from tui.widgets.line_input import LineInput


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


class PromptDialogs:
    """Answers the prompts of launchers with dialogs of one app: one for all unknown host keys,
    and one after the other for all else."""

    def __init__(self) -> None:
        self._app: App[Any] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._context = contextvars.copy_context()
        self._ready = threading.Event()
        self._turn = asyncio.Lock()
        self._asking: set[asyncio.Task[None]] = set()
        self._keys: list[OpenPrompt] = []
        """Prompts for host keys without an answer."""
        self._keys_changed = asyncio.Event()

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
        opened = OpenPrompt(prompt)
        show = self._show_key if prompt.kind is PromptKind.HOST_KEY else self._show

        def begin() -> None:
            task = loop.create_task(show(opened), context=self._context)
            self._asking.add(task)
            task.add_done_callback(self._asking.discard)

        try:
            loop.call_soon_threadsafe(begin)
        except RuntimeError:  # the screen has gone
            return None
        return await asyncio.wrap_future(opened.answer)

    async def _show(self, prompt: OpenPrompt) -> None:
        """Shows a dialog until it is answered, or nobody waits for it any more."""
        async with self._turn:
            gone = asyncio.Event()
            self._when_done(prompt, gone.set)
            if prompt.answer.done():
                return
            dialog = PromptDialog(prompt.prompt)
            await self._push(dialog, prompt.set)
            await gone.wait()
            dialog.dismiss(None)

    async def _show_key(self, prompt: OpenPrompt) -> None:
        """Shows a key in the dialog that is open for others, or opens one."""
        self._keys.append(prompt)
        self._keys_changed.set()
        self._when_done(prompt, self._keys_changed.set)
        if len(self._open_keys()) > 1:
            return
        async with self._turn:
            while keys := self._open_keys():
                dialog = HostKeyDialog(keys)
                await self._push(dialog, dialog.refuse_all)
                while self._is_open(dialog) and (keys := self._open_keys()):
                    self._keys_changed.clear()
                    dialog.show(keys)
                    await self._keys_changed.wait()
                dialog.dismiss(None)

    def _open_keys(self) -> list[OpenPrompt]:
        self._keys = [prompt for prompt in self._keys if not prompt.answer.done()]
        return self._keys

    def _when_done(self, prompt: OpenPrompt, act: Callable[[], None]) -> None:
        """Calls `act` on the app's loop when a prompt was answered, or was given up."""
        loop = asyncio.get_running_loop()
        prompt.answer.add_done_callback(lambda _: loop.call_soon_threadsafe(act))

    def _is_open(self, dialog: HostKeyDialog) -> bool:
        assert self._app is not None
        return dialog in self._app.screen_stack

    async def _push(
        self, dialog: Dialog[Answer], callback: Callable[[Answer | None], None] | None = None
    ) -> None:
        assert self._app is not None
        await self._app.push_screen(dialog, callback)
