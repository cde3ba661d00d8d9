"""TensorFlow 2's own strategies, with real processes."""

from __future__ import annotations

import pathlib
import re
import signal
from collections.abc import Iterator

import pytest

from tests.support.budgets import soak
from tests.support.lazily import checkpoint
from tests.support.trainer_tasks import ACCURATE, STARTED, STEPS, Cluster, Tasks, listens


@pytest.fixture(autouse=True)
def scratch(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Tasks that train keep no generated code in /tmp, where a kill would leave it."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    yield
    assert not list(tmp_path.glob("__autograph*"))


@pytest.mark.soak
def test_ps_strategy_survives_a_killed_worker(
    tasks: Tasks, tmp_path: pathlib.Path, digits_directory: str | None
) -> None:
    """A coordinator goes on when a worker is killed, takes it back, and reaches 0.95.

    Each worker computes on two logical devices; at the end they leave by themselves. The learning
    rate is not near that which stale gradients make unstable: at 0.4, asynchronous training on few
    digits ends anywhere from 0.6 on.
    """
    data = [f"--data={digits_directory}"] if digits_directory else []
    flags = ("--steps=2000", "--log-every=50", "--devices=2", "--batch=50", *data)
    cluster = Cluster(tasks, "ps-strategy", *flags, ps=1, chief=1, worker=2)
    chief, ps = cluster.start("chief"), cluster.start("ps")
    chief.until(lambda _: listens(cluster.spec["chief"][0]))  # a launcher starts workers after it
    first, second = cluster.start("worker", 0), cluster.start("worker", 1)
    chief.says("After 100 training")
    assert not list(tmp_path.glob("__autograph*"))
    second.signal(signal.SIGKILL)
    second.wait()
    before = chief.steps[-1]
    chief.until(lambda _: chief.steps[-1] >= before + 100)
    again = cluster.start("worker", 1)
    again.says("listens on")
    assert chief.wait() == 0
    assert chief.accuracy >= 0.95
    assert "steps were lost" not in chief.text
    assert [first.wait(), again.wait()] == [0, 0]
    assert ps.wait() == 0


@pytest.mark.prove
def test_all_reduce_saves_on_term_and_goes_on(
    tasks: Tasks, tmp_path: pathlib.Path, digits: list[str]
) -> None:
    """TERM to all: they stop at one step and the chief saves; restarted, all start from there.

    The weights that a restart began with are the saved ones on every worker: they learn. Each
    worker computes on two logical devices.
    """
    where = ("--grace=600", f"--logdir={tmp_path / 'logdir'}", *digits)
    flags = ("--log-every=20", "--devices=2", "--batch=25", *where)
    cluster = Cluster(tasks, "all-reduce", *flags, worker=2)
    workers = [cluster.start("worker", index, "--steps=100000") for index in range(2)]
    for worker in workers:
        worker.says("After 40 training")
    assert not list(tmp_path.glob("__autograph*"))
    for worker in workers:
        worker.signal(signal.SIGTERM)
    assert [worker.wait() for worker in workers] == [143, 143]
    saved = max(int(path.stem.rpartition("-")[2]) for path in tmp_path.glob("logdir/*.index"))
    assert saved >= workers[0].steps[-1] >= 40
    assert checkpoint.read(str(tmp_path / f"logdir/model.ckpt-{saved}")) == ("test-run", saved)
    steps = f"--steps={saved + STEPS}"
    workers = [cluster.start_by_tf_config("worker", index, steps) for index in range(2)]
    assert [worker.wait() for worker in workers] == [0, 0]
    for worker in workers:
        started = STARTED.search(worker.text)
        assert started and int(started[1]) == saved
        assert "global steps of 100 examples" in worker.text  # 25 a device, 2 devices, 2 workers
        assert re.search(r"worker:\d computes on \w+:0", worker.text)
    assert workers[0].accuracy >= ACCURATE


def test_clusters_of_the_wrong_shape(tasks: Tasks) -> None:
    """`ps-strategy` needs a chief, `all-reduce` has no ps: usage errors of one line."""
    for mode, message in (
        ("ps-strategy", "the cluster has no chief task"),
        ("all-reduce", "no ps"),
    ):
        worker = Cluster(tasks, mode, ps=1, worker=1).start("worker")
        assert worker.wait() == 2
        assert message in worker.text and len(worker.text.splitlines()) == 1


@pytest.mark.parametrize(
    ("gpus", "devices", "visible", "logical"),
    [soak(4, 1, 1, 0), (4, 2, 2, 0), (1, 2, 1, 0), (0, 2, None, 2)],
)
def test_devices_of_all_reduce(
    monkeypatch: pytest.MonkeyPatch, gpus: int, devices: int, visible: int | None, logical: int
) -> None:
    """A worker sees as many GPUs as it uses, fewer in turn; where there is none, CPU devices."""
    import tensorflow as tf

    from trainer import all_reduce, flags, role

    seen: dict[str, int] = {}
    monkeypatch.setattr(tf.config.threading, "set_intra_op_parallelism_threads", lambda _: None)
    monkeypatch.setattr(
        tf.config, "list_physical_devices", lambda kind: [kind] * (gpus if kind == "GPU" else 1)
    )
    monkeypatch.setattr(
        tf.config, "set_visible_devices", lambda some, kind: seen.update({kind: len(some)})
    )
    monkeypatch.setattr(
        tf.config,
        "set_logical_device_configuration",
        lambda _, parts: seen.update(logical=len(parts)),
    )
    words = ["--job_name=worker", "--task_index=0", "--worker_hosts=a:1,b:1"]
    options = flags.parse(["all-reduce", f"--devices={devices}", *words])[1]
    me = role.resolve(options, {}, ("worker",))
    assert all_reduce.set_devices(me, options) == (visible or 0)
    assert seen.get("GPU") == visible
    assert seen.get("logical", 0) == logical
