"""JSON Schema and reference of the public events, from their types."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from types import NoneType, UnionType
from typing import Any, Literal, NotRequired, get_args, get_origin, get_type_hints, is_typeddict

from docs.markdown import table
from launcher.run.states import HostState, Outcome, RunPhase, TaskState
from launcher.store.public_events import LogEvent, PublicEvent

_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", NoneType: "null"}
_WORDS = {
    ("RunEvent", "state"): RunPhase,
    ("RunEvent", "outcome"): Outcome,
    ("HostEvent", "state"): HostState,
    ("TaskEvent", "state"): TaskState,
}
"""Fields whose text is one of some words."""


def kinds() -> list[type[Any]]:
    """The types of all events."""
    return [*get_args(PublicEvent), LogEvent]


def schema() -> dict[str, Any]:
    """JSON Schema of one event, a line of `--json` or of `events.jsonl`."""
    definitions: dict[str, Any] = {}
    references = [_schema(kind, definitions) for kind in kinds()]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "tfmux event",
        "description": "One line of `tfmux up --json`, or of a run's `events.jsonl`.",
        "oneOf": references,
        "$defs": dict(sorted(definitions.items())),
    }


def markdown() -> Iterator[str]:
    """A section for each kind of event, then the objects that stand in them."""
    definitions = schema()["$defs"]
    events = [kind.__name__ for kind in kinds()]
    for name in [*events, *sorted(definitions.keys() - set(events))]:
        made = definitions[name]
        title = f"`{made['properties']['event']['const']}`" if name in events else name
        yield from (f"### {title}", "", made["description"], "")
        rows = (
            (f"`{field}`", _type(value), "yes" if field in made["required"] else "", _about(value))
            for field, value in made["properties"].items()
        )
        yield from (*table(("field", "type", "always", "is"), rows), "")


def _schema(kind: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    if kind in _PLAIN:
        return {"type": _PLAIN[kind]}
    if is_typeddict(kind):
        if kind.__name__ not in definitions:
            definitions[kind.__name__] = _object(kind, definitions)
        return {"$ref": f"#/$defs/{kind.__name__}"}
    arguments = get_args(kind)
    match get_origin(kind):
        case origin if origin is Literal:
            return {"const": arguments[0]}
        case origin if origin is list:
            return {"type": "array", "items": _schema(arguments[0], definitions)}
        case origin if origin is dict:
            values = _schema(arguments[1], definitions)
            return {"type": "object", "additionalProperties": values}
        case origin if origin is UnionType:
            return {"anyOf": [_schema(each, definitions) for each in arguments]}
    raise TypeError(f"no schema for {kind}")


def _object(kind: type[Any], definitions: dict[str, Any]) -> dict[str, Any]:
    abouts = _descriptions(kind)
    required: list[str] = []
    properties: dict[str, Any] = {}
    for name, hint in get_type_hints(kind, include_extras=True).items():
        if get_origin(hint) is NotRequired:
            (hint,) = get_args(hint)
        else:
            required.append(name)
        properties[name] = _schema(hint, definitions)
        if words := _WORDS.get((kind.__name__, name)):
            properties[name] = {"enum": [str(word) for word in words]}
        if name in abouts:
            properties[name]["description"] = abouts[name]
    about = " ".join((inspect.getdoc(kind) or "").split())
    made = {"description": about, "type": "object"}
    return {**made, "properties": properties, "required": required}


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


def _type(made: dict[str, Any]) -> str:
    if "$ref" in made:
        name = made["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "const" in made:
        return f'`"{made["const"]}"`'
    if "anyOf" in made:
        return " or ".join(_type(each) for each in made["anyOf"])
    if "enum" in made:
        return ", ".join(f"`{word}`" for word in made["enum"])
    if made["type"] == "array":
        return f"list of {_type(made['items'])}s"
    if "additionalProperties" in made:
        return f"{made['additionalProperties']['type']}s by name"
    return str(made["type"])


def _about(made: dict[str, Any]) -> str:
    return str(made.get("description", ""))
