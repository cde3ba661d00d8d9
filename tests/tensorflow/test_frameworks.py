"""Real frameworks that fail or hang: the guilty rank, who waits for whom, and the line that says
what is wrong."""

from __future__ import annotations

import errno
import importlib.util
import json
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support import guilty
from tests.support.budgets import soak
from tests.support.cluster_texts import cluster_text
from tests.support.command import Up, run, write
from tests.support.lazily import tf
from tests.support.patience import PATIENCE, wait_until
from tests.testbed.namespaces import Testbed
from trainer.exceptions import named_task, reason, socket_reason

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


@pytest.mark.prove
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


@pytest.mark.prove
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


@pytest.mark.prove
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


@pytest.mark.prove
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


HERE = ("raises", "slowly", "memory", "killed", "crashes", "leaves", "stopped", "sleeps", "alike")
CHEAP = [("jax", "raises"), ("jax", "leaves"), ("jax", "sleeps")]
DEAR = [(one, how) for one in guilty.FRAMEWORKS for how in HERE if (one, how) not in CHEAP]
HARMLESS = [("async", "leaves"), ("async", "power"), ("async", "network")]
"""Nobody waits for a worker that trains by itself."""


def require(framework: str) -> None:
    if framework in ("jax", "torch") and importlib.util.find_spec(framework) is None:
        pytest.skip(f"{framework} is not installed")


def verdicts(up: Up, told: Any = lambda: None) -> list[dict[str, Any]]:
    """What is said of a run until it ends, or, of one that hangs, until it is known."""
    deadline = time.monotonic() + 2 * PATIENCE
    while up.process.poll() is None:
        assert time.monotonic() < deadline, up.transcript()
        told()
        if any("verdict" in event for event in up.of("run")):
            break
        time.sleep(0.1)
    if any(event["state"] == "running" for event in up.of("run")[-1:]):
        up.press_ctrl_c()
    up.wait()
    return [event["verdict"] for event in up.of("run") if "verdict" in event]


@pytest.mark.prove
@pytest.mark.parametrize(("framework", "how"), [*CHEAP, *(soak(*cell) for cell in DEAR)])
def test_the_guilty_rank_of_a_framework_is_named(tmp_path: Path, framework: str, how: str) -> None:
    """Given four ranks of a framework, when one that is drawn by lot goes wrong, then the run's
    record names it, and at no time another one for sure."""
    require(framework)
    if (framework, how) in HARMLESS:
        pytest.skip("nobody misses it")
    rank = random.randrange(4)
    guilty.copy_programs(tmp_path)
    text = guilty.cluster(framework, how, rank, start={"timeout": PATIENCE})
    with Up("up", str(write(tmp_path, text)), "--json") as up:
        said = verdicts(up)
    wrong = [one for one in said if one["sure"] and not guilty.names(one, how, rank)]
    assert said and not wrong, f"worker:{rank} {how}: {said}\n{up.transcript()}"
    assert guilty.names(said[-1], how, rank), f"worker:{rank} {how}: {said}\n{up.transcript()}"


def steps(up: Up) -> None:
    """Waits until the ranks have a pace: it is known by some lines, one a second of each task."""
    up.wait_for(
        lambda e: e["event"] == "metric" and e["values"].get("step", 0) >= guilty.STEP - 1, "steps"
    )
    wait_until(lambda: len(up.of("metric")) >= 6, "a pace")


@pytest.mark.prove
@pytest.mark.soak
@pytest.mark.parametrize("how", ["killed", "power", "network"])
@pytest.mark.parametrize("framework", guilty.FRAMEWORKS)
def test_a_rank_on_a_host_of_its_own_is_lost(
    testbed: Testbed, tmp_path: Path, tfmux_home: Path, framework: str, how: str
) -> None:
    """Given four ranks on four hosts, when one is killed, its host loses its power, or the host's
    cable is pulled, then the record names that rank."""
    require(framework)
    if (framework, how) in HARMLESS:
        pytest.skip("nobody misses it")
    testbed.give_access(tfmux_home)
    rank = random.randrange(4)
    host = testbed[f"tf{rank + 1}"]
    folder = tmp_path / "job"  # hosts get all of it
    guilty.copy_programs(folder)
    text = guilty.cluster(
        framework, how, rank, "tf1 tf2 tf3 tf4", testbed.hosts_toml(), start={"timeout": PATIENCE}
    )
    with Up("up", str(write(folder, text)), "--json") as up:
        if how != "killed":
            steps(up)
            host.crash() if how == "power" else host.pull()
        said = verdicts(up)
    wrong = [one for one in said if one["sure"] and not guilty.names(one, how, rank)]
    assert said and not wrong, f"worker:{rank} {how}: {said}\n{up.transcript()}"
    assert guilty.names(said[-1], how, rank), f"{how}: {said}\n{up.transcript()}"


@pytest.mark.prove
@pytest.mark.soak
@pytest.mark.parametrize("how", ["KILL", "STOP", "SEGV"])
@pytest.mark.parametrize("framework", ["async", "sync"])
def test_a_parameter_server_is_lost(tmp_path: Path, framework: str, how: str) -> None:
    """Given four workers and a ps, when the ps is killed, crashes or is stopped, then the record
    names it, and at no time a worker for sure."""
    guilty.copy_programs(tmp_path)
    text = guilty.cluster(framework, "none", 0, start={"timeout": PATIENCE})
    with Up("up", str(write(tmp_path, text)), "--json") as up:
        steps(up)
        (pid,) = {e["pid"] for e in up.of("task") if e["task"] == "ps:0" and e.get("pid")}
        os.kill(pid, getattr(signal, f"SIG{how}"))
        said = verdicts(up)
    wrong = [one for one in said if one["sure"] and one["tasks"] != ["ps:0"]]
    assert said and not wrong, f"{said}\n{up.transcript()}"
    assert said[-1]["tasks"] == ["ps:0"], f"{said}\n{up.transcript()}"


@pytest.mark.parametrize(
    ("message", "line"),
    [
        ("socket closed\nAdditional GRPC error information", "socket closed"),
        (
            "Graph execution error:\n\nDetected at node 'a' defined at (most recent call last):\n"
            "    File \"a.py\", line 5, in <module>\nNode: 'a'\n"
            "Detected at node 'a' defined at (most recent call last):\nNode: 'a'\n"
            "From /job:worker/replica:0/task:0:\n/full/a.ckpt; No space left on device\n"
            "\t [[{{node a}}]]\nHint: more",
            "/full/a.ckpt; No space left on device",
        ),
        (
            "Graph execution error:\n\nDetected at node R defined at (most recent call last):\n"
            '  File "x.py", line 10, in _bootstrap\n\n  File "step.py", line 125, in step\n'
            "\nCollective ops is aborted by: Deadline Exceeded\n\t [[{{node R}}]]",
            "Collective ops is aborted by: Deadline Exceeded",
        ),
        ("2 root error(s) found.\n  (0) ABORTED: gone\n  (1) ABORTED: gone", "gone"),
        (
            "{{function_node x}} corrupted record at 7 [Op:IteratorGetNext] name: ",
            "corrupted record at 7",
        ),
    ],
)
def test_the_reason_of_an_error(message: str, line: str) -> None:
    """The reason stands after nodes, tasks and counts, without names of nodes."""
    assert reason(tf.errors.AbortedError(None, None, message)) == line
    assert reason(OSError(28, "No space left on device")) == "No space left on device"
    assert reason(KeyError()) == "KeyError"


LOST = (
    "Graph execution error:\n\nFrom /job:ps/replica:0/task:1:\n=====================\n"
    "failed to connect to all addresses; last error: UNKNOWN: ipv4:10.0.0.1:2222: "
    "Failed to connect to remote host: connect: Connection refused (111)\n"
    "Additional GRPC error information from remote target /job:ps/replica:0/task:1 while calling "
    "/tensorflow.WorkerService/RecvTensor from /job:worker/replica:0/task:0:"
)


def test_the_task_that_an_error_names() -> None:
    """Another task than one's own; what the socket said; never a line of equals signs."""
    error = tf.errors.UnavailableError(None, None, LOST)
    assert named_task(error, ("worker", 0)) == ("ps", 1)
    assert socket_reason(error) == "Connection refused"
    assert "failed to connect" in reason(error)
    plain = tf.errors.UnavailableError(None, None, "=======\nno such thing")
    assert named_task(plain, ("worker", 0)) is None
    assert socket_reason(plain) == "no such thing"
    passed_on = (
        "/job:ps/replica:0/task:1 heard of /job:ps/replica:0/task:0, and told "
        "/job:worker/replica:0/task:0"
    )
    assert named_task(OSError(passed_on), ("worker", 0)) == ("ps", 0)


@pytest.mark.parametrize("number", [errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ETIMEDOUT])
def test_what_the_kernel_says_of_a_connection_is_the_reason(number: int) -> None:
    """gRPC quotes the kernel's words; they are the reason, without the addresses around them."""
    words = os.strerror(number)
    message = LOST.replace("Connection refused (111)", f"{words} ({number})")
    assert socket_reason(tf.errors.UnavailableError(None, None, message)) == words


def test_a_task_that_passed_an_error_on_is_not_blamed() -> None:
    """A ps that was reading from a worker tells of the worker's end."""
    words = (
        "recvmsg:Connection reset by peer\nAdditional GRPC error information from remote target "
        "/job:worker/replica:0/task:1 while calling /tensorflow.WorkerService/RecvTensor:\n"
        "Additional GRPC error information from remote target /job:ps/replica:0/task:0 while "
        "calling /tensorflow.WorkerService/RecvTensor:"
    )
    assert named_task(OSError(words), ("worker", 0)) == ("worker", 1)
