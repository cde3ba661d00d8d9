"""SSH prompts of a launcher, and the people who answer them.

They wait in a `PromptQueue` for the first answer; a `PromptResponder` belongs to a client and puts
them to the person in front of it. Answers are written nowhere; what is right is kept in the
launcher's memory (`auth_prompt.Answers`).
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from pydantic import ConfigDict, TypeAdapter

from ..frozen import frozen
from ..hosts.auth_prompt import AuthPrompt, PromptHandler

UNATTENDED_SECONDS = 30.0
"""Time for a prompt while no client is connected: a browser page that is being reloaded."""


@frozen
class PendingPrompt:
    """A prompt without an answer yet."""

    id: int
    question: AuthPrompt


class PromptQueue:
    """Implements `auth_prompt.PromptHandler`. All of it belongs to the launcher's loop."""

    def __init__(self, unattended: float = UNATTENDED_SECONDS) -> None:
        self.listener: Callable[[], None] | None = None
        """Called when `pending` has changed."""
        self.responders = 0
        """Connected clients that can put a prompt to a person."""
        self.others = 0
        """Connected clients that cannot, such as a headless one."""
        self._unattended = unattended
        self._ids = itertools.count(1)
        self._pending: dict[PendingPrompt, asyncio.Future[str | None]] = {}

    async def __call__(self, question: AuthPrompt) -> str | None:
        """The first answer; None when nobody is there who could give one."""
        if self.others and not self.responders:
            return None
        prompt = PendingPrompt(next(self._ids), question)
        answer: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self._pending[prompt] = answer
        self._changed()
        try:
            while True:
                await asyncio.wait([answer], timeout=self._unattended)
                if answer.done():
                    return answer.result()
                if not self.responders:
                    return None
        finally:
            del self._pending[prompt]
            self._changed()

    def _changed(self) -> None:
        if self.listener is not None:
            self.listener()

    @property
    def pending(self) -> tuple[PendingPrompt, ...]:
        return tuple(self._pending)

    def answer(self, ident: int, text: str | None) -> bool:
        """Answers a prompt; False where it has gone, or has an answer already."""
        for prompt, answer in self._pending.items():
            if prompt.id == ident and not answer.done():
                answer.set_result(text)
                return True
        return False


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


PROMPTS = TypeAdapter(tuple[PendingPrompt, ...], config=ConfigDict(defer_build=True))
