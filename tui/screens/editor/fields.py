"""Fields of the editor's tables, derived from the documented keys of the cluster file.

Made when an editor opens, not when the program starts: the JSON Schema behind them takes time.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from launcher.cluster.reference import KeyReference, keys, plain
from tui.screens.editor.cell_codecs import (
    ENV,
    FLAG,
    NUMBER,
    ORDER,
    READY,
    TASKS,
    TEXT,
    WARM,
    WORDS,
    CellCodec,
)

_BY_NAME = {"tasks": TASKS, "ready": READY, "order": ORDER, "warm": WARM}
_BY_TYPE = {
    "string": TEXT,
    "integer": NUMBER,
    "number": NUMBER,
    "boolean": FLAG,
    "array": WORDS,
    "object": ENV,
}
_READY_WORDS = ("listening", "started", "auto", "log ", "after ")
_COMPLETIONS = {"ssh": "ssh", "jump": "ssh", "tasks": "tasks"}


@dataclass(frozen=True)
class Field:
    """One key. `path` is below its table; empty for the table's own name."""

    title: str
    path: tuple[str, ...]
    codec: CellCodec
    about: str
    default: str = ""
    """Value that holds without the key."""
    choices: tuple[str, ...] = ()
    completion: str = ""
    """Source of completions besides the choices: `ssh`, `hosts`, `tasks`."""


def _field(key: KeyReference, path: tuple[str, ...], title: str) -> Field:
    codec = _BY_NAME.get(key.name) or _BY_TYPE[key.schema["type"]]
    about = f"{key.brief} ({codec.form})" if codec.form else key.brief
    default = plain(key.default).strip('"')
    choices = _READY_WORDS if codec is READY else key.choices
    completion = _COMPLETIONS.get(key.name, "")
    return Field(title.replace("_", " "), path, codec, about, default, choices, completion)


@cache
def host_fields() -> tuple[Field, ...]:
    """Columns of the table of hosts."""
    return (Field("host", (), TEXT, "its name in this file"), *_columns("hosts"))


@cache
def job_fields() -> tuple[Field, ...]:
    """Columns of the table of jobs."""
    name = Field("job", (), TEXT, "ps, worker, chief, evaluator, or any name")
    return (name, *_columns("jobs"))


@cache
def run_fields() -> tuple[Field, ...]:
    """Rows of the table of everything else."""
    top = (_field(key, (key.name,), key.name) for key in keys(""))
    rest = (*_rows("start", "start "), *_rows("metrics", "metrics "), *_rows("hooks", "hooks "))
    return (*top, *_rows("run"), *rest)


@cache
def engine_fields(table: str) -> tuple[Field, ...]:
    """Rows of the table of an engine."""
    return tuple(_rows(table))


def _columns(table: str) -> list[Field]:
    return [_field(key, (key.name,), key.name) for key in keys(table)]


def _rows(table: str, prefix: str = "") -> list[Field]:
    found = (key for key in keys(table) if (table, key.name) != ("start", "ready"))
    return [_field(key, (table, key.name), prefix + key.name) for key in found]
