"""The classic program, with real processes."""

from __future__ import annotations

import pathlib
import signal
import time

import pytest

from tests.support.budgets import soon, variants
from tests.support.digits import example_directory
from tests.support.lazily import tf
from tests.support.trainer_tasks import Cluster, Tasks
from trainer import flags
from trainer.exceptions import UsageError


@variants("flags", [(), ("--sync",)], ids=["asynchronous", "synchronous"], test=1)
def test_classic(
    tasks: Tasks, tmp_path: pathlib.Path, digits_directory: str | None, flags: tuple[str, ...]
) -> None:
    """The chief ends at the last step, and says an accuracy; TensorFlow does the rest.

    A second worker ends, too, where it waits for nobody. With one token queue for all it may stay:
    a fast worker takes its token, and after the end nobody makes another.
    """
    data = [f"--data={digits_directory}"] if digits_directory else []
    every = ("--steps=200", f"--logdir={tmp_path / 'logdir'}", *data)
    cluster = Cluster(tasks, "classic", *flags, *every, ps=1, worker=2)
    ps, chief = cluster.start("ps"), cluster.start("worker", 0)
    # A worker that finds variables without a value looks again after half a minute.
    chief.until(lambda _: (tmp_path / "logdir" / "checkpoint").exists())
    second = cluster.start_by_tf_config("worker", 1)
    chief.says("^Done: ")
    done = time.monotonic()
    # Closing its session, the chief waits no two minutes for a queue runner that nobody serves.
    assert chief.wait() == 0 and soon(time.monotonic() - done, 100)
    assert "Traceback" not in chief.text
    assert chief.accuracy > 0.9
    assert chief.steps
    assert flags or second.wait() == 0
    ps.signal(signal.SIGTERM)  # `join()` never returns
    assert ps.wait() == -15


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--worker_hosts=b:1,c:1 --job_name=worker", "--task_index is missing"),
        ("--worker_hosts=b:1 --job_name=worker --task_index=1", "worker has 1 task"),
        ("--worker_hosts=b:1 --chief_hosts=c:1 --job_name=chief --task_index=0", "no chief job"),
    ],
)
def test_a_wrong_role(words: str, message: str) -> None:
    """A worker without an index would be the chief, and a chief would be nobody."""
    from trainer import classic

    with pytest.raises(UsageError, match=message):
        classic.run(flags.parse(["classic", "--ps_hosts=a:1", *words.split()])[1])


@pytest.mark.prove
def test_fewer_images_than_a_batch(tasks: Tasks, tmp_path: pathlib.Path) -> None:
    """The learning rate stays a number, and so does the loss."""
    where = f"--data={example_directory(tmp_path / 'data')}"
    cluster = Cluster(tasks, "classic", "--steps=60", where, ps=1, worker=1)
    cluster.start("ps")
    chief = cluster.start("worker")
    assert chief.wait() == 0
    assert len(chief.steps) == 1, chief.text


def test_the_l2_norm_is_of_both_layers() -> None:
    """Half the squares of the weights, not of the biases, as in every other mode."""
    from trainer import classic

    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        _, l2 = classic._network(tf.zeros((1, 784)))
        session.run(tf.compat.v1.global_variables_initializer())
        norm, *weights = session.run([l2, *tf.compat.v1.trainable_variables()])
    w1, _, w2, _ = weights
    assert norm == pytest.approx(((w1**2).sum() + (w2**2).sum()) / 2, rel=1e-4)
