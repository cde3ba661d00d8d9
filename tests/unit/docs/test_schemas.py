"""One list of keys: documents and schema follow the model, and examples follow the schemas."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from docs.reference import count_parts, generated, pages
from launcher.cluster.file_model import TABLES
from launcher.cluster.read import load
from launcher.cluster.reference import json_schema, keys
from launcher.cluster.templates import TEMPLATES, render
from tests.support.manual import DOCS
from tests.support.paths import REPOSITORY
from tui.main import main

# One list of keys: the documents and the JSON Schema follow the model.


FILES = sorted(
    path
    for folder in REPOSITORY.iterdir()
    if folder.name[0] != "." and folder.name not in ("build", "dist")
    for path in folder.rglob("*.toml")
    if "[jobs." in path.read_text(encoding="utf-8")
)
TEXTS = [
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


# The example of four SSH hosts with two GPUs each as containers: `docs/examples/compose`.


FOLDER = DOCS / "examples" / "compose"
HOSTS = ["tf1", "tf2", "tf3", "tf4"]


@pytest.fixture
def services() -> dict[str, Any]:
    """The services of the Compose file, which is valid by the official schema."""
    text = (FOLDER / "compose.yaml").read_text()
    assert "$" not in text, "Compose would take it for a variable"
    document = yaml.safe_load(text)
    schema = json.loads((REPOSITORY / "tests/support/schemas/compose-spec.json").read_text())
    jsonschema.Draft7Validator(schema).validate(document)
    found: dict[str, Any] = document["services"]
    return found


def test_the_compose_file_has_four_hosts_with_two_gpus_each(services: dict[str, Any]) -> None:
    """No GPU is given twice, and nothing listens beyond the loopback."""
    assert list(services) == HOSTS
    numbers = []
    for service in services.values():
        (device,) = service["deploy"]["resources"]["reservations"]["devices"]
        assert device["capabilities"] == ["gpu"] and len(device["device_ids"]) == 2
        numbers += device["device_ids"]
        assert "openssh-server" in service["build"]["dockerfile_inline"] and service["init"]
    assert len(set(numbers)) == 8
    ports = [port for service in services.values() for port in service["ports"]]
    assert len(set(ports)) == 4 and all(port.startswith("127.0.0.1:") for port in ports)


def test_the_cluster_file_reaches_these_containers(services: dict[str, Any]) -> None:
    """Over the ports that the Compose file opens; the others call each by its service's name."""
    cluster = load(FOLDER / "cluster.toml")
    assert list(cluster.hosts) == HOSTS
    for name, host in cluster.hosts.items():
        assert host.ssh is not None and host.gpus == 2 and cluster.address(name) == name
        assert services[name]["ports"] == [f"{host.ssh.host}:{host.ssh.port}:22"]
    assert {place.host for job in cluster.jobs.values() for place in job.tasks} == set(HOSTS)


def test_the_cluster_file_makes_a_plan(capsys: pytest.CaptureFixture[str]) -> None:
    """Each worker has both GPUs of its container, the ps none."""
    assert main(["plan", str(FOLDER / "cluster.toml"), "--json"]) == 0
    tasks = json.loads(capsys.readouterr().out)["tasks"]
    given = {task["task"]: task["env"]["CUDA_VISIBLE_DEVICES"] for task in tasks}
    assert given == {"ps:0": "-1"} | {f"worker:{number}": "0,1" for number in range(4)}
