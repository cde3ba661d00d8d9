"""One list of keys: the documents and the JSON Schema follow the model."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from docs.reference import count_parts, generated, pages
from launcher.cluster.file_model import TABLES
from launcher.cluster.reference import json_schema, keys
from launcher.cluster.templates import TEMPLATES, render
from tests.support.cluster_texts import EXAMPLE, MORE
from tests.support.paths import REPOSITORY
from tui.main import main

FILES = sorted(
    path
    for folder in REPOSITORY.iterdir()
    if folder.name[0] != "." and folder.name not in ("build", "dist")
    for path in folder.rglob("*.toml")
    if "[jobs." in path.read_text(encoding="utf-8")
)
TEXTS = [
    EXAMPLE,
    MORE,
    *(path.read_text(encoding="utf-8") for path in FILES),
    *(render(template, "x", {"tf1": "root@tf1"}, Path("/srv")) for template in TEMPLATES),
]
VALIDATOR = jsonschema.Draft202012Validator(json_schema())
BAD: list[tuple[str, Any]] = [
    ("nmae", "x"),
    ("name", "a b"),
    ("hosts", {"tf1": {"shh": "tf1"}}),
    ("jobs", {"a": {}}),
    ("jobs", {"a": {"tasks": "tf1:1"}}),
    ("jobs", {"a": {"tasks": []}}),
    ("jobs", {"a": {"tasks": ["tf1:1"], "ready": {"log": "x", "after": 1}}}),
    ("run", {"success": "some"}),
    ("run", {"lease": 0}),
    ("run", {"max_restarts": 1.5}),
    ("run", {"env": {"A": True}}),
    ("start", {"order": ["ps"]}),
]


def test_the_generated_documents_are_up_to_date() -> None:
    """After a change of keys, commands or events: `python -m docs.reference`."""
    for path, text in generated().items():
        assert path.read_text(encoding="utf-8") == text, f"{path}: run python -m docs.reference"


def test_every_generated_part_is_known_and_no_table_is_missing() -> None:
    """A part with a wrong name would stay as it is for ever."""
    texts = [page.read_text(encoding="utf-8") for page in pages()]
    assert sum(text.count("<!-- end -->") for text in texts) == sum(map(count_parts, texts))
    reference = (REPOSITORY / "docs" / "cluster-file.md").read_text(encoding="utf-8")
    assert [name for name in TABLES if f"<!-- keys of {name} -->" not in reference] == []


def test_every_key_is_documented() -> None:
    """None is missing in the reference."""
    bare = [
        (table, name)
        for table, model in TABLES.items()
        for name in model.model_fields
        if name not in {key.name for key in keys(table)}
    ]
    assert bare == []


def test_the_schema_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """`tfmux schema`, for text editors."""
    jsonschema.Draft202012Validator.check_schema(json_schema())
    assert main(["schema"]) == 0
    assert json.loads(capsys.readouterr().out) == json_schema()


@pytest.mark.parametrize("text", TEXTS)
def test_every_cluster_file_fits_the_schema(text: str) -> None:
    """The documented examples, the demos and the templates."""
    VALIDATOR.validate(tomllib.loads(text))


@pytest.mark.parametrize(("key", "value"), BAD)
def test_the_schema_finds_what_is_wrong(key: str, value: Any) -> None:
    """Unknown keys, wrong types and words, values out of range."""
    good = {"jobs": {"worker": {"tasks": ["localhost:auto"]}}}
    VALIDATOR.validate(good)
    with pytest.raises(jsonschema.ValidationError):
        VALIDATOR.validate({**good, key: value})
