"""Apps in tests: messages stay, and waits are short."""

from tests.support.screen_thread import no_screen_waits
from tests.support.screens import many_colours, messages_stay, rules_parsed_once, run, short_waits

__all__ = [
    "many_colours",
    "messages_stay",
    "no_screen_waits",
    "rules_parsed_once",
    "run",
    "short_waits",
]
