"""Asynchronous training with real processes."""

from __future__ import annotations

import pathlib
import re
import signal
import socket

import pytest

from tests.trainer.tasks import PROGRESS, STARTED, Cluster, Tasks
from trainer.checkpoint import read

pytestmark = pytest.mark.slow


def test_one_ps_and_two_workers_on_embedded_digits(tasks: Tasks, tmp_path: pathlib.Path) -> None:
    """Started in the wrong order, all train to the limit, and the ps leaves on TERM with 0.

    The chief's log ends with the test accuracy; its checkpoint holds the last step and the run.
    """
    logdir = tmp_path / "logdir"
    cluster = Cluster(
        tasks, "async", "--steps=400", "--log-every=50", f"--logdir={logdir}", ps=1, worker=2
    )
    second = cluster.start("worker", 1)
    chief = cluster.start("worker", 0)
    ps = cluster.start("ps")
    assert (chief.wait(), second.wait()) == (0, 0)
    assert chief.accuracy > 0.85
    first_line = PROGRESS.search(second.text)
    assert first_line and int(first_line["local"]) == 50 and int(first_line["step"]) >= 50
    assert "test accuracy" not in second.text
    counts = [
        re.search(r"^Done: (\d+) training steps \((\d+) global", task.text, re.MULTILINE)
        for task in (chief, second)
    ]
    assert counts[0] and counts[1]
    steps = max(int(count[2]) for count in counts if count)
    assert 400 <= steps <= 402
    assert sum(int(count[1]) for count in counts if count) == steps
    run, saved = read(str(next(logdir.glob("model.ckpt-4*.index")).with_suffix("")))
    assert run == "test-run" and 400 <= saved <= 402
    assert ps.process.poll() is None
    ps.signal(signal.SIGTERM)
    assert ps.wait() == 0
    assert "no connections left" in ps.text


def test_real_digits_two_ps_roles_from_tf_config(
    tasks: Tasks, digits_directory: str | None
) -> None:
    """Two ps and two workers reach an accuracy of 0.95 on real digits within 4,000 steps."""
    data = [f"--data={digits_directory}"] if digits_directory else []
    cluster = Cluster(tasks, "async", "--steps=2500", *data, ps=2, worker=2)
    servers = [cluster.start_by_tf_config("ps", index) for index in range(2)]
    workers = [cluster.start_by_tf_config("worker", index) for index in range(2)]
    assert [worker.wait(150) for worker in workers] == [0, 0]
    assert workers[0].accuracy >= 0.95
    for ps in servers:
        ps.signal(signal.SIGTERM)
    assert [ps.wait() for ps in servers] == [0, 0]
    assert all("no connections left" in ps.text for ps in servers)


def test_term_to_all_at_once_saves_and_resumes(tasks: Tasks, tmp_path: pathlib.Path) -> None:
    """TERM to all tasks at once: the chief still saves, the ps leaves last; the run goes on later.

    Another run is refused in the same directory, unless it names the one to resume.
    """
    logdir = tmp_path / "logdir"
    flags = ("--steps=100000", "--log-every=20", f"--logdir={logdir}")
    cluster = Cluster(tasks, "async", *flags, ps=1, worker=2)
    everyone = [cluster.start("ps"), cluster.start("worker", 0), cluster.start("worker", 1)]
    everyone[1].until(lambda _: len(everyone[1].steps) >= 2)
    everyone[2].says("After 20 training")
    for task in everyone:
        task.signal(signal.SIGTERM)
    assert [task.wait(12) for task in everyone] == [0, 143, 143]
    assert "no connections left" in everyone[0].text
    index = max(logdir.glob("*.index"), key=lambda path: int(path.stem.rpartition("-")[2]))
    run, saved = read(str(index.with_suffix("")))
    assert run == "test-run" and saved >= everyone[1].steps[-1]

    other = Cluster(tasks, "async", *flags, run_id="other-run", ps=1, worker=1)
    refused = other.start("worker")
    assert refused.wait() == 1
    last = refused.text.splitlines()[-1]
    assert f"written by run test-run at global step {saved}" in last
    assert "--resume test-run" in last

    other.start("ps")
    resumed = other.start("worker", env={"TFMUX_RESUME": "test-run"})
    started = STARTED.search(resumed.says("starts at global step"))
    assert started and int(started[1]) == saved


def test_killed_tasks_go_on_after_a_restart(tasks: Tasks, tmp_path: pathlib.Path) -> None:
    """A killed worker goes on from the shared state, a killed ps's state comes from the chief's
    checkpoint, and the global step never falls by more than what was unsaved.
    """
    logdir = tmp_path / "logdir"
    flags = ("--steps=100000", "--log-every=20", f"--logdir={logdir}", "--save-secs=0.5")
    cluster = Cluster(tasks, "async", *flags, ps=1, worker=2)
    ps, chief, second = (
        cluster.start("ps"),
        cluster.start("worker", 0),
        cluster.start("worker", 1),
    )
    second.says("After 20 training")
    for index, victim in ((1, second), (0, chief)):
        before = victim.steps[-1]
        victim.signal(signal.SIGKILL)
        victim.wait()
        victim = cluster.start("worker", index)
        started = STARTED.search(victim.says("starts at global step"))
        assert started and int(started[1]) >= before
        victim.says("After 20 training")
        chief = victim if index == 0 else chief
    saved = max(int(path.stem.rpartition("-")[2]) for path in logdir.glob("*.index"))
    ps.signal(signal.SIGKILL)
    ps.wait()
    cluster.start("ps")
    said = chief.says(r"lost its ps(.|\n)*starts at global step \d+\nAfter")
    assert int(STARTED.findall(said)[-1]) >= saved


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
    """A worker whose ps never comes says so in TensorFlow's words and ends on TERM at once."""
    cluster = Cluster(tasks, "async", ps=1, worker=1)
    worker = cluster.start("worker", env={"TF_CPP_MIN_LOG_LEVEL": "0"})
    worker.says("CreateSession still waiting for response from worker: /job:ps")
    worker.signal(signal.SIGTERM)
    assert worker.wait(5) == 143


def test_downpour(tasks: Tasks, digits_directory: str | None) -> None:
    """Fetching and pushing every 8 steps reaches 0.95 too, and no step is lost or counted twice."""
    data = [f"--data={digits_directory}"] if digits_directory else []
    flags = ("--steps=3000", "--fetch-every=8", "--push-every=8", *data)
    cluster = Cluster(tasks, "async", *flags, ps=1, worker=2)
    cluster.start("ps")
    workers = [cluster.start("worker", index) for index in range(2)]
    assert [worker.wait(150) for worker in workers] == [0, 0]
    assert workers[0].accuracy >= 0.95
    counts = [re.search(r"^Done: (\d+) .*\((\d+) global", w.text, re.MULTILINE) for w in workers]
    assert counts[0] and counts[1]
    assert int(counts[0][1]) + int(counts[1][1]) == max(int(counts[0][2]), int(counts[1][2]))


def test_two_devices_a_worker(tasks: Tasks) -> None:
    """`--devices=2` gives each of two workers two logical devices, a batch for each."""
    flags = ("--steps=60", "--devices=2", "--log-every=20")
    for mode in ("async", "sync"):
        cluster = Cluster(tasks, mode, *flags, ps=1, worker=2)
        cluster.start("ps")
        workers = [cluster.start("worker", index) for index in range(2)]
        assert [worker.wait() for worker in workers] == [0, 0]
        assert workers[0].accuracy > 0.8


def test_placement(tasks: Tasks) -> None:
    """`placement` shows where operations ran, and what an impossible placement says."""
    run = tasks.run("placement", "--devices=2")
    assert run.wait() == 0
    ran = re.findall(r"^  product +\S+(device:\S+)$", run.text, re.MULTILINE)
    assert ran == ["device:CPU:0", "device:CPU:1", "device:CPU:0"]
    assert "Cannot assign a device for operation product" in run.text.splitlines()[-1]
