"""A real training on four real hosts: ps on tf1, workers on tf2, tf3 and tf4."""

from __future__ import annotations

from pathlib import Path

from launcher.store.runs import RunFolder
from tests.support.cluster_texts import TRAINING
from tests.support.command import Up, write
from tests.support.streams import records
from tests.testbed.namespaces import Testbed


def test_a_real_training_on_four_hosts(testbed: Testbed, tmp_path: Path, mnist: Path) -> None:
    """Given real MNIST and hosts with only Python and TensorFlow, when a training is launched, then
    the chief reports an accuracy above 0.8, the ps is stopped, and every host is clean."""
    file = write(tmp_path, TRAINING.format(hosts=testbed.hosts_toml()))
    with Up("up", str(file), "--json") as up:
        assert up.wait() == 0, up.transcript()
        done = up.log("worker:0", "test accuracy")
    assert float(done["text"].split("test accuracy ")[1].split()[0]) > 0.8
    states = {e["task"]: e["state"] for e in up.of("task")}
    assert states == {
        "ps:0": "stopped",
        "worker:0": "exited",
        "worker:1": "exited",
        "worker:2": "exited",
    }
    receipt = up.of("receipt")[0]
    assert receipt["clean"]
    assert {host["host"] for host in receipt["hosts"]} == {"tf1", "tf2", "tf3", "tf4"}
    for host in testbed:
        assert not host.leftovers()
    stored = RunFolder.find(up.run_id)
    kinds = {record["event"] for record in records(stored)}
    assert {"run", "host", "task", "metric", "receipt"} <= kinds
    assert b"test accuracy" in (stored.path / "worker-0.log").read_bytes()
