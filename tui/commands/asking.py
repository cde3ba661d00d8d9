"""Prompts of SSH logins, put to the person at the terminal of a command."""

from __future__ import annotations

import asyncio
import getpass
from collections.abc import Callable

from launcher.hosts.auth_prompt import AuthPrompt, PromptHandler, PromptKind


def terminal_asker(clear: Callable[[], None] = lambda: None) -> PromptHandler:
    """Asks at the terminal, one question at a time, on a line that is cleared before. Host keys are
    not asked for here: trusting them is `--accept-new`'s business, in one step and with all
    fingerprints."""
    lock = asyncio.Lock()

    async def ask(question: AuthPrompt) -> str | None:
        if question.kind is PromptKind.HOST_KEY:
            return None
        async with lock:
            clear()
            text = f"{question.host}: {question.text}: "
            try:
                return await asyncio.to_thread(getpass.getpass if question.secret else input, text)
            except EOFError:
                return None

    return ask
