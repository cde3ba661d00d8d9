"""Variables that a text of a shell, a Dockerfile or a program sets, and texts with their values put
in. No shell is run: what only a shell knows is refused by its name."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from .entries import expanded
from .understood import ShorthandError

NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_REFERENCE = re.compile(rf"\$(?:\{{({NAME})(?:\[[@*]\])?\}}|({NAME}))")
_VALUE = r"\"(?:[^\"\\]|\\.)*\"|'[^']*'|\([^()]*\)|[^\s;&|()\"']*"
_SIMPLE = re.compile(rf"(?<![\w.$-])({NAME})(\+?=)({_VALUE})")
_WORDS_FORM = re.compile(
    rf"^[ \t]*+(?:setenv|ENV|set\s+-gx|set\s+-x)\s+({NAME})\s+({_VALUE})", re.MULTILINE
)
_MOST_VALUES = 2000


class Variables(dict[str, str]):
    """Values by name; lists of values have blanks between them."""

    @classmethod
    def of(cls, text: str) -> Variables:
        """Finds the assignments of a text; a later one of a name holds."""
        found = cls()
        pairs = [(m.start(), m[1], m[2], m[3]) for m in _SIMPLE.finditer(text)]
        pairs += [(m.start(), m[1], "=", m[2]) for m in _WORDS_FORM.finditer(text)]
        for _, name, sign, value in sorted(pairs)[:_MOST_VALUES]:
            bare = _unquoted(value)
            found[name] = found.get(name, "") + bare if sign == "+=" else bare
        return found

    def fill(self, text: str) -> str:
        """Puts the values of `$NAME` and `${NAME}` into a text.

        Raises:
            ShorthandError: a variable has no value here.
        """
        for _ in range(5):
            if "$" not in text:
                return text
            text = _REFERENCE.sub(self._value, text)[: 1 << 16]
        raise ShorthandError("its variables name each other in a circle")

    def known(self, text: str) -> bool:
        """Whether all variables in a text have values here."""
        names = [one or other for one, other in _REFERENCE.findall(text)]
        return all(name in self for name in names) and "$(" not in text

    def _value(self, match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if name not in self:
            raise ShorthandError(
                f"${name} is not set in this text: paste the line that sets it, too"
            )
        return self[name]


def _unquoted(value: str) -> str:
    if value[:1] == "(":
        return " ".join(word.strip("\"'") for word in value[1:-1].split())
    return value[1:-1] if value[:1] in ("'", '"') and len(value) > 1 else value


_LOOP = re.compile(
    rf"\bfor\s+({NAME})\s+in\s+([^;\n]+?)\s*(?:;|\n)\s*do\b(.*?)(?:\bdone\b|\Z)", re.DOTALL
)
_SEQUENCE = re.compile(r"(?:\$\(|`)seq\s+(?:-w\s+)?(\d{1,6})(?:\s+(\d{1,6}))?\s*(?:\)|`)")


def loops(text: str, variables: Variables) -> Iterator[tuple[str, list[str], str]]:
    """Yields the loops of a shell: the name, its values and the body."""
    for name, words, body in _LOOP.findall(text):
        counted = _SEQUENCE.sub(lambda m: f"{{{m[1] if m[2] else 1}..{m[2] or m[1]}}}", words)
        if not variables.known(counted):
            continue
        values = [each for word in variables.fill(counted).split() for each in _brace(word)]
        yield name, [value.strip("\"'") for value in values], body


def _brace(word: str) -> list[str]:
    bare = word.strip("\"'")
    if re.fullmatch(r"\{\d+\.\.\d+\}", bare):
        return [each[1:] for each in expanded(f"x{bare}")]
    return list(expanded(bare))


def with_value(variables: Mapping[str, str], name: str, value: str) -> Variables:
    """Returns the variables with one more."""
    return Variables({**variables, name: value})
