"""Apps in tests: messages stay, and waits are short."""

from tests.support.homes import active
from tests.support.screens import many_colours, messages_stay, rules_parsed_once, run, short_waits

__all__ = ["active", "many_colours", "messages_stay", "rules_parsed_once", "run", "short_waits"]
