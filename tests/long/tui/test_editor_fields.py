"""Every key of every form with every kind of bad input: explained, and the file stays one."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import assume, example, given
from hypothesis import strategies as st

from launcher.printable import invisible, visible
from tui.screens.editor.form import line_of, value_of


@given(st.lists(st.text(max_size=12), max_size=5))
def test_words_survive_their_line(found: list[str]) -> None:
    """Blanks, quotes, backslashes, newlines: what a line shows reads as what it was."""
    plain = [invisible(visible(word)) for word in found]
    line = line_of(plain, "array")
    assert value_of(line, "array") == plain
    assert "\n" not in line


_VALUES = st.recursive(
    st.one_of(
        st.booleans(), st.integers(-(10**15), 10**15), st.floats(allow_nan=False),
        st.text("ab \"'\\{}[]=,5\n", max_size=8), st.sampled_from(["true", "5", "inf", '"x"']),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text("aB_ =.\"", max_size=4), inner,
                                                     max_size=3),
    ),
    max_leaves=6,
)  # fmt: skip


@given(_VALUES, st.sampled_from(["string", "integer", "number", "boolean", "array", "object", ""]))
@example('""', "string")
@example({"A": "x", "B": 'a "b" c=d'}, "object")
@example([["ps"], ["worker:0", "b"]], "array")
def test_values_survive_their_line(value: Any, kind: str) -> None:
    """A form that is opened and taken without a change says the same, whatever stands there,
    also where it is of a wrong type, unless the key wants a text."""
    assume(kind != "string" or isinstance(value, str))
    line = line_of(value, kind)
    again = value_of(line, kind)
    assert again == value and type(again) is type(value), line
    assert line.isprintable() and not (isinstance(value, float) and math.isnan(value))
