"""The prefilter never holds back what hits: expressions on coloured lines, found at random."""

from __future__ import annotations

import re

import pytest
import re2
from hypothesis import example, given
from hypothesis import strategies as st

from tui.log.query import Chunk, Query, prefilter

ATOMS = (
    "a",
    "b",
    "1",
    ".",
    "[ab]",
    "[^a]",
    "[^]a]",
    r"\d",
    r"\w",
    r"\s",
    r"\.",
    "é",
    " ",
    "m",
    r"\b",
)
patterns = st.recursive(
    st.sampled_from(ATOMS),
    lambda inner: st.one_of(
        st.builds(lambda parts: "".join(parts), st.lists(inner, min_size=1, max_size=4)),
        st.builds(lambda one, two: f"(?:{one}|{two})", inner, inner),
        st.builds(
            lambda one, how: f"({one}){how}",
            inner,
            st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "{2,}", "+?"]),
        ),
        st.builds(lambda one: f"^{one}$", inner),
    ),
    max_leaves=8,
)
texts = st.lists(
    st.sampled_from(["a", "b", "1", "m", ".", " ", "é", "\n", "\x1b[31m", "\x1b[0m", "\x1b[1;3m"]),
    max_size=30,
).map("".join)


@given(pattern=patterns, text=texts)
@example(pattern="(a){2}b", text="a\x1b[31mab")
@example(pattern="m", text="\x1b[31m")
@example(pattern="mm", text="\x1b[0mmm")
@example(pattern="^a.*b$", text="\x1b[31ma\x1b[0m b\x1b[0m")
def test_with_and_without_the_sieve_the_same_is_found(pattern: str, text: str) -> None:
    """As if the colours had never been there."""
    data = text.encode()
    bare = re.sub(rb"\x1b\[[0-9;]*m", b"", data)
    assert Query(pattern).lines(Chunk(7, data, 0)) == Query(pattern).lines(Chunk(7, bare, 0))


@pytest.mark.parametrize(
    "pattern",
    ["(?i)a", "(?P<x>a)", r"\x41", r"\pL", "a[[:alpha:]]", "a{,2}", "a]", "[a", r"\Qa\E", "a{2"],
)
def test_what_is_not_understood_has_no_prefilter(pattern: str) -> None:
    """Such an expression is slower on coloured lines, never wrong."""
    assert prefilter(pattern) is None


@pytest.mark.parametrize(
    "pattern", ["loss.*0\\.1", "a|b", "(warn|error): .+", r"\berror\b", "[x-z]{2,3}?$"]
)
def test_what_people_type_has_one(pattern: str) -> None:
    """And it is an expression."""
    coarse = prefilter(pattern)
    assert coarse is not None
    re2.compile(coarse)


def test_a_sieve_holds_back_what_cannot_hit() -> None:
    """Else it would be of no use."""
    query = Query("n[e]+dle")
    assert query._prefilter is not None
    assert query._prefilter.search(b"a \x1b[31mne\x1b[0medle")
    assert not query._prefilter.search(b"a \x1b[31mnoodle")
