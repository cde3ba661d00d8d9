"""Keys of the cluster file as its model documents them: JSON Schema, Markdown tables, fields.

The model in `file_model` is the only list of keys; what the editor, the reference in `docs` and
other programs know of them is made here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from enum import StrEnum
from functools import cache
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import core_schema

from ..frozen import frozen
from .file_model import TABLES, ClusterModel, tables_in
from .values import Key


@frozen
class KeyReference:
    """One documented key. `about` and `default` are Markdown."""

    name: str
    about: str
    default: str
    required: bool
    schema: dict[str, Any]

    @property
    def brief(self) -> str:
        """First sentence of `about`, without markup."""
        return plain(re.split(r"\. (?=[A-Z`])", self.about)[0])

    @property
    def choices(self) -> tuple[str, ...]:
        """Words of which the value is one; empty if there are others."""
        if self.schema.get("type") == "boolean":
            return ("true", "false")
        return tuple(self.schema.get("enum", ()))


@cache
def keys(table: str) -> tuple[KeyReference, ...]:
    """Documented keys of a table, in the order of the model; `""` is the top level."""
    model = TABLES[table] if table else ClusterModel
    schema = _schema()
    properties = schema["$defs"][model.__name__]["properties"] if table else schema["properties"]
    found = []
    for name, field in model.model_fields.items():
        key = _key(field)
        if key is not None:
            resolved = _resolved(properties[name], schema)
            required = field.is_required() and not key.default
            default = key.default or _default(field)
            found.append(KeyReference(name, key.about, default, required, resolved))
    return tuple(found)


def markdown(table: str) -> Iterator[str]:
    """Lines of the table of keys for the reference."""
    yield "| key | is | default |"
    yield "| --- | --- | --- |"
    for key in keys(table):
        name = "`[start.ready]`" if (table, key.name) == ("start", "ready") else f"`{key.name}`"
        words = [f'`"{word}"`' for word in key.schema.get("enum", ())]
        values = f"{', '.join(words[:-1])} or {words[-1]}: " if words else ""
        default = "required" if key.required else key.default
        cells = (text.replace("|", "\\|") for text in (name, values + key.about, default))
        yield f"| {' | '.join(cells)} |".replace("|  |", "| |")


def json_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of a cluster file. What holds between values is not in it."""
    schema = ClusterModel.model_json_schema(schema_generator=_Generator)
    for model in {*TABLES.values(), *tables_in(ClusterModel).values()}:
        _describe(model, schema["$defs"][model.__name__])
    _describe(ClusterModel, schema)
    schema["required"].remove("name")  # the file's name stands in for it
    schema["title"] = "tfmux cluster file"
    schema["description"] = "Hosts, jobs and rules of a TensorFlow cluster, in TOML."
    return {"$schema": _Generator.schema_dialect, **schema}


_schema = cache(json_schema)


@cache
def schema_text() -> str:
    """The JSON Schema as a file."""
    return json.dumps(_schema(), indent=2) + "\n"


def plain(markdown: str) -> str:
    """Text without backquotes and emphasis."""
    return re.sub(r"`|\*(?=\S)|(?<=\S)\*", "", markdown)


class _Generator(GenerateJsonSchema):
    """TOML has no null: an optional key has the schema of its value."""

    def nullable_schema(self, schema: core_schema.NullableSchema) -> dict[str, Any]:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> dict[str, Any]:
        if schema.get("default") is None:
            return self.generate_inner(schema["schema"])
        return super().default_schema(schema)

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def _describe(model: type[BaseModel], schema: dict[str, Any]) -> None:
    schema.pop("title", None)
    for name, field in model.model_fields.items():
        key = _key(field)
        if key is not None:
            schema["properties"][name]["description"] = key.about


def _key(field: FieldInfo) -> Key | None:
    return next((each for each in field.metadata if isinstance(each, Key)), None)


def _default(field: FieldInfo) -> str:
    """The field's own default as the file would say it; empty where it is no value."""
    match field.default:
        case bool(value):
            return f"`{str(value).lower()}`"
        case StrEnum() | str() as text if text:
            return f"`{json.dumps(str(text))}`"
        case int() | float() as number:
            return f"{number:g}"
    return ""


def _resolved(schema: dict[str, Any], whole: dict[str, Any]) -> dict[str, Any]:
    if "$ref" not in schema:
        return schema
    target: dict[str, Any] = whole["$defs"][schema["$ref"].rpartition("/")[2]]
    return {**target, **schema}
