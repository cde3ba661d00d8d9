"""Apps in tests: messages stay, and waits are short."""

from tests.support.screens import messages_stay, run, short_waits

__all__ = ["messages_stay", "run", "short_waits"]
