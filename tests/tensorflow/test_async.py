"""Asynchronous training with real processes: the classic program, its servers, and where each
weight stands."""

from __future__ import annotations

import pathlib
import re
import signal
import socket
import time

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.support.budgets import soak, soon, variants
from tests.support.digits import example_directory
from tests.support.lazily import (
    checkpoint,
    convolution,
    downpour,
    inputs,
    model,
    parameters,
    server,
    tf,
)
from tests.support.trainer_tasks import (
    ACCURATE,
    DEADLINE,
    PROGRESS,
    STARTED,
    STEPS,
    Cluster,
    Task,
    Tasks,
)
from trainer import data, flags, role
from trainer.exceptions import UsageError
from trainer.flags import parse
from trainer.modes import Context
from trainer.role import Role
from trainer.stop import Stop

DONE = re.compile(r"^Done: (\d+) training steps \((\d+) global", re.MULTILINE)


def done(task: Task) -> tuple[int, int]:
    """Local and global steps of a task's last line."""
    match = DONE.search(task.text)
    assert match, task.text
    return int(match[1]), int(match[2])


def test_three_ps_and_two_workers_on_real_digits(
    tasks: Tasks, tmp_path: pathlib.Path, digits: list[str]
) -> None:
    """Started in the wrong order, roles from TF_CONFIG: all train to the limit, and learn.

    The chief's log ends with the test accuracy, its checkpoint holds the last step and the run. A
    ps leaves by itself and with 0 when both workers are done; told to `--stay`, or under tfmux, on
    TERM alone, which it says.
    """
    flags = (f"--steps={STEPS}", f"--logdir={tmp_path / 'logdir'}")
    cluster = Cluster(tasks, "async", *flags, *digits, ps=3, worker=2)
    second = cluster.start_by_tf_config("worker", 1)
    chief = cluster.start_by_tf_config("worker", 0)
    plain = cluster.start_by_tf_config("ps", 0)
    staying = cluster.start_by_tf_config("ps", 1, "--stay")
    launched = cluster.start_by_tf_config("ps", 2, env={"TFMUX_TASK": "run/ps:2/1;"})
    assert [chief.wait(), second.wait()] == [0, 0]
    assert chief.accuracy >= ACCURATE
    assert "test accuracy" not in second.text
    (chief_steps, end), (second_steps, second_end) = (done(task) for task in (chief, second))
    steps = max(end, second_end)
    assert STEPS <= steps <= STEPS + 2
    assert chief_steps + second_steps == steps
    run, saved = checkpoint.read(newest(tmp_path / "logdir")[0])
    assert run == "test-run" and STEPS <= saved <= STEPS + 2
    assert plain.wait() == 0
    assert plain.text.endswith("ps:0 exits: its workers have ended\n")
    assert "stays until" not in plain.text
    for ps in (staying, launched):
        ps.signal(signal.SIGTERM)
        assert ps.wait() == 0
        assert re.search(r"stays until its workers have ended\n.*its workers have ended$", ps.text)


@pytest.mark.prove
def test_term_to_all_at_once_saves_and_resumes(tasks: Tasks, tmp_path: pathlib.Path) -> None:
    """TERM to all tasks at once: the chief still saves, the ps leaves last; the run goes on later.

    Another run is refused in the same directory, unless it names the one to resume.
    """
    logdir = tmp_path / "logdir"
    flags = ("--steps=100000", "--log-every=20", "--grace=600", f"--logdir={logdir}")
    cluster = Cluster(tasks, "async", *flags, ps=1, worker=2)
    everyone = [cluster.start("ps"), cluster.start("worker", 0), cluster.start("worker", 1)]
    everyone[1].until(lambda _: len(everyone[1].steps) >= 2)
    first_line = PROGRESS.search(everyone[2].says("After 20 training"))
    assert first_line and int(first_line["local"]) == 20 and int(first_line["step"]) >= 20
    for task in everyone:
        task.signal(signal.SIGTERM)
    assert [task.wait() for task in everyone] == [0, 143, 143]
    assert "its workers have ended" in everyone[0].text
    index = max(logdir.glob("*.index"), key=lambda path: int(path.stem.rpartition("-")[2]))
    run, saved = checkpoint.read(str(index.with_suffix("")))
    assert run == "test-run" and saved >= everyone[1].steps[-1]

    other = Cluster(tasks, "async", *flags, run_id="other-run", ps=1, worker=1)
    refused = other.start("worker")
    assert refused.wait() == 1
    last = refused.complaint
    assert f"written by run test-run at global step {saved}" in last
    assert "--resume test-run" in last

    other.start("ps")
    resumed = other.start("worker", env={"TFMUX_RESUME": "test-run"})
    started = STARTED.search(resumed.says("starts at global step"))
    assert started and int(started[1]) == saved


@pytest.mark.soak
def test_killed_tasks_go_on_after_a_restart(tasks: Tasks, tmp_path: pathlib.Path) -> None:
    """Killed workers go on from the shared state while the ps lives, else from the checkpoint.

    The chief says which of the two, and the global step never falls by more than was unsaved.
    """
    logdir = tmp_path / "logdir"
    flags = ("--steps=100000", "--log-every=20", f"--logdir={logdir}", "--save-secs=0.5")
    cluster = Cluster(tasks, "async", *flags, ps=1, worker=2)
    ps, *workers = (
        cluster.start("ps"),
        cluster.start("worker", 0),
        cluster.start("worker", 1),
    )
    for worker in workers:
        worker.says("After 20 training")

    for worker in workers:
        worker.signal(signal.SIGKILL)
        worker.wait()
    before = max(step for worker in workers for step in worker.steps)
    _, saved = newest(logdir)
    workers = [cluster.start("worker", index) for index in range(2)]
    for worker in workers:
        started = STARTED.search(worker.says("After 20 training"))
        assert started and int(started[1]) >= before
    went_on = re.search(
        r"continues from the variables on the ps at step (\d+); the last checkpoint is of step "
        r"(\d+)",
        workers[0].text,
    )
    assert went_on and int(went_on[1]) >= before and int(went_on[2]) == saved
    assert "restored" not in workers[0].text

    _, saved = newest(logdir)
    ps.signal(signal.SIGKILL)
    ps.wait()
    ps = cluster.start("ps")
    said = workers[0].says(r"lost ps:0 \(localhost(.|\n)*starts at global step \d+\n(.|\n)*After")
    restored = re.search(r"restored step (\d+) from ", said)
    assert restored and int(restored[1]) == int(STARTED.findall(said)[-1]) >= saved

    for task in (ps, workers[0]):
        task.signal(signal.SIGKILL)
        task.wait()
    path, saved = newest(logdir)
    cluster.start("ps")
    chief = cluster.start("worker", 0)
    said = chief.says("starts at global step")
    assert f"restored step {saved} from {path}\n" in said
    assert f"starts at global step {saved}\n" in said


def newest(logdir: pathlib.Path) -> tuple[str, int]:
    """The newest whole checkpoint and the step in it.

    Its name may be of an earlier step: while the chief saves, another worker trains.
    """
    path = tf.train.latest_checkpoint(str(logdir))
    assert path
    return path, checkpoint.read(path)[1]


@pytest.mark.prove
def test_a_busy_port_is_named(tasks: Tasks) -> None:
    """A port in use is one line with host, port and reason, and exit status 1."""
    cluster = Cluster(tasks, "async", ps=1, worker=1)
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", int(cluster.spec["ps"][0].rpartition(":")[2])))
        taken.listen()
        ps = cluster.start("ps")
        assert ps.wait() == 1
    expected = f"cannot listen on {cluster.spec['ps'][0]}: Address already in use"
    assert ps.text == f"trainer: ps:0: {expected}\n"


def test_term_while_waiting_for_the_ps(tasks: Tasks) -> None:
    """A worker whose ps never comes says so, with address and reason, and ends on TERM at once."""
    cluster = Cluster(tasks, "async", ps=1, worker=1)
    worker = cluster.start("worker")
    address = re.escape(cluster.spec["ps"][0])
    worker.says(rf"^worker:0 waits for ps:0 \({address}\): Connection refused$")
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 143


def test_downpour(tasks: Tasks, digits: list[str]) -> None:
    """Fetching and pushing every 8 steps learns too, and no step is lost or counted twice."""
    rarely = ("--fetch-every=8", "--push-every=8")
    cluster = Cluster(tasks, "async", f"--steps={STEPS}", *rarely, *digits, ps=1, worker=2)
    cluster.start("ps")
    workers = [cluster.start("worker", index) for index in range(2)]
    assert [worker.wait() for worker in workers] == [0, 0]
    assert workers[0].accuracy >= ACCURATE
    (first, end), (second, second_end) = (done(worker) for worker in workers)
    assert first + second == max(end, second_end)


@variants(("fetch", "push"), [(2, 3), soak(8, 4)], test=1)
def test_downpour_of_one_worker_is_plain_descent(
    tasks: Tasks, tmp_path: pathlib.Path, fetch: int, push: int
) -> None:
    """Alone, a worker fetches what it has pushed and keeps what it has not: the weights are those
    of descent step by step, with two devices, and with a last step between two exchanges."""
    logdir = tmp_path / "logdir"
    flags = ("--steps=21", "--batch=32", "--seed=5", "--devices=2", f"--logdir={logdir}")
    rarely = (f"--fetch-every={fetch}", f"--push-every={push}")
    cluster = Cluster(tasks, "async", *flags, *rarely, ps=1, worker=1)
    cluster.start("ps")
    assert cluster.start("worker").wait() == 0

    dataset = data.load(None)
    batches = iter(inputs.pipeline(dataset, 64, 5))
    schedule = model.Schedule(0.2, 0.99, len(dataset.train) / 64)
    weights = [tf.Variable(value) for value in model.MLP.initial(5)]
    for step in range(21):
        with tf.GradientTape() as tape:
            halves = zip(*(np.split(part.numpy(), 2) for part in next(batches)), strict=True)
            losses = [model.MLP.loss(weights, images, labels, 1e-4) for images, labels in halves]
            loss = tf.add_n(losses) / 2
        for weight, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
            weight.assign_sub(schedule(step) * gradient)
    saved = tf.train.load_checkpoint(str(logdir))
    assert saved.get_tensor("global_step") == 21
    for name, weight in zip(model.MLP.names, weights, strict=True):
        np.testing.assert_allclose(saved.get_tensor(name), weight.numpy(), atol=1e-4)


@pytest.mark.soak
def test_a_slow_worker_of_downpour(tasks: Tasks) -> None:
    """The worker sleeps for each step of a call of many."""
    flags = ("--steps=24", "--fetch-every=8", "--push-every=8", "--slow-worker=0")
    cluster = Cluster(tasks, "async", *flags, "--slow-secs=0.2", ps=1, worker=1)
    cluster.start("ps")
    worker = cluster.start("worker")
    assert worker.wait() == 0
    took = re.search(r"^Done: .* in ([\d.]+) s, ", worker.text, re.MULTILINE)
    assert took and float(took[1]) >= 4.7


def test_exchanges_that_never_coincide() -> None:
    """A call ends where a fetch and a push come together; one of thousands of steps is refused."""
    words = ["async", "--fetch-every=99", "--push-every=100"]
    context = Context(role.LOCAL, parse(words)[1], None, Stop(1.0))
    with pytest.raises(UsageError, match="--fetch-every=99 and --push-every=100"):
        downpour.DownpourWorker(context)


@pytest.mark.soak
def test_records_and_the_graph(tasks: Tasks, tmp_path: pathlib.Path) -> None:
    """Workers read TFRecord shards while they train, each on two logical devices, a batch for each;
    TensorBoard gets the graph with devices."""
    records, logdir = tmp_path / "records", tmp_path / "logdir"
    assert tasks.run("convert", f"--to={records}").wait() == 0
    flags = ("--steps=800", "--devices=2", f"--data={records}", f"--logdir={logdir}")
    cluster = Cluster(tasks, "async", *flags, ps=1, worker=2)
    cluster.start("ps")
    workers = [cluster.start("worker", index) for index in range(2)]
    assert [worker.wait() for worker in workers] == [0, 0]
    assert workers[0].accuracy >= 0.95
    events = EventAccumulator(str(logdir))
    events.Reload()
    devices = {node.device for node in events.Graph().node}
    assert any("/job:ps" in device for device in devices)
    assert {f"/job:worker/task:0/device:CPU:{number}" for number in range(2)} <= devices
    assert "staleness" in events.Tags()["scalars"]


@pytest.mark.soak
def test_the_loss_falls_as_fast_in_calls_of_many_steps(tasks: Tasks) -> None:
    """Ten steps a call are the same training as one: the same losses, alone and with one seed."""
    curves = []
    for count in (1, 10):
        flags = (
            "--steps=300",
            "--log-every=10",
            f"--steps-per-call={count}",
            "--average-decay=0.9",
        )
        cluster = Cluster(tasks, "async", *flags, ps=1, worker=1)
        cluster.start("ps")
        worker = cluster.start("worker")
        assert worker.wait() == 0
        curves.append([float(match["loss"]) for match in PROGRESS.finditer(worker.text)])
    assert len(curves[0]) == 30
    np.testing.assert_allclose(curves[0], curves[1], atol=2e-3)


def test_placement(tasks: Tasks) -> None:
    """`placement` shows where operations ran, and what an impossible placement says."""
    run = tasks.run("placement", "--devices=2")
    assert run.wait() == 0
    ran = re.findall(r"^  product +\S+(device:\S+)$", run.text, re.MULTILINE)
    assert ran == ["device:CPU:0", "device:CPU:1", "device:CPU:0"]
    assert "Cannot assign a device for operation product" in run.text
    assert re.findall(r"the product is (.*)", run.text) == ["[[22.0, 28.0], [49.0, 64.0]]"] * 3
    assert "No OpKernel was registered" in run.text.splitlines()[-1]


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


def stopped_ps(tasks: Tasks) -> tuple[Task, Role]:
    """A ps that accepts connections and does not answer, and its only worker's role."""
    cluster = Cluster(tasks, "async", ps=1, worker=1)
    ps = cluster.start("ps")
    ps.says("listens on")
    ps.signal(signal.SIGSTOP)
    return ps, Role({job: tuple(hosts) for job, hosts in cluster.spec.items()}, "worker", 0)


@pytest.mark.soak
def test_a_slow_ps_is_told_that_its_worker_is_done(
    tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ps that does not answer for longer than one attempt takes is told, and ends."""
    ps, me = stopped_ps(tasks)
    tell = server._tell_done

    def tell_and_wake(role: Role, task: tuple[str, int]) -> None:
        try:
            tell(role, task)
        except tf.errors.OpError:
            ps.signal(signal.SIGCONT)
            raise

    monkeypatch.setattr(server, "_tell_done", tell_and_wake)
    monkeypatch.setattr(server, "_TELL_SECONDS", DEADLINE)
    server.announce_done(me, [me.task], Stop(1.0))
    assert ps.wait() == 0


def test_a_frozen_ps_does_not_hold_its_worker(
    tasks: Tasks, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One that never answers is named, and the worker ends."""
    monkeypatch.setattr(server, "_TELL_SECONDS", 1.0)
    _, me = stopped_ps(tasks)
    server.announce_done(me, [me.task], Stop(1.0))
    assert f"worker:0 cannot tell {me.label(('ps', 0))} that it is done" in capsys.readouterr().out


@pytest.mark.parametrize("tasks", [1, 2, 9])
def test_weights_come_back_from_the_ps(tasks: int) -> None:
    """Each in its own shape and place, as arrays and as tensors; a ps may have none of them."""
    for network in (model.MLP, convolution.CNN):
        layout, weights = parameters.Layout(network, tasks), network.initial(1)
        flats = layout.join(weights, np.reshape, np.concatenate)
        assert [flat.shape for flat in flats] == [(size,) for size in layout.sizes], network.name
        assert sum(layout.sizes) == sum(weight.size for weight in weights)
        assert layout.sizes.count(0) == max(0, tasks - len(weights))
        for weight, found in zip(weights, layout.split(flats, np.reshape), strict=True):
            np.testing.assert_array_equal(found, weight)
        tensors = layout.join([tf.constant(weight) for weight in weights])
        for flat, tensor in zip(flats, tensors, strict=True):
            np.testing.assert_array_equal(tensor.numpy(), flat)


def test_the_two_matrices_are_on_two_ps() -> None:
    """Round robin would put both on the first; the rest goes to whoever has less."""
    layout = parameters.Layout(model.MLP, 2)
    assert layout.sizes == [784 * 500, 500 + 500 * 10 + 10]
    others = "hidden/biases, output/weights, output/biases on ps:1"
    assert layout.described() == f"hidden/weights on ps:0; {others}"
