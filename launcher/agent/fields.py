"""Records that are read from JSON: the type, range and size of each field, checked in one place.

A record is a frozen dataclass whose fields carry a rule as metadata::

    @dataclass(frozen=True)
    class Credit(Record):
        up_to: int = field(metadata=SIZE)

`from_json` raises a `FieldError` that names the field; `to_json` writes what `from_json` reads.
Unknown keys are ignored. A field without a default must be present.
"""

from __future__ import annotations

import dataclasses
import re
from enum import Enum
from typing import Any, Callable, Dict, Mapping, NamedTuple, TypeVar

from .task_id import TaskId

Json = Dict[str, Any]
"""A JSON object."""
Clean = Callable[[str, int], str]
"""Makes text printable and cuts it to a length. Agents are sent no text that they show."""
R = TypeVar("R", bound="Record")

MOST_ITEMS = 1 << 16
_LONGEST = 1 << 20
_LONGEST_SHOWN = 2000
_SHA256 = re.compile(r"[0-9a-f]{64}")
_SIGNAL = re.compile(r"[A-Z0-9]{1,16}")


class FieldError(Exception):
    """A value that a record does not accept, and where it stands."""

    def __init__(self, problem: str, *path: object) -> None:
        super().__init__(problem, *path)
        self.problem = problem
        self.path = path

    def __str__(self) -> str:
        return f"{'.'.join(map(str, self.path))}: {self.problem}" if self.path else self.problem

    def inside(self, key: object) -> FieldError:
        """The same error, seen from the object or list that holds the value."""
        return FieldError(self.problem, key, *self.path)


class Rule(NamedTuple):
    """How a value is read from JSON (raising `FieldError`) and written to it."""

    read: Callable[[Any, Clean], Any]
    write: Callable[[Any], Any]


def unchanged(text: str, limit: int) -> str:
    """The text as it is: the reader does not show it."""
    return text


@dataclasses.dataclass(frozen=True)
class Record:
    """Base of all records; subclasses are frozen dataclasses."""

    def to_json(self) -> Json:
        """The record as a JSON object. An optional field that is None is left out."""
        body = {}
        for each in dataclasses.fields(self):
            value = getattr(self, each.name)
            if value is not None or each.default is not None:
                body[each.name] = each.metadata["rule"].write(value)
        return body

    @classmethod
    def from_json(cls: type[R], body: object, clean: Clean = unchanged) -> R:
        """The record in a JSON object.

        Raises:
            FieldError: a field is missing, or is not what it should be.
        """
        if not isinstance(body, dict):
            raise FieldError("not a JSON object")
        values = {}
        for each in dataclasses.fields(cls):
            if each.name in body:
                try:
                    values[each.name] = each.metadata["rule"].read(body[each.name], clean)
                except FieldError as error:
                    raise error.inside(each.name) from None
            elif each.default is dataclasses.MISSING:
                raise FieldError("field required", each.name)
        made = cls(**values)
        problem = made.problem()
        if problem:
            raise FieldError(problem)
        return made

    def problem(self) -> str:
        """What is wrong with the fields taken together; empty when nothing is."""
        return ""


def _same(value: Any) -> Any:
    return value


def _checked(accepts: Callable[[Any], bool], problem: str) -> Rule:
    def read(value: Any, clean: Clean) -> Any:
        if not accepts(value):
            raise FieldError(problem)
        return value

    return Rule(read, _same)


# --- rules of single values ---------------------------------------------------------------


def whole(low: int, high: int) -> Rule:
    """An integer within bounds."""
    return _checked(
        lambda value: type(value) is int and low <= value <= high,
        f"not a whole number from {low} to {high}",
    )


def number(low: float, high: float) -> Rule:
    """A number within bounds, whole or not."""
    return _checked(
        lambda value: type(value) in (int, float) and low <= value <= high,
        f"not a number from {low:g} to {high:g}",
    )


def raw_text(longest: int = _LONGEST) -> Rule:
    """Text that is used as it is and never shown."""
    return _checked(
        lambda value: isinstance(value, str) and len(value) <= longest,
        f"not text of at most {longest} characters",
    )


def shown_text(limit: int = _LONGEST_SHOWN) -> Rule:
    """Text for a person: the reader makes it printable and cuts it."""

    def read(value: Any, clean: Clean) -> str:
        if not isinstance(value, str):
            raise FieldError("not text")
        return clean(value, limit)

    return Rule(read, _same)


def choice(*values: str) -> Rule:
    """One of some words."""
    return _checked(lambda value: value in values, f"not one of {', '.join(values)}")


def enum_rule(kind: type[Enum]) -> Rule:
    """A member of an enumeration, by its value."""

    def read(value: Any, clean: Clean) -> Any:
        try:
            return kind(value)
        except ValueError:
            raise FieldError(f"not a member of {kind.__name__}") from None

    return Rule(read, lambda member: member.value)


def _read_task(value: Any, clean: Clean) -> TaskId:
    task = TaskId.from_frame(value) if isinstance(value, str) else None
    if task is None:
        raise FieldError("not the name of a task")
    return task


def _is_file_name(value: Any) -> bool:
    return (
        isinstance(value, str)
        and len(value) <= 255
        and "/" not in value
        and value not in ("", ".", "..")
    )


def _is_absolute(value: Any) -> bool:
    return (
        isinstance(value, str)
        and len(value) <= 1 << 16
        and value.startswith("/")
        and not any(ord(c) < 0x20 or 0x7F <= ord(c) < 0xA0 for c in value)
    )


flag_rule = _checked(lambda value: isinstance(value, bool), "not true or false")
task_rule = Rule(_read_task, str)
file_name_rule = _checked(_is_file_name, "not the name of a file")
port_rule = whole(1, 65535)
size_rule = whole(0, 1 << 62)
signed_rule = whole(-(1 << 62), 1 << 62)
figure_rule = number(-1e18, 1e18)
pid_rule = whole(0, 1 << 22)
port_text_rule = _checked(
    lambda value: isinstance(value, str) and re.fullmatch("[0-9]{1,5}", value) is not None,
    "not the number of a port",
)


# --- rules of values that hold others -----------------------------------------------------


def optional(rule: Rule) -> Rule:
    """A value, or null."""
    return Rule(
        lambda value, clean: None if value is None else rule.read(value, clean),
        lambda value: None if value is None else rule.write(value),
    )


def items(rule: Rule, most: int = MOST_ITEMS, *, fewest: int = 0) -> Rule:
    """A list, as a tuple."""

    def read(value: Any, clean: Clean) -> Any:
        if not isinstance(value, list) or not fewest <= len(value) <= most:
            raise FieldError(f"not a list of {fewest} to {most} items")
        found = []
        try:
            for each in value:
                found.append(rule.read(each, clean))
        except FieldError as error:
            raise error.inside(len(found)) from None
        return tuple(found)

    return Rule(read, lambda value: [rule.write(each) for each in value])


def row(*rules: Rule) -> Rule:
    """A list with a rule for each place, as a tuple."""

    def read(value: Any, clean: Clean) -> Any:
        if not isinstance(value, list) or len(value) != len(rules):
            raise FieldError(f"not a list of {len(rules)} items")
        found = []
        try:
            for rule, each in zip(rules, value):
                found.append(rule.read(each, clean))
        except FieldError as error:
            raise error.inside(len(found)) from None
        return tuple(found)

    return Rule(read, lambda value: [rule.write(each) for rule, each in zip(rules, value)])


def table(key: Rule, rule: Rule) -> Rule:
    """An object as a mapping from checked keys to checked values."""

    def read(value: Any, clean: Clean) -> Any:
        if not isinstance(value, dict) or len(value) > MOST_ITEMS:
            raise FieldError("not a JSON object of a permitted size")
        found = {}
        for name, each in value.items():
            try:
                found[key.read(name, clean)] = rule.read(each, clean)
            except FieldError as error:
                raise error.inside(name[:40]) from None
        return found

    return Rule(
        read, lambda value: {key.write(name): rule.write(each) for name, each in value.items()}
    )


def record(kind: type[R]) -> Rule:
    """A record inside another one."""
    return Rule(kind.from_json, lambda value: value.to_json())


def digest(value: str) -> bool:
    """The text is a SHA-256, which names a file in a cache."""
    return _SHA256.fullmatch(value) is not None


def meta(rule: Rule) -> Mapping[str, Rule]:
    """The metadata of a field with this rule."""
    return {"rule": rule}


FLAG = meta(flag_rule)
TASK = meta(task_rule)
TASKS = meta(items(task_rule))
SOME_TASKS = meta(optional(items(task_rule)))
ATTEMPT = meta(whole(1, (1 << 31) - 1))
ANSWER_ID = meta(optional(whole(1, 1 << 62)))
PORT = meta(port_rule)
SOME_PORT = meta(optional(port_rule))
SIZE = meta(size_rule)
COUNT = meta(size_rule)
PID = meta(pid_rule)
FIGURE = meta(figure_rule)
SIGNED = meta(signed_rule)
SECONDS = meta(number(0, 1e9))
TEXT = meta(shown_text())
TEXTS = meta(items(shown_text(1000)))
RAW_TEXT = meta(raw_text())
ABSOLUTE_PATH = meta(_checked(_is_absolute, "not an absolute path in plain characters"))
SIGNAL = meta(
    optional(
        _checked(
            lambda value: isinstance(value, str) and _SIGNAL.fullmatch(value) is not None,
            "not the name of a signal",
        )
    )
)
EXIT_STATUS = meta(optional(whole(0, 255)))
LOG_NUMBER = meta(whole(0, (1 << 16) - 1))
VARIABLES = meta(table(raw_text(), raw_text()))
