"""Records that are read from JSON: the type, range and size of each field, checked in one place.

A record is a class whose annotations name rules. A rule is written beside the type that it yields::

    Size = Annotated[int, whole(0, 1 << 62)]

    class ReadLog(Record):
        task: TaskId
        offset: Size = 0

`from_json` raises a `FieldError` that names the field; `to_json` writes what `from_json` reads.
Unknown keys are ignored. A field without a default must be present. These are no dataclasses,
because to make forty of those takes a fifth of an agent's start.
"""

from __future__ import annotations

import re
import sys
from enum import Enum
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    ClassVar,
    Dict,
    Mapping,
    TypeVar,
)

from .task_id import TaskId

Json = Dict[str, Any]
"""A JSON object."""
Clean = Callable[[str, int], str]
"""Makes text printable and cuts it to a length. Agents are sent no text that they show."""
Rule = Callable[[Any, Clean], Any]
"""Reads a value from JSON, or raises a `FieldError`."""
R = TypeVar("R", bound="Record")

if TYPE_CHECKING:
    from typing import Annotated as Annotated
    from typing import dataclass_transform
else:  # Python 3.8 has neither; of an annotation only the rule is needed

    class Annotated:
        def __class_getitem__(cls, parts):
            return parts[1]

    def dataclass_transform(**_):
        return lambda kind: kind


_MOST_ITEMS = 1 << 16
_LONGEST = 1 << 20
_LONGEST_SHOWN = 2000


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


def unchanged(text: str, limit: int) -> str:
    """The text as it is: the reader does not show it."""
    return text


def field(*, default: Any, kw_only: bool) -> Any:
    """The default of a field that is given by its name only."""
    return default


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class Record:
    """Base of all records. A record is never changed: `replace` makes another one."""

    _rules: ClassVar[dict[str, Rule]] = {}
    _defaults: ClassVar[Json] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        names = vars(sys.modules[cls.__module__])
        own = {
            name: _rule_of(str(annotation), names)
            for name, annotation in getattr(cls, "__annotations__", {}).items()
            if name not in cls._rules and not str(annotation).startswith("ClassVar")
        }
        cls._rules = {**own, **cls._rules}
        cls._defaults = {name: getattr(cls, name) for name in cls._rules if hasattr(cls, name)}

    def __init__(self, *values: Any, **named: Any) -> None:
        given = {**self._defaults, **dict(zip(self._rules, values)), **named}
        if len(values) > len(self._rules) or given.keys() != self._rules.keys():
            raise TypeError(f"{type(self).__name__}: not its fields")
        vars(self).update(given)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({vars(self)})"

    def replace(self: R, **changes: Any) -> R:
        """The same record with other values in some fields."""
        return type(self)(**{**vars(self), **changes})

    def to_json(self) -> Json:
        """The record as a JSON object. An optional field that is None is left out."""
        return {
            name: _plain(value)
            for name, value in vars(self).items()
            if value is not None or self._defaults.get(name, 0) is not None
        }

    @classmethod
    def from_json(cls: type[R], body: object, clean: Clean = unchanged) -> R:
        """The record in a JSON object.

        Raises:
            FieldError: a field is missing, or is not what it should be.
        """
        if not isinstance(body, dict):
            raise FieldError("not a JSON object")
        values = {}
        for name, rule in cls._rules.items():
            if name in body:
                try:
                    values[name] = rule(body[name], clean)
                except FieldError as error:
                    raise error.inside(name) from None
            elif name not in cls._defaults:
                raise FieldError("field required", name)
        made = cls(**values)
        if problem := made.problem():
            raise FieldError(problem)
        return made

    def problem(self) -> str:
        """Problem of the fields taken together; empty if there is none."""
        return ""


def _rule_of(annotation: str, names: Mapping[str, Any]) -> Rule:
    """The rule that an annotation names: `Port`, `tuple[Port, ...]`, `Port | None`."""
    if annotation.endswith(" | None"):
        return optional(_rule_of(annotation[: -len(" | None")], names))
    if annotation.startswith("tuple["):
        return items(_rule_of(annotation[len("tuple[") : -len(", ...]")], names))
    return _as_rule(bool if annotation == "bool" else names[annotation])


def _as_rule(kind: Any) -> Rule:
    """The rule of a type: what `Annotated` has left of it, or of a class that has one."""
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _member(kind)
    if isinstance(kind, type) and issubclass(kind, Record):
        return kind.from_json
    rule: Rule = _RULES.get(kind, kind)
    return rule


def _plain(value: Any) -> Any:
    """A field's value in JSON."""
    if isinstance(value, Record):
        return value.to_json()
    if isinstance(value, TaskId):
        return str(value)
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    return value.value if isinstance(value, Enum) else value


# --- rules of single values ---------------------------------------------------------------


def _checked(accepts: Callable[[Any], bool], problem: str) -> Rule:
    def read(value: Any, clean: Clean) -> Any:
        if not accepts(value):
            raise FieldError(problem)
        return value

    return read


def whole(low: int, high: int) -> Rule:
    """Rule of an integer from `low` to `high`, both included."""
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


def display_text(limit: int = _LONGEST_SHOWN) -> Rule:
    """Text for a person: the reader makes it printable and cuts it."""

    def read(value: Any, clean: Clean) -> str:
        if not isinstance(value, str):
            raise FieldError("not text")
        return clean(value, limit)

    return read


def pattern(expression: str, problem: str) -> Rule:
    """Text of a form that may become part of a name or a file."""
    form = re.compile(expression)
    return _checked(lambda value: isinstance(value, str) and bool(form.fullmatch(value)), problem)


def choice(*values: str) -> Rule:
    """Rule of a text that is one of `values`."""
    return _checked(lambda value: value in values, f"not one of {', '.join(values)}")


def _member(kind: type[Enum]) -> Rule:
    def read(value: Any, clean: Clean) -> Any:
        try:
            return kind(value)
        except ValueError:
            raise FieldError(f"not a member of {kind.__name__}") from None

    return read


def _read_task(value: Any, clean: Clean) -> TaskId:
    task = TaskId.from_frame(value) if isinstance(value, str) else None
    if task is None:
        raise FieldError("not the name of a task")
    return task


_RULES: dict[Any, Rule] = {
    bool: _checked(lambda value: isinstance(value, bool), "not true or false"),
    TaskId: _read_task,
}


# --- rules of values that hold others -----------------------------------------------------


def optional(rule: Rule) -> Rule:
    """Rule of a value that may be null."""
    return lambda value, clean: None if value is None else rule(value, clean)


def _read_each(rules: Any, values: list[Any], clean: Clean) -> tuple[Any, ...]:
    found: list[Any] = []
    try:
        for rule, value in zip(rules, values):
            found.append(rule(value, clean))
    except FieldError as error:
        raise error.inside(len(found)) from None
    return tuple(found)


def items(kind: Any, most: int = _MOST_ITEMS, *, fewest: int = 0) -> Rule:
    """A list, as a tuple."""
    rule = _as_rule(kind)

    def read(value: Any, clean: Clean) -> Any:
        if not isinstance(value, list) or not fewest <= len(value) <= most:
            raise FieldError(f"not a list of {fewest} to {most} items")
        return _read_each([rule] * len(value), value, clean)

    return read


def row(*kinds: Any) -> Rule:
    """A list with a rule for each place, as a tuple."""
    rules = [_as_rule(kind) for kind in kinds]

    def read(value: Any, clean: Clean) -> Any:
        if not isinstance(value, list) or len(value) != len(rules):
            raise FieldError(f"not a list of {len(rules)} items")
        return _read_each(rules, value, clean)

    return read


def table(key_kind: Any, kind: Any) -> Rule:
    """An object as a mapping from checked keys to checked values."""
    key, rule = _as_rule(key_kind), _as_rule(kind)

    def read(value: Any, clean: Clean) -> Any:
        if not isinstance(value, dict) or len(value) > _MOST_ITEMS:
            raise FieldError("not a JSON object of a permitted size")
        found = {}
        for name, each in value.items():
            try:
                found[key(name, clean)] = rule(each, clean)
            except FieldError as error:
                raise error.inside(name[:40]) from None
        return found

    return read


# --- types of fields ----------------------------------------------------------------------


def _is_file_name(value: Any) -> bool:
    parts = value.split("/") if isinstance(value, str) and len(value) <= 255 else ()
    return len(parts) == 1 and parts[0] not in ("", ".", "..")


def _is_absolute(value: Any) -> bool:
    return (
        isinstance(value, str)
        and len(value) <= 1 << 16
        and value.startswith("/")
        and not any(ord(c) < 0x20 or 0x7F <= ord(c) < 0xA0 for c in value)
    )


Number = Annotated[int, whole(0, 1 << 62)]
Size = Number
AnyNumber = Annotated[int, whole(-(1 << 62), 1 << 62)]
AttemptNumber = Annotated[int, whole(1, (1 << 31) - 1)]
LogNumber = Annotated[int, whole(0, (1 << 16) - 1)]
Version = Annotated[int, whole(0, 1 << 31)]
Pid = Annotated[int, whole(0, 1 << 22)]
Port = Annotated[int, whole(1, 65535)]
Figure = Annotated[float, number(-1e18, 1e18)]
Seconds = Annotated[float, number(0, 1e9)]
Text = Annotated[str, display_text()]
RawText = Annotated[str, raw_text()]
ShortRawText = Annotated[str, raw_text(1000)]
FileName = Annotated[str, _checked(_is_file_name, "not the name of a file")]
AbsolutePath = Annotated[str, _checked(_is_absolute, "not an absolute path in plain characters")]
Variables = Annotated[Mapping[str, str], table(RawText, RawText)]
OwnVariables = Annotated[Mapping[str, str], table(ShortRawText, raw_text(1 << 17))]
"""Variables of a process: Linux gives none that is longer to a program."""
