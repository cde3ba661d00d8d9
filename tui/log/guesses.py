"""Bulkhead of a front end around its guesses about text that programs print: a fault costs that
sentence, and nothing else. It is said on stderr, once of each kind, when the screen has gone.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from launcher.printable import pictured
from tui.streams import message

P = ParamSpec("P")
R = TypeVar("R")
D = TypeVar("D")
MISSING = "an explanation of lines is missing"
_faults: dict[str, Exception] = {}
"""The first fault of each function that guesses."""


def guess(otherwise: D) -> Callable[[Callable[P, R]], Callable[P, R | D]]:
    """Has a function return something else where it fails."""

    def around(function: Callable[P, R]) -> Callable[P, R | D]:
        @wraps(function)
        def guarded(*args: P.args, **kwargs: P.kwargs) -> R | D:
            try:
                return function(*args, **kwargs)
            except Exception as error:
                _faults.setdefault(function.__name__, error)
                return otherwise

        return guarded

    return around


def pop_faults() -> list[Exception]:
    """Returns the faults that have not been told yet, one of each kind."""
    found = list(_faults.values())
    _faults.clear()
    return found


def say_faults() -> None:
    """Says on stderr which guesses have failed."""
    for error in pop_faults():
        message(f"{MISSING}: {type(error).__name__}: {pictured(str(error))}")
