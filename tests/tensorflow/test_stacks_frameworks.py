"""Stacks of real frameworks that hang as they do in the field: who waits, and for whom."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from tests.support.cluster_texts import cluster_text
from tests.support.command import Up, run, write
from tests.support.patience import wait_until
from tests.testbed.namespaces import Testbed

pytestmark = pytest.mark.prove


WAITS_FOR_PS = """
import sys
import tensorflow.compat.v1 as tf
tf.disable_eager_execution()
ps, worker = sys.argv[1:]
server = tf.train.Server({"ps": [ps], "worker": [worker]}, job_name="worker", task_index=0)
with tf.device("/job:ps/task:0"):
    x = tf.constant(1.0)
def train():
    with tf.Session(server.target) as session:
        session.run(x)
train()
"""
SYNC_REPLICAS = """
import sys, time
import tensorflow.compat.v1 as tf
tf.disable_eager_execution()
job, index, ps, workers = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4].split(",")
cluster = tf.train.ClusterSpec({"ps": [ps], "worker": workers})
server = tf.train.Server(cluster, job_name=job, task_index=index)
def serve():
    server.join()
if job == "ps":
    serve()
own = f"/job:worker/task:{index}"
with tf.device(tf.train.replica_device_setter(worker_device=own, cluster=cluster)):
    step = tf.train.get_or_create_global_step()
    weight = tf.get_variable("w", (), initializer=tf.zeros_initializer())
    optimizer = tf.train.SyncReplicasOptimizer(
        tf.train.GradientDescentOptimizer(0.1), replicas_to_aggregate=2, total_num_replicas=2
    )
    hook = optimizer.make_session_run_hook(index == 0)
    train_op = optimizer.minimize(tf.square(weight - 1.0), global_step=step)
def train(session):
    session.run(train_op)
def sleeps():
    time.sleep(1000)
config = tf.ConfigProto(device_filters=["/job:ps", own])
Session = tf.train.MonitoredTrainingSession
with Session(server.target, index == 0, hooks=[hook], config=config) as session:
    for _ in range(3):
        train(session)
    if index == 1:
        sleeps()
    while True:
        train(session)
"""
LATE_IN_JAX = """
import time
import jax
from jax.experimental import multihost_utils
jax.distributed.initialize()
def late():
    time.sleep(1000)
def collective():
    multihost_utils.sync_global_devices("here")
if jax.process_index() == 1:
    late()
collective()
"""


def functions(run_id: str) -> dict[str, list[str]]:
    """The functions of each task, the innermost first."""
    made = json.loads(run("stacks", run_id, "--json").stdout or "{}")
    return {
        task: [frame["function"] for frame in group["frames"]]
        for group in made.get("groups", ())
        for task in group["tasks"]
    }


def wait_in(run_id: str, **where: str) -> dict[str, list[str]]:
    """Waits until each task stands in a function, or in one that this has called."""
    names = {name.replace("_", ":"): function for name, function in where.items()}
    found: dict[str, list[str]] = {}

    def there() -> bool:
        found.clear()
        found.update(functions(run_id))
        return all(function in found.get(task, ()) for task, function in names.items())

    wait_until(there, str(names))
    return found


def test_a_worker_that_waits_for_its_ps(tmp_path: Path) -> None:
    """TensorFlow's `CreateSession still waiting for response from worker`: the line of the user's
    own code is known, in C code of TensorFlow."""
    (tmp_path / "waits.py").write_text(WAITS_FOR_PS)
    text = """
name = "waits"
[jobs.ps]
tasks = ["localhost:auto"]
command = ["sleep", "1000"]
ready = "started"
[jobs.worker]
tasks = ["localhost:auto"]
command = ["{python}", "waits.py", "{ps_hosts}", "{worker_hosts}"]
ready = "started"
[run]
grace = 1
env = { TF_CPP_MIN_LOG_LEVEL = "0" }
"""
    with Up("up", str(write(tmp_path, text)), "--json") as up:
        up.state("worker:0", "ready")
        assert up.log("worker:0", "CreateSession still waiting for response from worker")
        found = wait_in(up.run_id, worker_0="train")
        assert "sleep sleeps in hrtimer_nanosleep" in found["ps:0"]
        lines = run("stacks", up.run_id).stdout
        assert "train waits.py:11" in lines
        up.press_ctrl_c()
        assert up.wait() == 130


@pytest.mark.soak
def test_a_synchronous_worker_that_sleeps(tmp_path: Path) -> None:
    """`SyncReplicasOptimizer`: one worker waits for the token that the other one's gradient would
    bring; the ps serves."""
    (tmp_path / "sync.py").write_text(SYNC_REPLICAS)
    text = cluster_text(
        {"ps": 1, "worker": 2},
        "sync",
        command=["{python}", "sync.py", "{job}", "{index}", "{ps_hosts}", "{worker_hosts}"],
        grace=1,
    )
    with Up("up", str(write(tmp_path, text)), "--json") as up:
        up.state("worker:1", "ready")
        found = wait_in(up.run_id, worker_1="sleeps", worker_0="train", ps_0="serve")
        assert found["worker:1"][0] == "sleeps"
        up.press_ctrl_c()
        assert up.wait() == 130


@pytest.mark.soak
def test_a_rank_of_jax_that_is_late(tmp_path: Path, testbed: Testbed, tfmux_home: Path) -> None:
    """Over two SSH hosts: rank 0 waits in the collective, in C code of XLA."""
    if importlib.util.find_spec("jax") is None:
        pytest.skip("jax is not installed: pip install jax, or make .venv/ready")
    testbed.give_access(tfmux_home)
    (tmp_path / "late.py").write_text(LATE_IN_JAX)
    text = cluster_text(
        {"worker": {"tasks": "tf1 tf3", "command": ["{python}", "late.py"]}},
        "late",
        testbed.hosts_toml(),
        command=None,
        framework="jax",
        grace=1,
    )
    with Up("up", str(write(tmp_path, text)), "--json") as up:
        up.state("worker:1", "ready")
        found = wait_in(up.run_id, worker_0="collective", worker_1="late")
        assert found["worker:1"] == ["late", "<module>"]
        up.press_ctrl_c()
        assert up.wait() == 130


RAISES_IN_JAX = """
import time
import jax
jax.distributed.initialize()
import jax.numpy as jnp
from jax.experimental import multihost_utils
for step in range(1000):
    if jax.process_index() == 1 and step == 5:
        raise ValueError("bad sample in shard 17")
    multihost_utils.process_allgather(jnp.ones(1))
    print(f"step {step} loss {1 / (step + 1):.3f}", flush=True)
    time.sleep(0.1)
"""


@pytest.mark.soak
def test_a_rank_of_jax_that_has_raised_ends_the_run(tmp_path: Path) -> None:
    """Given a rank that raises and waits for all others in the barrier of its exit, while they wait
    for it in a collective, when it has been silent for `finish_timeout`, then the run ends for its
    exception."""
    if importlib.util.find_spec("jax") is None:
        pytest.skip("jax is not installed: pip install jax, or make .venv/ready")
    (tmp_path / "raises.py").write_text(RAISES_IN_JAX)
    text = cluster_text(
        {"worker": 3},
        command=["{python}", "raises.py"],
        framework="jax",
        finish_timeout=15,
        grace=1,
    )
    with Up("up", str(write(tmp_path, text)), "--json") as up:
        assert up.wait() == 1, up.transcript()
        end = up.of("run")[-1]
        assert end["first_failure"]["task"] == "worker:1"
        assert end["first_failure"]["how"].endswith(", and hangs in its exit")
        assert (end["verdict"]["tasks"], end["verdict"]["kind"]) == (["worker:1"], "raised")
