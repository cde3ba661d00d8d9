"""Which notes of a run are new: each is shown once."""

from __future__ import annotations

import pytest

from launcher.run.snapshot import new_notes


@pytest.mark.parametrize(
    ("before", "after", "new"),
    [
        ("", "ab", "ab"),
        ("ab", "abc", "c"),
        ("abc", "bcd", "d"),
        ("aa", "aaa", "a"),
        ("abz", "abcz", "c"),
        ("z", "abz", "ab"),
        ("abc", "xyz", "xyz"),
    ],
)
def test_a_note_is_new_once(before: str, after: str, new: str) -> None:
    """Given notes, of which the oldest may have been dropped, and a last one of the connection (z)
    before which the run has got another, then only what was not there is new."""
    assert new_notes(tuple(before), tuple(after)) == tuple(new)
