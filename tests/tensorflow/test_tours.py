"""The tours, with real processes: each shows what it says."""

from __future__ import annotations

import re
import signal

import pytest

from tests.support.ports import free_ports
from tests.support.trainer_tasks import Cluster, Task, Tasks


def stops(ps: Task) -> bool:
    """Whether a ps ends by itself, with 0, when its clients are done."""
    return ps.wait() == 0


def test_hello(tasks: Tasks) -> None:
    """One server, one session, one greeting."""
    run = tasks.run("tour", "hello")
    assert run.wait() == 0
    assert "a server listens at grpc://localhost:" in run.text
    assert "Hello, distributed TensorFlow!" in run.text


@pytest.mark.prove
def test_two_tasks(tasks: Tasks) -> None:
    """The first waits for the second; pinned, both clients' operations land on task 0.

    TensorFlow's own log of placements says the same as the trace.
    """
    cluster = Cluster(tasks, "tour two-tasks", local=2)
    loud = {"TF_CPP_MIN_LOG_LEVEL": "0"}
    first = cluster.start_by_tf_config("local", 0, env=loud)
    first.says("local:0 opens a session")
    first.says("CreateSession still waiting for response from worker: /job:local/.*task:1")
    assert "had its answer" not in first.text
    second = cluster.start_by_tf_config("local", 1, env=loud)
    assert [first.wait(), second.wait()] == [0, 0]
    for index, task in enumerate((first, second)):
        traced = re.findall(r"^  product +/job:local/replica:0/task:(\d)", task.text, re.M)
        logged = re.findall(r"^product: \(Mul\): /job:local/replica:0/task:(\d)", task.text, re.M)
        assert traced == logged == [str(index), "0"]
    assert "local:0 has written 42" in first.text
    assert "local:1 reads 42 from it, through its own server" in second.text


@pytest.mark.soak
def test_shared_variable(tasks: Tasks) -> None:
    """A second plain session finds nothing, one on the cluster the first one's count, by name."""
    run = tasks.run("tour", "shared-variable")
    assert run.wait() == 0
    assert re.findall(r"^  the second session's (.*)$", run.text, re.M) == [
        "'counter' has no value",
        "'counter' is 3",
        "'that' has no value",
    ]


@pytest.mark.soak
def test_trace(tasks: Tasks) -> None:
    """Before: all on the worker. Pinned: each variable on its ps, the arithmetic on the worker."""
    cluster = Cluster(tasks, "tour trace", ps=2, worker=2)
    servers = [cluster.start("ps", index) for index in range(2)]
    worker, second = cluster.start("worker", 0), cluster.start("worker", 1)
    assert [worker.wait(), second.wait()] == [0, 0]
    before, after = worker.text.split("2. each variable pinned")
    rows = r"^  (\S+) +/job:(\w+)/replica:0/task:(\d)"
    assert {(job, task) for _, job, task in re.findall(rows, before, re.M)} == {("worker", "0")}
    places = {name: f"{job}:{task}" for name, job, task in re.findall(rows, after, re.M)}
    assert (places["w"], places["b"]) == ("ps:0", "ps:1")
    assert (places["wx"], places["y"]) == ("worker:0", "worker:0")
    theirs = re.findall(rows, second.text.split("3. a second client")[1], re.M)
    places = {name: f"{job}:{task}" for name, job, task in theirs}
    assert (places["w"], places["b"], places["y"]) == ("ps:0", "ps:1", "worker:1")
    assert "y = 11.5" in worker.text and "y = 11.5" in second.text
    assert all(stops(ps) for ps in servers)


@pytest.mark.soak
def test_graphs(tasks: Tasks) -> None:
    """Each client's operation is in its own graph alone; the state is the same for both."""
    cluster = Cluster(tasks, "tour graphs", ps=1, worker=2)
    ps, *workers = (
        cluster.start("ps"),
        cluster.start("worker", 0),
        cluster.start("worker", 1),
    )
    assert [worker.wait() for worker in workers] == [0, 0]
    for worker, mine, other in ((workers[0], "double", "triple"), (workers[1], "triple", "double")):
        assert f"{mine!r} is in my graph" in worker.text
        assert f"{other!r} is not in my graph" in worker.text
    assert "I initialised nothing, and find: 20" in workers[1].text
    assert "I find the state tripled: 60" in workers[0].text
    assert stops(ps)


@pytest.mark.soak
def test_initialise(tasks: Tasks) -> None:
    """The second names what has no value yet, and goes on when the first has initialised it."""
    cluster = Cluster(tasks, "tour initialise", ps=1, worker=2)
    ps, second = cluster.start("ps"), cluster.start("worker", 1)
    second.says("I wait; without a value: weights, bias")
    assert "I go on" not in second.text
    chief = cluster.start("worker", 0)
    assert [chief.wait(), second.wait()] == [0, 0]
    assert "I have initialised the variables" in chief.text
    assert "I go on with weights [1.5 2.5] and bias 0.5" in second.text
    assert stops(ps)


@pytest.mark.soak
def test_data_service(tasks: Tasks) -> None:
    """Two workers of tf.data's service compute what a client reads, each batch once."""
    ports = free_ports(3)
    addresses = [f"localhost:{port}" for port in ports]
    tour, where = ("tour", "data-service"), f"--dispatcher={addresses[0]}"
    dispatcher = tasks.run(*tour, "--part=dispatcher", where, f"--address={addresses[0]}")
    dispatcher.says("dispatcher listens on")
    workers = [tasks.run(*tour, "--part=worker", where, f"--address={a}") for a in addresses[1:]]
    for worker in workers:
        worker.says("worker listens on")
    client = tasks.run(*tour, "--part=client", where)
    assert client.wait() == 0
    # Each worker may end with a batch that is not full.
    assert re.match(r"read 2\d batches, each once", client.text.splitlines()[-1])
    for server in (*workers, dispatcher):
        server.signal(signal.SIGTERM)
        assert server.wait() == 0


def test_counter(tasks: Tasks) -> None:
    """The first worker prints the counts: increments that read first lose updates, locked ones
    none; each worker shows how the value grows."""
    cluster = Cluster(tasks, "tour counter", ps=1, worker=2)
    ps, *workers = (
        cluster.start("ps"),
        cluster.start("worker", 0),
        cluster.start("worker", 1),
    )
    assert [worker.wait() for worker in workers] == [0, 0]
    rows = re.findall(r"the counter is (\d+) of (\d+), (\d+) updates lost", workers[0].text)
    turn, free, locked = [tuple(map(int, row)) for row in rows]
    assert turn == (1, 2, 1)
    # How many are lost is chance; at most all that one worker did.
    assert free[0] + free[2] == free[1] == 200 and free[0] <= 200
    assert locked == (200, 200, 0)
    for index, worker in enumerate(workers):
        grows = re.findall(rf"worker:{index}, locked: my increment \d+ made it (\d+)", worker.text)
        assert len(grows) == 4 and sorted(map(int, grows)) == list(map(int, grows))
    assert stops(ps)


@pytest.mark.soak
def test_keras_fit(tasks: Tasks) -> None:
    """Keras 3's `fit` fails on two workers, with a hint; the loop trains both to the same loss."""
    cluster = Cluster(tasks, "tour keras-fit", "--batch=25", worker=2)
    workers = [cluster.start_by_tf_config("worker", index) for index in range(2)]
    assert [worker.wait() for worker in workers] == [0, 0]
    for worker in workers:
        assert "pip install tf_keras" in worker.text
        assert "(Attempt to convert a value (PerReplica …)" in worker.text
        assert worker.accuracy > 0.9
    first, second = (re.findall(r"^Epoch .* - loss: (\S+)$", w.text, re.M) for w in workers)
    assert first == second
    assert float(first[-1]) < float(first[0])


@pytest.mark.soak
def test_keras_fit_with_legacy_keras(tasks: Tasks) -> None:
    """What the hint advises: with `tf_keras` the same program trains both workers by `fit`."""
    cluster = Cluster(tasks, "tour keras-fit", worker=2)
    legacy = {"TF_USE_LEGACY_KERAS": "1"}
    workers = [cluster.start_by_tf_config("worker", index, env=legacy) for index in range(2)]
    assert [worker.wait() for worker in workers] == [0, 0]
    for worker in workers:
        assert "tf_keras on 2 replicas, here on " in worker.text
        assert "trained by fit" in worker.text
        assert "pip install" not in worker.text
        assert worker.accuracy > 0.9
    first, second = (re.findall(r"^100/100 - .*loss: (\S+)", w.text, re.M) for w in workers)
    assert first == second and len(first) == 3
    assert float(first[-1]) < float(first[0])


def test_keras_fit_needs_a_cluster(tasks: Tasks) -> None:
    """Without TF_CONFIG it says what is missing."""
    run = tasks.run("tour", "keras-fit")
    assert run.wait() == 2
    assert "TF_CONFIG is not set" in run.text
