"""Sessions of a cluster under `tf1`: waiting for the chief's variables, and mistyped flags."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.ports import free_ports
from tests.support.tf1_scripts import tf1

WAITS = """
import threading
import time
import tensorflow as tf

cluster = tf.train.ClusterSpec({"worker": ["localhost:PORT0", "localhost:PORT1"]})
first = tf.train.Server(cluster, job_name="worker", task_index=0)
second = tf.train.Server(cluster, job_name="worker", task_index=1)
with tf.device("/job:worker/task:0"):
    w = tf.Variable(1.0, name="w")
    step = tf.train.get_or_create_global_step()
    init = tf.global_variables_initializer()
chief = tf.Session(first.target)
threading.Timer(5, lambda: chief.run(init)).start()
began = time.time()
with tf.train.MonitoredTrainingSession(second.target, is_chief=False) as session:
    print("has", session.run(w))
manager = tf.train.SessionManager(recovery_wait_secs=7)
print("default", tf.train.SessionManager()._recovery_wait_secs, manager._recovery_wait_secs)
print("supervisor", tf.train.Supervisor(is_chief=False, graph=tf.Graph())._recovery_wait_secs)
"""


def test_a_worker_looks_every_second_and_says_that_it_waits(tmp_path: Path) -> None:
    """The chief initialises five seconds later: the worker says once that it waits, and then has
    the values; what a program asks for itself holds."""
    script = WAITS
    for number, port in enumerate(free_ports(2)):
        script = script.replace(f"PORT{number}", str(port))
    (tmp_path / "waits.py").write_text(script)
    done = tf1(tmp_path, "waits.py")
    assert done.stdout.splitlines() == [
        "tf1: this program waits for the chief's variables",
        "has 1.0",
        "default 1 7",
        "supervisor 1",
    ], done.stderr


SERVER = """
import sys
import tensorflow as tf

FLAGS = tf.app.flags.FLAGS
tf.app.flags.DEFINE_string("job", "worker", "")
tf.app.flags.DEFINE_integer("task_id", 0, "")
tf.app.flags.DEFINE_boolean("sync", False, "")
CLUSTER = {"worker": ["localhost:PORT0", "localhost:PORT1"], "local": ["localhost:PORT1"]}

def main(_):
    server = tf.train.Server(CLUSTER, job_name=FLAGS.job, task_index=FLAGS.task_id)
    print("started", server.target.partition(":")[0])

try:
    tf.app.run()
except Exception as error:
    print(error)
"""
REFUSED = "trainer: worker:1 runs as worker:0: the program "


@pytest.mark.parametrize(
    ("task", "words", "said"),
    [
        (
            "worker:1",
            ["--taske_id=1", "--nosync"],
            f"{REFUSED}does not know --taske_id",
        ),
        ("worker:1", ["--sync"], f"{REFUSED}starts the server of task 0"),
        ("worker:1", ["--task_id=1"], ""),
        ("worker:0", ["--taske_id=0"], ""),
        ("main:1", ["--taske_id=1"], ""),
        ("local:1", ["--job=local"], ""),
        ("worker:7", [], ""),
    ],
)
def test_a_program_that_is_another_task_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task: str, words: list[str], said: str
) -> None:
    """Where the task that was started is in its cluster, too; a program may have another one. It
    fails also where the program catches exceptions, as one of the tutorials' does."""
    script, places = SERVER, [f"localhost:{port}" for port in free_ports(2)]
    for number, place in enumerate(places):
        script = script.replace(f"localhost:PORT{number}", place)
    (tmp_path / "server.py").write_text(script)
    monkeypatch.setenv("TFMUX_TASK", f"mnist-1/{task}/1;")
    spec = {"worker": places, "local": places[1:], "main": places}
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": spec}))
    done = tf1(tmp_path, "server.py", *words)
    assert (done.returncode, done.stdout) == ((1, "") if said else (0, "started grpc\n")), done
    assert said in done.stderr


def test_a_program_with_a_cluster_of_its_own_may_be_any_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that forks a ps and its workers, in the notebooks that teach it: each is another task
    than the one that was started."""
    places = [f"localhost:{port}" for port in free_ports(4)]
    script = SERVER.replace("localhost:PORT0", places[0]).replace("localhost:PORT1", places[1])
    (tmp_path / "server.py").write_text(script)
    monkeypatch.setenv("TFMUX_TASK", "mnist-1/worker:0/1;")
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": {"worker": places[2:]}}))
    done = tf1(tmp_path, "server.py", "--task_id=1")
    assert (done.returncode, done.stdout) == (0, "started grpc\n"), done.stderr


TIMEOUT = """
import tensorflow as tf

cluster = tf.train.ClusterSpec({"ps": ["localhost:PORT0"], "worker": ["localhost:PORT1"]})
ps = tf.train.Server(cluster, job_name="ps", task_index=0)
worker = tf.train.Server(cluster, job_name="worker", task_index=0)
config = tf.ConfigProto(operation_timeout_in_ms=400)
with tf.device("/job:ps/task:0"):
    full = tf.FIFOQueue(1, tf.float32, name="full")
    empty = tf.FIFOQueue(1, tf.float32, name="empty")
    put = full.enqueue(1.0, name="put")
    got = empty.dequeue(name="got")
    fed = tf.identity(got, name="fed")
with tf.device("/job:worker/task:0"):
    batch = tf.FIFOQueue(1, tf.float32, name="batches").dequeue(name="batch")
    both = tf.add(fed, batch, name="both")
    plain = tf.add(fed, 1.0)

def call(session, what, feeds=None):
    try:
        print(session.run(what, feeds))
    except tf.errors.DeadlineExceededError as error:
        print(error.message.splitlines()[-1])

with tf.Session(worker.target, config=config) as session:
    session.run(put)
    call(session, put)
    call(session, [got])
    call(session, both)
    call(session, both, {fed: 1.0})
    call(session, plain, {fed: 1.0})
tf.reset_default_graph()
with tf.Session(config=config) as session:
    call(session, tf.FIFOQueue(1, tf.float32).dequeue())
"""


def test_a_call_that_takes_too_long_says_where_its_operations_are(tmp_path: Path) -> None:
    """And which of them can wait; nothing of what it does not run, nor of a session without
    servers."""
    script = TIMEOUT
    for number, port in enumerate(free_ports(2)):
        script = script.replace(f"PORT{number}", str(port))
    (tmp_path / "late.py").write_text(script)
    done = tf1(tmp_path, "late.py")
    late = "Operation timed out."
    both = "batch on worker:0, got on ps:0"
    assert done.stdout.splitlines() == [
        f"{late} It had operations on ps:0; what can wait: put on ps:0",
        f"{late} It had operations on ps:0; what can wait: got on ps:0",
        f"{late} It had operations on ps:0, worker:0; what can wait: {both}",
        f"{late} It had operations on worker:0; what can wait: batch on worker:0",
        "2.0",
        "Timed out waiting for notification",
    ], done.stderr
