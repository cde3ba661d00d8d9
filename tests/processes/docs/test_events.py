"""The events of real runs fit their JSON Schema, and hold nothing that is not documented."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from docs import events
from launcher.paths import runs_home
from tests.support.cluster_texts import cluster_text
from tests.support.command import Up, write
from tests.support.manual import DOCS

FILE = cluster_text(
    {"worker": {"tasks": 2, "ready": "started"}},
    "two",
    command=["sh", "-c", "echo step 1 loss 0.5; exit {index}"],
    workdir="",
    success="all",
)


def _strict(schema: Any) -> Any:
    """The schema with no further keys allowed."""
    if isinstance(schema, list):
        return [_strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: _strict(value) for key, value in schema.items()}
    return {**made, "additionalProperties": False} if "required" in made else made


def _check(lines: list[dict[str, Any]]) -> None:
    validator = jsonschema.Draft202012Validator(_strict(events.schema()))
    for line in lines:
        error = jsonschema.exceptions.best_match(validator.iter_errors(line))
        assert error is None, f"{line}: {error.message}"


def test_the_schema_is_one_and_refuses_what_is_no_event() -> None:
    """An unknown kind, a missing key, a wrong type."""
    jsonschema.Draft202012Validator.check_schema(events.schema())
    log = {"time": 1.0, "event": "log", "task": "a:0", "host": "b", "text": "c"}
    _check([log])
    for wrong in ({**log, "event": "lag"}, {**log, "time": "now"}, {"event": "log"}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, events.schema())


def test_every_field_is_described() -> None:
    """In the schema, and so in `docs/events.md`; `event` says what it is by its value."""
    bare = [
        (name, field)
        for name, made in events.schema()["$defs"].items()
        for field, value in made["properties"].items()
        if "description" not in value and field != "event"
    ]
    assert bare == []


def test_the_events_of_four_hosts() -> None:
    """The manual's events are those of the recorded training; `python -m docs.four_hosts` records
    them anew."""
    lines = (DOCS / "four-hosts-events.jsonl").read_text().splitlines()
    _check([json.loads(line) for line in lines])


def test_the_events_of_a_run(tmp_path: Path) -> None:
    """What `--json` prints, the failure of a task and its receipt among it, and what is kept."""
    with Up("up", str(write(tmp_path, FILE)), "--json") as up:
        assert up.wait() == 1, up.transcript()
        _check(up.events)
        assert {event["event"] for event in up.events} == {
            "run", "host", "task", "metric", "receipt", "log", "end",
        }  # fmt: skip
        kept = runs_home() / up.run_id / "events.jsonl"
    _check([json.loads(line) for line in kept.read_text().splitlines()])
