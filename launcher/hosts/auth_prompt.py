"""Prompts of an SSH login: for a password, a passphrase, trust in a host key."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from enum import StrEnum

from pydantic import ConfigDict, TypeAdapter

from ..frozen import frozen


class PromptKind(StrEnum):
    """Kinds of prompts of an SSH login."""

    PASSWORD = "password"
    PASSPHRASE = "passphrase"
    PROMPT = "prompt"
    HOST_KEY = "host key"


YES = "yes"
"""The one answer to a `HOST_KEY` prompt that trusts the key."""


@frozen
class OfferedKey:
    """Unknown key of a server, in the words that a person compares."""

    place: str
    """`host` or `[host]:port`, as known_hosts has it."""
    kind: str
    fingerprint: str
    known_as: str = ""
    """Sentence about other names under which the same key is known."""


@frozen
class AuthPrompt:
    """One prompt; answers to a `secret` one are not to be shown."""

    host: str
    text: str
    secret: bool = True
    kind: PromptKind = PromptKind.PROMPT
    key: OfferedKey | None = None
    """With `HOST_KEY`: what `text` asks about."""


@frozen
class PendingPrompt:
    """A prompt without an answer yet, as a launcher process tells its clients."""

    id: int
    question: AuthPrompt


PROMPTS = TypeAdapter(tuple[PendingPrompt, ...], config=ConfigDict(defer_build=True))
"""Record of the prompts that wait for an answer."""
PromptHandler = Callable[[AuthPrompt], Awaitable[str | None]]
"""Puts a prompt to a person; None where nobody answers (headless, or refused)."""


@dataclass
class _Question:
    """A question that was put and has no answer yet."""

    answer: asyncio.Task[str | None]
    waiting: int = 0


@dataclass
class Answers:
    """Answers of a person to one launcher, kept in its memory until it ends.

    Logins that need the same (`subject`: a key file, a host key) put one question and share its
    answer; what was right once is not asked for again, at a reconnect at night above all.
    """

    _right: dict[Hashable, str] = field(default_factory=dict)
    _passing: set[Hashable] = field(default_factory=set)
    _questions: dict[Hashable, _Question] = field(default_factory=dict)

    def get(self, subject: Hashable) -> str | None:
        """The answer that was right."""
        return self._right.get(subject)

    def remember(self, subject: Hashable, answer: str) -> None:
        """Keeps a right answer."""
        if subject not in self._passing:
            self._right[subject] = answer

    def forget(self, subject: Hashable, answer: str, *, passing: bool = False) -> None:
        """Drops an answer that was right and is refused now. One of a `passing` kind, such as a
        one-time code, is never kept again."""
        if self._right.get(subject) == answer:
            del self._right[subject]
            if passing:
                self._passing.add(subject)

    async def ask(self, subject: Hashable, put: Callable[[], Awaitable[str | None]]) -> str | None:
        """The answer that is remembered, or that of the question which is open; else `put` asks.
        A question is withdrawn when nobody waits for it any more."""
        if (known := self.get(subject)) is not None:
            return known
        question = self._questions.get(subject)
        if question is None:
            question = _Question(asyncio.create_task(_awaited(put)))
            self._questions[subject] = question
        question.waiting += 1
        try:
            return await asyncio.shield(question.answer)
        finally:
            question.waiting -= 1
            if question.answer.done() or not question.waiting:
                question.answer.cancel()
                if self._questions.get(subject) is question:
                    del self._questions[subject]


async def _awaited(put: Callable[[], Awaitable[str | None]]) -> str | None:
    return await put()
