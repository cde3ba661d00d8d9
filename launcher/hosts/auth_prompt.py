"""Prompts of an SSH login: for a password, a passphrase, trust in a host key."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum


class PromptKind(StrEnum):
    """Kinds of prompts of an SSH login."""

    PASSWORD = "password"
    PASSPHRASE = "passphrase"
    PROMPT = "prompt"
    HOST_KEY = "host key"


YES = "yes"
"""The one answer to a `HOST_KEY` prompt that trusts the key."""


@dataclass(frozen=True)
class OfferedKey:
    """Unknown key of a server, in the words that a person compares."""

    place: str
    """`host` or `[host]:port`, as known_hosts has it."""
    kind: str
    fingerprint: str
    known_as: str = ""
    """Sentence about other names under which the same key is known."""


@dataclass(frozen=True)
class AuthPrompt:
    """One prompt; answers to a `secret` one are not to be shown."""

    host: str
    text: str
    secret: bool = True
    kind: PromptKind = PromptKind.PROMPT
    key: OfferedKey | None = None
    """With `HOST_KEY`: what `text` asks about."""


PromptHandler = Callable[[AuthPrompt], Awaitable[str | None]]
"""Puts a prompt to a person; None where nobody answers (headless, or refused)."""
