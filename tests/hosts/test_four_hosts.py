"""A real training on real hosts: ps on tf1, workers on tf2, and in a soak on tf3 and tf4."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from launcher.store.runs import RunFolder
from tests.support.budgets import soak
from tests.support.cluster_texts import TRAINING
from tests.support.command import Up, write
from tests.support.patience import wait_until
from tests.support.streams import records
from tests.testbed.namespaces import Testbed


@pytest.mark.parametrize("workers", [1, soak(3)])
def test_a_real_training_on_hosts(
    testbed: Testbed, tmp_path: Path, mnist: Path, workers: int
) -> None:
    """Given real MNIST and hosts that have only Python and TensorFlow, when a cluster file trains
    there, then the trainer is staged, the chief reports its accuracy, the ps is stopped, and every
    host is clean."""
    names = ["tf1", "tf2", "tf3", "tf4"][: 1 + workers]
    text = TRAINING.format(hosts=testbed.hosts_toml())
    places = json.dumps([f"{name}:2222" for name in names[1:]])
    text = text.replace("--steps=400", "--steps=150")
    file = write(tmp_path, text.replace('["tf2:2222", "tf3:2222", "tf4:2222"]', places))
    with Up("up", str(file), "--json") as up:
        assert up.wait() == 0, up.transcript()
        done = up.log("worker:0", "test accuracy")
    assert float(done["text"].split("test accuracy ")[1].split()[0]) > 0.8
    states = {e["task"]: e["state"] for e in up.of("task")}
    assert states == {"ps:0": "stopped", **{f"worker:{n}": "exited" for n in range(workers)}}
    receipt = up.of("receipt")[0]
    assert receipt["clean"]
    assert {host["host"] for host in receipt["hosts"]} == {*names}
    logdir = f"tfmux-logs/mission/{up.run_id}"
    for name in names:  # on the ps's host, too, which writes nothing there
        written = testbed[name].run(["ls", logdir]).stdout.decode().split()
        assert ("checkpoint" in written) is (name == "tf2"), written
    for host in testbed:
        wait_until(lambda host=host: not host.leftovers(), "nothing is left")  # type: ignore[misc]
    stored = RunFolder.find(up.run_id)
    kinds = {record["event"] for record in records(stored)}
    assert {"run", "host", "task", "metric", "receipt"} <= kinds
    assert b"test accuracy" in (stored.path / "worker-0.log").read_bytes()
