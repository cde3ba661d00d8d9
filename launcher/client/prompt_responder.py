"""Responder to a launcher process's SSH prompts: puts them to the person in front of a client."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from ..hosts.auth_prompt import PROMPTS, PendingPrompt, PromptHandler


class PromptResponder:
    """Puts a launcher's prompts to a person, on a loop and a thread of its own."""

    def __init__(self, ask: PromptHandler, respond: Callable[[int, str | None], None]) -> None:
        """`respond` gets a prompt's number and its answer, on any thread."""
        self._ask = ask
        self._respond = respond
        self._asking: dict[int, Future[None]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    def show(self, pending: tuple[PendingPrompt, ...]) -> None:
        """Asks what is new among the pending prompts and withdraws those that are gone."""
        for ident in self._asking.keys() - {prompt.id for prompt in pending}:
            self._asking.pop(ident).cancel()
        for prompt in pending:
            if prompt.id not in self._asking:
                work = self._answer(prompt)
                self._asking[prompt.id] = asyncio.run_coroutine_threadsafe(work, self._running())

    def show_records(self, records: Any) -> None:
        """Shows pending prompts that a launcher process has sent.

        Raises:
            ValueError: they are none.
        """
        self.show(PROMPTS.validate_python(records))

    def close(self) -> None:
        """Withdraws all prompts and ends the thread."""
        self.show(())
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._loop = None

    def _running(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            threading.Thread(target=_run, args=(self._loop,), name="prompts", daemon=True).start()
        return self._loop

    async def _answer(self, prompt: PendingPrompt) -> None:
        self._respond(prompt.id, await self._ask(prompt.question))


def _run(loop: asyncio.AbstractEventLoop) -> None:
    loop.run_forever()
    if withdrawn := asyncio.all_tasks(loop):
        loop.run_until_complete(asyncio.wait(withdrawn))
    loop.close()
