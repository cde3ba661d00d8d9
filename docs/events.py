"""JSON Schema and reference of the records of a run, from their types."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
from collections import defaultdict
from collections.abc import Iterator, Mapping
from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic.fields import FieldInfo

from docs.markdown import table
from launcher.ids import TaskId
from launcher.run.gpus import GpuSample
from launcher.run.snapshot import (
    FactsView,
    HostReceipt,
    HostView,
    Metric,
    Note,
    Receipt,
    RunView,
    TaskView,
)
from launcher.store.stream import LogLine, Summary

KINDS: tuple[Any, ...] = (
    RunView,
    HostView,
    TaskView,
    Metric,
    GpuSample,
    Note,
    Receipt,
    Summary,
    LogLine,
    FactsView,
)
"""The types of all events."""
_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", TaskId: "string"}
_ALWAYS = {("TaskView", "attempt"), ("HostView", "reason"), ("Receipt", "clean")}
"""Fields with a default that stand in each record."""
_INNER = {"FactsView", "HostFacts", "AllocatedNode"}
_INNER_FIELDS = {
    "RunView": {"forced", "kill_asked", "restart_due"},
    "HostView": {"contacted"},
    "TaskView": {"intent", "kill_grace", "restart_due", "state_before_loss"},
    "Receipt": {"begun"},
    "AllocationView": {"releasing"},
}
"""What only launchers read: in the schema, not in the reference."""
_STATES = {"RunView": "run", "Summary": "run", "TaskView": "task"}
"""Records with a state of a run or a task, whose words the page explains."""


def schema() -> dict[str, Any]:
    """JSON Schema of one event, a line of `--json` or of a run's files."""
    definitions: dict[str, Any] = {}
    references = [_schema(kind, definitions) for kind in KINDS]
    return {
        "description": "One line of `tfmux up --json`, or of a run's `events.jsonl`.",
        "oneOf": references,
        "$defs": dict(sorted(definitions.items())),
    }


def markdown() -> Iterator[str]:
    """A section for each kind of event, then the objects that stand in them. A field that means the
    same as in an earlier section is only named."""
    definitions = schema()["$defs"]
    events = [kind.__name__ for kind in KINDS]
    earlier: dict[tuple[str, ...], str] = {}
    for name in [*events, *sorted(definitions.keys() - set(events))]:
        if name in _INNER:
            continue
        made = definitions[name]
        title = f"`{made['properties']['event']['const']}`" if name in events else name
        yield from (f"### {title}", "", made["description"], "")
        inner = {"event", "time"} if name in events else set()
        inner |= _INNER_FIELDS.get(name, set())
        rows, same = [], defaultdict[str, list[str]](list)
        for field, value in made["properties"].items():
            if field in inner:
                continue
            row = (f"`{field}`", _type_of(name, field, value), _about(value))
            if row in earlier:
                same[earlier[row]].append(row[0])
            else:
                rows.append(row)
                earlier[row] = title
        yield from (*table(("field", "type", "is"), rows), "")
        if same:
            found = (f"{', '.join(fields)} as in {where}" for where, fields in same.items())
            yield from (f"Also, {'; '.join(found)}.", "")


def _schema(kind: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    if kind in _PLAIN:
        return {"type": _PLAIN[kind]}
    if isinstance(kind, type) and issubclass(kind, Enum):
        return {"enum": [str(word) for word in kind if word.value]}
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        if kind.__name__ not in definitions:
            definitions[kind.__name__] = {}
            definitions[kind.__name__] = _object(kind, definitions)
        return {"$ref": f"#/$defs/{kind.__name__}"}
    if isinstance(kind, type) and issubclass(kind, tuple):  # of names
        return {"type": "array", "items": {"type": "string"}}
    arguments = get_args(kind)
    match get_origin(kind):
        case origin if origin is Annotated:
            return _schema(arguments[0], definitions)
        case origin if origin is Literal:
            return {"const": arguments[0]}
        case origin if origin is tuple:
            items = [each for each in arguments if each is not ...]
            return {"type": "array", "items": _schema(items[0], definitions)}
        case origin if origin is Mapping:
            values = _schema(arguments[1], definitions)
            if values == {"type": "number"}:
                values = {"type": ["number", "string"]}  # "NaN"
            return {"type": "object", "additionalProperties": values}
        case origin if origin in (UnionType, Union):
            (one,) = (each for each in arguments if each is not NoneType)  # None: absent
            return _schema(one, definitions)
    raise TypeError(f"no schema for {kind}")


def _object(kind: type[Any], definitions: dict[str, Any]) -> dict[str, Any]:
    abouts = _descriptions(kind)
    required: list[str] = []
    properties: dict[str, Any] = {}
    fields = {one.name: one for one in dataclasses.fields(kind)}
    hints = get_type_hints(kind, include_extras=True)
    first = [name for name in ("event", "time") if name in hints and kind in KINDS]
    for name in dict.fromkeys([*first, *hints]):
        hint, one = hints[name], fields[name]
        key = _alias(hint) or name
        bare = one.default is dataclasses.MISSING and one.default_factory is dataclasses.MISSING
        if bare or kind is HostReceipt or name in first or (kind.__name__, name) in _ALWAYS:
            required.append(key)
        properties[key] = _schema(hint, definitions)
        if kind is HostReceipt and NoneType in get_args(hint):
            properties[key] = {"anyOf": [properties[key], {"type": "null"}]}
        if name in abouts:
            properties[key]["description"] = abouts[name]
    if kind is Receipt:
        about = "Every host has confirmed that no process is left."
        properties["clean"] = {"type": "boolean", "description": about}
        required.append("clean")
    about = " ".join((inspect.getdoc(kind) or "").split())
    made = {"description": about, "type": "object"}
    return {**made, "properties": properties, "required": required}


def _alias(hint: Any) -> str | None:
    """The key of a field in JSON, where it is not its name."""
    if get_origin(hint) is not Annotated:
        return None
    found = (each.alias for each in get_args(hint)[1:] if isinstance(each, FieldInfo))
    return next(found, None)


def _descriptions(kind: type[Any]) -> dict[str, str]:
    """The text below each field of a class."""
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(body, ast.ClassDef)
    found = {}
    for field, below in zip(body.body, body.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            match below:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    found[field.target.id] = " ".join(text.split())
    return found


def _type_of(kind: str, field: str, made: dict[str, Any]) -> str:
    if kind in _STATES and field.startswith("state"):
        return f"[state](#states-of-a-{_STATES[kind]})"
    return _type(made)


def _type(made: dict[str, Any]) -> str:
    if "$ref" in made:
        name = made["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in made:
        return " or ".join(map(_type, made["anyOf"]))
    if "const" in made:
        return f'`"{made["const"]}"`'
    if "enum" in made:
        return ", ".join(f"`{word}`" for word in made["enum"])
    if made["type"] == "array":
        return f"list of {_type(made['items'])}s"
    if "additionalProperties" in made:
        inner = made["additionalProperties"]
        return "lists by name" if inner["type"] == "array" else "numbers by name"
    return str(made["type"])


def _about(made: dict[str, Any]) -> str:
    return str(made.get("description", ""))
