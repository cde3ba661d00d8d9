"""Frozen dataclasses are to their users what those of Python are."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any

import pytest

from launcher.frozen import frozen


def place() -> type[Any]:
    """A class with fields, of which a dataclass is made."""

    class Place:
        host: str
        port: int = 0
        words: tuple[str, ...] = ()
        usage: Mapping[str, int] = field(default_factory=dict, compare=False)

    return Place


def kinds() -> tuple[type[Any], type[Any]]:
    """One class as a frozen dataclass of ours and as one of Python."""
    return frozen(place()), dataclasses.dataclass(frozen=True)(place())


def test_values_are_taken_by_place_by_name_and_from_defaults() -> None:
    ours, theirs = kinds()
    right: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        (("tf1",), {}),
        (("tf1", 2), {"words": ("a",)}),
        ((), {"host": "tf2"}),
    ]
    for values, named in right:
        one, other = ours(*values, **named), theirs(*values, **named)
        assert dataclasses.asdict(one) == dataclasses.asdict(other)
        assert repr(one) == repr(other)
        assert hash(one) == hash(ours(*values, **named))
    assert ours("a").usage is not ours("a").usage


def test_only_what_is_compared_makes_two_differ() -> None:
    ours, theirs = kinds()
    assert ours("a", 1) == ours("a", 1, usage={"x": 1})
    assert ours("a", 1) != ours("a", 2)
    assert ours("a", 1) != theirs("a", 1)


def test_one_that_is_replaced_is_another_and_none_changes() -> None:
    ours, _ = kinds()
    one = ours("a", 1)
    assert replace(one, port=2) == ours("a", 2)
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.port = 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        del one.port
    assert one == ours("a", 1)


def test_values_that_are_missing_unknown_or_given_twice_are_refused() -> None:
    ours, theirs = kinds()
    wrong: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        ((), {}),
        ((), {"port": 1}),
        (("a",), {"host": "b"}),
        (("a",), {"nothing": 1}),
        ((), {"nothing": 1}),
        (("a", 1, (), {}, 5), {}),
    ]
    for values, named in wrong:
        for kind in (ours, theirs):
            with pytest.raises(TypeError):
                kind(*values, **named)


def test_a_class_below_adds_its_fields_and_keeps_its_own_methods() -> None:
    @frozen
    class Address:
        host: str

        def __str__(self) -> str:
            return f"<{self.host}>"

    @frozen
    class WithPort(Address):
        port: int = 22

    assert WithPort("tf1", 2).port == 2
    assert str(WithPort("tf1")) == "<tf1>"
    assert WithPort("tf1") != Address("tf1")
    match WithPort("tf1", 3):
        case WithPort(host, port):
            assert (host, port) == ("tf1", 3)
