"""Questions of a launcher without a screen: whoever looks at its run may answer them.

`Questions` stands on the launcher's side; `Answers` on the side of a viewer, where it asks the
person with whatever asks there. Between them is the door (`wishes`). An answer goes through a
socket that only this user may open, and is kept nowhere.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

from ..hosts.credentials import AuthPrompt, PromptHandler

ALONE_SECONDS = 30.0
"""How long a question waits for somebody who looks: a page that is being opened, say."""


@dataclass(frozen=True)
class Asked:
    """A question that waits for its answer."""

    id: int
    question: AuthPrompt


class Questions:
    """Implements `credentials.PromptHandler`. All of it belongs to the launcher's loop."""

    def __init__(self, alone: float = ALONE_SECONDS) -> None:
        self.watchers = 0
        """How many look at the run and could answer."""
        self._alone = alone
        self._ids = itertools.count(1)
        self._open: dict[Asked, asyncio.Future[str | None]] = {}

    async def __call__(self, question: AuthPrompt) -> str | None:
        """The first answer that anybody gives; None when nobody is there to give one."""
        asked = Asked(next(self._ids), question)
        answer: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self._open[asked] = answer
        try:
            while True:
                await asyncio.wait([answer], timeout=self._alone)
                if answer.done():
                    return answer.result()
                if not self.watchers:
                    return None
        finally:
            del self._open[asked]

    @property
    def open(self) -> tuple[Asked, ...]:
        """Those without an answer."""
        return tuple(self._open)

    def answer(self, ident: int, text: str | None) -> None:
        """Somebody answers; the first counts."""
        for asked, answer in self._open.items():
            if asked.id == ident and not answer.done():
                answer.set_result(text)


class Answers:
    """Asks a person what a launcher elsewhere asks, on a loop and a thread of its own."""

    def __init__(self, ask: PromptHandler, say: Callable[[int, str | None], None]) -> None:
        """`say` gets a question's number and its answer, on any thread."""
        self._ask = ask
        self._say = say
        self._asking: dict[int, Future[None]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    def show(self, asked: tuple[Asked, ...]) -> None:
        """These are open now: new ones are asked, those that are gone need no answer any more."""
        for ident in self._asking.keys() - {one.id for one in asked}:
            self._asking.pop(ident).cancel()
        for one in asked:
            if one.id not in self._asking:
                work = self._answer(one)
                self._asking[one.id] = asyncio.run_coroutine_threadsafe(work, self._running())

    def close(self) -> None:
        """Asks no more."""
        self.show(())
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._loop = None

    def _running(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            threading.Thread(target=_run, args=(self._loop,), name="answers", daemon=True).start()
        return self._loop

    async def _answer(self, asked: Asked) -> None:
        self._say(asked.id, await self._ask(asked.question))


def _run(loop: asyncio.AbstractEventLoop) -> None:
    loop.run_forever()
    loop.close()
