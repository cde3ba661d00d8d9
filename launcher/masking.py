"""Masking of what looks like a secret in texts that are told, copied or handed on: reports, causes,
errors, notifications, hooks, plans, findings.

A text is a secret as the value of an option, a variable or a key with a secret's name, or by its
shape. Names and shapes are data (`secret_shapes.toml`); values that are known are the business of
`secret_values`. Expressions that search texts are RE2's: their time grows with the text alone.
"""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from importlib import resources
from itertools import pairwise
from typing import Any

import re2

from .frozen import frozen
from .secret_values import MASK

_PLAIN = re.compile(
    r"[-+]?[\d.,:%/xX]+|true|false|none|null|nil|yes|no|on|off|set|unset|missing|required|invalid|"
    r"file|path|key|value|val|name|string|text|[\w./~-]+\.(?:pem|key|crt|pub|json|ya?ml|txt|env)|"
    r"empty|expired|\*+|x+|<[^>]*>?|\[[^\]]*\]?|\{[^}]*\}?|\$[\w{}]+|…|\.\.\.",
    re.IGNORECASE,
)
"""Values that are no secrets, whatever their names."""
_CODE = re.compile(
    r"(?:self|args?|cfg|config|conf|opts?|options|settings|params|os|env|hp|FLAGS)\.[A-Za-z_]|"
    r"[A-Za-z_][\w.]*[(\[]"
)
"""The beginnings of expressions of programs, as tracebacks quote them."""
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_OPTIONS = re2.Options()
_OPTIONS.encoding = re2.Options.Encoding.LATIN1
_VALUE = rb"\"[^\"]{0,400}\"|\"[^\"\n]*(?:\n|$)|'[^']{0,400}'|'[^'\n]*(?:\n|$)"
"""A text in quotes, or from one to the end of the line."""


@frozen
class Shape:
    """A row of the table."""

    name: str
    pattern: Any
    """`re2`'s, for bytes."""
    example: str
    other: str
    check: str = ""
    only: bytes = b""


@frozen
class _Names:
    anywhere: frozenset[str]
    at_end: tuple[tuple[str, ...], ...]
    weak: Mapping[bool, frozenset[str]]
    if_random: frozenset[str]
    not_behind: frozenset[str]
    not_at_end: frozenset[str]


_TABLE = tomllib.loads(
    resources.files("launcher").joinpath("secret_shapes.toml").read_text(encoding="utf-8")
)
"""Read with the module: an upgrade may replace the file while a run goes on."""


@cache
def shapes() -> tuple[Shape, ...]:
    """The table of shapes."""
    return tuple(
        Shape(
            row["name"],
            re2.compile(row["pattern"].encode(), _OPTIONS),
            row["example"],
            row["other"],
            row.get("check", ""),
            row.get("only", "").encode(),
        )
        for row in _TABLE["shape"]
    )


@cache
def _names() -> _Names:
    found = _TABLE["names"]
    return _Names(
        frozenset(found["anywhere"]),
        tuple(tuple(words.split()) for words in found["at_end"]),
        {
            False: frozenset(found["weak"]),
            True: frozenset((*found["weak"], *found["weak_with_colon"])),
        },
        frozenset(found["if_random"]),
        frozenset(found["not_behind"]),
        frozenset(found["not_at_end"]),
    )


def is_secret_name(name: str, *, between: str = "") -> bool:
    """Whether a variable, an option or a key of this name has a secret for its value. `between` is
    what stands between them in a text: `key: x` says less than `--key x` and `KEY=x`."""
    words, table = [word.lower() for word in _WORD.findall(name)], _names()
    while words and words[-1].isdecimal():
        words.pop()
    if not words or words[-1] in table.not_at_end:
        return False
    if any(secret in word for word in words for secret in table.anywhere):
        return True
    for end in table.at_end:
        before = words[: -len(end)]
        if words[-len(end) :] == list(end) and not (before and before[-1] in table.not_behind):
            weak = table.weak[":" in between] if between.strip() else ()
            if name.isupper() and ":" not in between:
                weak = ()
            return bool(before) or end[0] not in weak
    return False


# --- by names and shapes ---------------------------------------------------------------------

_NAMED = re2.compile(
    rb"(--?)?([A-Za-z_][\w.-]{0,100})([\"']?\]?)(\s{0,3}(?:=>|:=|[=:])\s{0,3}|\s{1,3})", _OPTIONS
)
"""A name, and what may stand between it and its value."""
_QUOTED = re2.compile(rb"[bfru]?(?:" + _VALUE + rb")", _OPTIONS)
_BARE = re2.compile(rb"[^\s\"',;&|<>]+", _OPTIONS)


@lru_cache(2048)
def mask(text: str) -> str:
    """The text without what is a secret by its name or by its shape."""
    data = text.encode("utf-8", "surrogatepass")
    data = _mask_shapes(_mask_named(data))
    return data.decode("utf-8", "surrogatepass")


def _mask_named(data: bytes) -> bytes:
    pieces, done = [], 0
    for found in _NAMED.finditer(data):
        if found.start() < done:
            continue
        option, name, _, between = (found[number] or b"" for number in range(1, 5))
        if not between.strip() and not option:
            continue  # `password horse` is a sentence
        bare = name.decode()
        sure = is_secret_name(bare, between="" if option else between.decode())
        if not sure and bare.lower() not in _names().if_random:
            continue
        start = found.end()
        start, end = _value(data, start, bare, option=not between.strip())
        if not sure and not (end - start >= _RANDOM and _has_digit(data[start:end])):
            continue  # `token: the` is a word of a text
        if end > start:
            pieces += [data[done:start], MASK.encode()]
            done = end
    return b"".join([*pieces, data[done:]]) if pieces else data


def _value(data: bytes, start: int, name: str, *, option: bool) -> tuple[int, int]:
    """Where a value that begins here, or behind a quote, has its first and its last character;
    nothing where there is none that could be a secret."""
    none = start, start
    found = _QUOTED.match(data, start)
    if found is not None:
        inside = found[0].lstrip(b"bfru")
        start += len(found[0]) - len(inside) + 1
        inside = inside[1:].rstrip(b"\n").removesuffix(inside[:1])
        value = inside.decode(errors="replace").strip()
        if not value or _PLAIN.fullmatch(value) or value.startswith(("/", "~", MASK)):
            return none
        return start, start + len(inside)
    found = _BARE.match(data, start)
    if found is None or (option and found[0].startswith(b"-")):
        return none
    inside = found[0]
    value = inside.decode(errors="replace").strip()
    if not value or _PLAIN.fullmatch(value) or value.startswith(("/", "~", "./", MASK)):
        return none
    return none if value == name or _CODE.match(value) else (start, found.end())


def _mask_shapes(data: bytes) -> bytes:
    low = data.lower()
    for shape in shapes():
        if shape.only and shape.only not in low:
            continue
        pieces, done = [], 0
        group = min(shape.pattern.groups, 1)
        for found in shape.pattern.finditer(data):
            start, end = found.span(group)
            secret = found[group]
            if start >= done and secret != MASK.encode() and _CHECKS[shape.check](secret):
                pieces += [data[done:start], MASK.encode()]
                done = end
        if pieces:
            data = b"".join([*pieces, data[done:]])
            low = data.lower()
    return data


_RANDOM = 8
"""Characters of a value, with digits and letters, that is one behind `token:`, too."""
_DIGIT, _SMALL, _CAPITAL = re.compile(rb"\d"), re.compile(rb"[a-z]"), re.compile(rb"[A-Z]")


def _has_digit(secret: bytes) -> bool:
    letter = _SMALL.search(secret) or _CAPITAL.search(secret)
    return bool(_DIGIT.search(secret) and letter)


def _is_random(secret: bytes) -> bool:
    return bool(_DIGIT.search(secret) or re.search(rb"[a-z][A-Z]", secret))


def _is_base64(secret: bytes) -> bool:
    if secret.count(b"/") > len(secret) / 20:
        return False
    return all(kind.search(secret) for kind in (_DIGIT, _SMALL, _CAPITAL))


_CHECKS: Mapping[str, Callable[[bytes], bool]] = {
    "": bool,
    "digit": _has_digit,
    "random": _is_random,
    "base64": _is_base64,
}


def masked_words(words: Sequence[str]) -> list[str]:
    """The words of a command without secrets: an option and its value are two of them."""
    try:
        masked = shlex.split(mask(shlex.join(words)))
    except ValueError:
        masked = []
    if len(masked) != len(words):
        masked = list(map(mask, words))
    for number, (option, word) in enumerate(pairwise(words), 1):
        named = option.startswith("-") and "=" not in option and is_secret_name(option)
        if named and _is_value(word) and not word.startswith("-"):
            masked[number] = MASK
    return masked


def masked_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """Variables without the values that are secrets by their names or shapes."""
    return {
        name: MASK if is_secret_name(name) and _is_value(text) else mask(text)
        for name, text in variables.items()
    }


def _is_value(text: str) -> bool:
    return bool(text) and not _PLAIN.fullmatch(text) and not text.startswith(("/", "~"))


def masked_json(value: Any) -> Any:
    """A JSON value whose texts have no secrets; keys stay, and those with a secret's name hide the
    text below them."""
    if isinstance(value, str):
        return mask(value)
    if isinstance(value, list | tuple):
        return [masked_json(each) for each in value]
    if isinstance(value, dict):
        return {
            key: MASK
            if isinstance(each, str) and is_secret_name(key) and _is_value(each)
            else masked_json(each)
            for key, each in value.items()
        }
    return value
