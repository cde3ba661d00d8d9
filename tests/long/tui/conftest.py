"""Apps in tests: messages stay, and waits are short."""

from tests.support.preflights import preflights
from tests.support.screens import many_colours, messages_stay, rules_parsed_once, run, short_waits

__all__ = [
    "many_colours",
    "messages_stay",
    "preflights",
    "rules_parsed_once",
    "run",
    "short_waits",
]
