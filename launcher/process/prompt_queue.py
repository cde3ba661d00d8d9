"""SSH prompts of a launcher process, which wait for the first answer of a client's person.

Answers are written nowhere; what is right is kept in the process's memory (`auth_prompt.Answers`).
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable

from ..hosts.auth_prompt import AuthPrompt, PendingPrompt

UNATTENDED_SECONDS = 30.0
"""Time for a prompt while no client is connected: a browser page that is being reloaded."""


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
