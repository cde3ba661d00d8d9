"""The example of four SSH hosts with two GPUs each as containers: `docs/examples/compose`."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
import yaml

from launcher.cluster.read import load
from tests.support.manual import DOCS
from tests.support.paths import REPOSITORY
from tui.main import main

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
