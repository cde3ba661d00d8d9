"""Names of what a run waits for."""

from __future__ import annotations

from itertools import count

from launcher.run.state import named


def test_a_few_names_are_all_given() -> None:
    """The usual case: every host or task is named."""
    assert named(f"h{number}" for number in range(3)) == "h0, h1, h2"
    assert named([]) == ""


def test_of_thousands_the_first_are_given_and_the_rest_not_looked_for() -> None:
    """More than a screen can show cost time with each event: an endless list has an end."""
    words = named(f"h{number}" for number in count()).split(", ")
    assert (words[0], words[39], words[40:]) == ("h0", "h39", ["…"])
