"""Scripts of any framework and TensorFlow 2's own strategies, started as the manual says: ranks,
readiness, examples."""

from __future__ import annotations

import importlib.util
import json
import os
import pathlib
import re
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from launcher.cluster.templates import ANY_SCRIPT, ENVIRONMENT, MPI_LIKE, render
from tests.support.budgets import soak, soon
from tests.support.cluster_texts import cluster_text
from tests.support.command import Up, python_task, run, write
from tests.support.lazily import checkpoint
from tests.support.paths import REPOSITORY
from tests.support.trainer_tasks import ACCURATE, STARTED, STEPS, Cluster, Tasks, listens
from tests.testbed.namespaces import Testbed

_PATIENCE = 10.0
"""Seconds without a heartbeat after which TensorFlow takes a worker for dead, unless it is told."""
EXAMPLES = REPOSITORY / "docs" / "examples"
IDLE = """
import os, time
print("here", flush=True)
while not os.path.exists("stop"):
    time.sleep(0.05)
"""
LISTENING = "import socket, sys\ns = socket.create_server(('127.0.0.1', int(sys.argv[1])))" + IDLE


def said(up: Up) -> str:
    """What stands on stderr, however the lines are broken."""
    return " ".join(up.said.split())


def state_times(up: Up, task: str) -> dict[str, float]:
    return {e["state"]: e["time"] for e in up.of("task") if e["task"] == task}


def test_any_script_is_ready_without_a_port(tmp_path: Path) -> None:
    """The template's `train.py` opens no port: each task is ready after 5 s."""
    (tmp_path / "train.py").write_text(IDLE)
    path = write(tmp_path, render(ANY_SCRIPT, "any", {}, tmp_path))
    with Up("up", str(path), "--json") as up:
        up.state("worker:0", "ready")
        (tmp_path / "stop").touch()
        assert up.wait() == 0, up.transcript()
    seen = state_times(up, "worker:0")
    assert 4.5 <= seen["ready"] - seen["starting"]


def test_the_template_with_the_variables_of_mpi_starts(tmp_path: Path) -> None:
    """A program that knows only what `mpirun` tells its processes."""
    (tmp_path / "train.py").write_text(
        "import os\n"
        'names = ("OMPI_COMM_WORLD_RANK", "PMI_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK")\n'
        "print('step 1 loss 0.5', *map(os.environ.get, names), flush=True)\n"
    )
    path = write(tmp_path, render(MPI_LIKE, "mpi", {}, tmp_path))
    with Up("up", str(path), "--json") as up:
        assert up.wait() == 0, up.transcript()
        assert up.log("worker:0", "step 1 loss 0.5 0 1 0")


def test_the_template_with_an_environment_and_a_hook_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Login shell, `setup`, variables and a terminal for the task; the end of the run for the
    program of the hook."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "logger").write_text(
        f'#!/bin/sh\necho "$3" >{tmp_path}/said; cat >>{tmp_path}/said\n'
    )
    (tmp_path / "bin" / "logger").chmod(0o755)
    (tmp_path / "home" / ".profile").write_text("export FROM_PROFILE=yes\n")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.setenv("SHELL", "/bin/sh")
    (tmp_path / "train.py").write_text(
        "import os, sys\n"
        'names = ("FROM_PROFILE", "OMP_NUM_THREADS", "TZ")\n'
        "print('step 1 loss 0.5', *map(os.environ.get, names), sys.stdout.isatty())\n"
    )
    path = write(tmp_path, render(ENVIRONMENT, "environment", {}, tmp_path))
    with Up("up", str(path), "--json") as up:
        assert up.wait() == 0, up.transcript()
        assert up.log("worker:0", "step 1 loss 0.5 yes 2 UTC True")
    words, event = (tmp_path / "said").read_text().splitlines()
    assert words == "a run has ended" and json.loads(event)["outcome"] == "success"


def test_a_metric_line_makes_a_script_ready(tmp_path: Path) -> None:
    """The next stage begins, which a soak sees to come before the 5 s are over."""
    script = 'print("step 1 loss 0.5", flush=True)\n' + IDLE
    text = cluster_text(
        {"one": 1, "two": 1}, command=python_task(script), start={"order": [["one"], ["two"]]}
    )
    with Up("up", str(write(tmp_path, text)), "--json") as up:
        up.state("two:0", "running")
        (tmp_path / "stop").touch()
        assert up.wait() == 0, up.transcript()
    seen = state_times(up, "one:0")
    ready = seen.get("ready", seen["running"])  # who writes metrics at once is never only ready
    assert soon(ready - seen["starting"], 5.0)


def test_a_port_does_not_stand_in_for_a_line(tmp_path: Path) -> None:
    """A task that is to be ready by its log is not so because it listens."""
    text = f"""
[jobs.worker]
tasks = ["localhost:auto"]
ready = {{ log = "never" }}
[run]
command = {json.dumps([*python_task(LISTENING), "{port}"])}
[start]
timeout = 3
"""
    with Up("up", str(write(tmp_path, text)), "--json") as up:
        assert up.wait() == 1, up.transcript()
    assert "ready" not in state_times(up, "worker:0")
    assert "no line of its log matches 'never' (ready in [jobs.worker], line 4)" in said(up)


def test_who_must_listen_and_does_not_is_told_the_line(tmp_path: Path) -> None:
    """A worker of TensorFlow is waited for; the message names the port, the key and its line."""
    text = f"""
[jobs.worker]
tasks = ["localhost:auto"]
ready = "listening"
[run]
command = {json.dumps(python_task(IDLE))}
[start]
timeout = 3
"""
    with Up("up", str(write(tmp_path, text)), "--json") as up:
        assert up.wait() == 1, up.transcript()
    assert "not ready after 3 s: it does not listen on port " in said(up)
    assert "a longer timeout in [start] (ready in [jobs.worker], line 4)" in said(up)


@pytest.mark.prove
def test_more_ranks_than_gpus_are_said(tmp_path: Path) -> None:
    """A warning of `check` and a note of the run, and neither where the job wants no GPU."""
    text = """
[hosts.localhost]
gpus = 1
[jobs.worker]
tasks = ["localhost:auto", "localhost:auto"]
[run]
command = ["true"]
framework = "torch"
"""
    note = "2 ranks on localhost, which has 1 GPU: not every rank has a GPU of its own"
    done = run("check", str(write(tmp_path, text)), "--json")
    found = {finding["code"]: finding for finding in json.loads(done.stdout)["findings"]}
    assert done.returncode == 0 and found["gpus-fewer-than-ranks"]["severity"] == "warn"
    assert note in run("up", str(tmp_path / "cluster.toml"), "--headless").stderr
    text = text.replace("[run]", "gpus = 0\n[run]")
    done = run("check", str(write(tmp_path, text)), "--json")
    assert "gpus-fewer-than-ranks" not in done.stdout
    done = run("up", str(tmp_path / "cluster.toml"), "--headless")
    assert done.returncode == 0 and "2 ranks on" not in done.stderr


def spread(testbed: Testbed, folder: Path, example: str, tasks: int = 2) -> Path:
    """An example of the documentation, on the hosts tf1, tf2, …"""
    shutil.copytree(EXAMPLES, folder, dirs_exist_ok=True)
    text = (folder / f"{example}.toml").read_text()
    places = json.dumps([f"tf{number}:auto" for number in range(1, tasks + 1)])
    begin, _, rest = text.partition('tasks = ["localhost:auto"')
    text = f"{begin}tasks = {places}{rest.partition(']')[2]}"
    return write(folder, text.replace("[jobs.", f"{testbed.hosts_toml()}[jobs.", 1))


def test_ranks_meet_on_three_hosts(testbed: Testbed, tmp_path: Path) -> None:
    """A script that knows only what `torchrun` tells its processes: they find each other at rank
    0's address and port, and all end."""
    path = spread(testbed, tmp_path, "ranks", 3)
    with Up("up", str(path), "--json") as up:
        assert up.wait() == 0, up.transcript()
        for rank in range(3):
            assert up.log(f"worker:{rank}", f"rank {rank} of 3, 0 on this host")
            assert up.log(f"worker:{rank}", "step 1 loss 3.0000")
    assert {e["state"] for e in up.of("task") if e["task"] == "worker:2"} >= {"running", "exited"}


@pytest.mark.soak
def test_jax_on_two_hosts(testbed: Testbed, tmp_path: Path) -> None:
    """`jax.distributed.initialize()` finds the others without an argument; gradients are averaged
    over both hosts, and both end with the same weights."""
    if importlib.util.find_spec("jax") is None:
        pytest.skip("jax is not installed: pip install jax, or make .venv/ready")
    path = spread(testbed, tmp_path, "jax")
    with Up("up", str(path), "--json") as up:
        assert up.wait() == 0, up.transcript()
        for rank in range(2):
            assert up.log(f"worker:{rank}", f"rank {rank} of 2, 2 devices")
            assert up.log(f"worker:{rank}", "weights [2.0, -3.0, 0.5]")


TORCH = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.tensor([float(dist.get_rank() + 1)])
dist.all_reduce(total)
print("rank", dist.get_rank(), "of", dist.get_world_size(), "sum", total.item(), flush=True)
dist.destroy_process_group()
"""


def test_torch_on_this_machine(tmp_path: Path) -> None:
    """`init_process_group` finds the others by the variables."""
    if importlib.util.find_spec("torch") is None:
        pytest.skip("PyTorch is not installed")
    text = cluster_text({"worker": 2}, command=python_task(TORCH), framework="torch", success="all")
    with Up("up", str(write(tmp_path, text)), "--json") as up:
        assert up.wait() == 0, up.transcript()
        assert up.log("worker:1", "rank 1 of 2 sum 3.0")


def test_figures_and_readiness_of_keras_on_a_pipe(tmp_path: Path) -> None:
    """Given `fit` and `evaluate` of Keras 3, which writes colours on pipes too, then the step, the
    total and the loss of the training are read from its bars, and a `ready` that is copied from
    what a person sees matches."""
    (tmp_path / "train.py").write_text(
        "import numpy, keras\n"
        "x = numpy.random.rand(200, 4); y = x.sum(1)\n"
        "model = keras.Sequential([keras.layers.Dense(1)])\n"
        "model.compile('sgd', 'mse')\n"
        "model.fit(x, y, epochs=2, batch_size=10, validation_split=0.2)\n"
        "model.evaluate(x, y, batch_size=10)\n"
    )
    text = cluster_text(
        {"worker": 1},
        command=["{python}", "train.py"],
        env={"TF_CPP_MIN_LOG_LEVEL": "3"},
        start={"ready": {"worker": {"log": "^16/16 ━+ [0-9]+s [0-9]+[mu]s/step"}}},
    )
    with Up("up", str(write(tmp_path, text)), "--json") as up:
        up.state("worker:0", "ready")
        assert up.wait() == 0, up.transcript()
    figures = [event for event in up.of("metric") if event["values"]]
    assert {event["values"].get("total") for event in figures} == {16}
    assert figures[-1]["step"] == 16 and figures[-1]["loss"] < 10


@pytest.mark.soak
def test_keras_fit_goes_on_after_a_worker_died(tmp_path: Path) -> None:
    """`BackupAndRestore`: all workers start again and end; the evaluator tests the last epoch."""
    shutil.copytree(EXAMPLES, tmp_path, dirs_exist_ok=True)
    with Up("up", str(tmp_path / "keras-fit.toml"), "--json") as up:
        up.log("worker:1", "Epoch 2/")
        os.kill(up.state("worker:1", "ready")["pid"], signal.SIGKILL)
        up.log("evaluator:0", "test accuracy")
        assert up.wait() == 0, up.transcript()
    attempts = {e["task"]: e["attempt"] for e in up.of("task")}
    assert attempts["worker:1"] == 2
    again = [e["text"] for e in up.of("log") if e["task"] == "worker:1" and "Epoch" in e["text"]]
    assert again[-1].startswith("Epoch 5/") and again.count("Epoch 1/5") == 1


@pytest.mark.prove
@pytest.mark.parametrize(
    ("example", "task", "line"),
    [
        soak("classic", "worker:1", "done"),
        soak("ps-strategy", "chief:0", "done [ 2.  -3.   0.5]"),
        ("all-reduce", "worker:1", "done [ 2.  -3.   0.5]"),
        soak("data-service", "train:0", "done [ 2. -3.]"),
    ],
)
def test_the_programs_of_tensorflow(example: str, task: str, line: str, tmp_path: Path) -> None:
    """Classic flags, a coordinator with workers and ps, equal workers, a client of a service: each
    trains to its end."""
    shutil.copytree(EXAMPLES, tmp_path, dirs_exist_ok=True)
    with Up("up", str(tmp_path / f"{example}.toml"), "--json") as up:
        assert up.wait() == 0, up.transcript()
        assert up.log(task, line)


@pytest.mark.soak
def test_the_examples_of_environment_hooks_and_warm_start(tmp_path: Path) -> None:
    """Each says on its pages what is seen here."""
    shutil.copytree(EXAMPLES, tmp_path, dirs_exist_ok=True)
    with Up("up", str(tmp_path / "environment.toml"), "--json") as up:
        assert up.wait() == 0, up.transcript()
    texts = [event["text"] for event in up.of("log") if event["task"] == "worker:1"]
    assert texts[-4:] == [
        "WHERE job",
        """GREETING it's "quoted" $HOME""",
        "OMP_NUM_THREADS 2",
        "terminal True",
    ]
    with Up("up", str(tmp_path / "hooks.toml"), "--json") as up:
        assert up.wait() == 0, up.transcript()
    assert (tmp_path / "report.txt").read_text() == "hooks success 0 nothing is left\n"
    with Up("up", str(tmp_path / "warm.toml"), "--json") as up:
        assert up.wait() == 0, up.transcript()
    states = [event["state"] for event in up.of("task") if event["task"] == "worker:1"]
    assert states.index("warming") < states.index("starting") < states.index("ready")
    assert up.log("worker:1", "numpy was")["text"].endswith("True")
    assert up.log("ps:0", "numpy was")["text"].endswith("False")  # the first stage starts cold


@pytest.fixture
def scratch(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Tasks that train keep no generated code in /tmp, where a kill would leave it."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    yield
    assert not list(tmp_path.glob("__autograph*"))


@pytest.mark.usefixtures("scratch")
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


@pytest.mark.usefixtures("scratch")
@pytest.mark.prove
def test_all_reduce_outlasts_a_pause_saves_on_term_and_goes_on(
    tasks: Tasks, tmp_path: pathlib.Path, digits: list[str]
) -> None:
    """A worker that stands still for longer than TensorFlow waits ends nothing. TERM to all: they
    stop at one step and the chief saves; restarted, all start from there.

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
    workers[1].signal(signal.SIGSTOP)
    time.sleep(1.5 * _PATIENCE)  # nothing tells that TensorFlow's patience would have ended
    workers[1].signal(signal.SIGCONT)
    before = workers[0].steps[-1]
    workers[0].until(lambda _: workers[0].steps[-1] > before)
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


@pytest.mark.usefixtures("scratch")
def test_clusters_of_the_wrong_shape(tasks: Tasks) -> None:
    """`ps-strategy` needs a chief, `all-reduce` has no ps: usage errors of one line."""
    for mode, message in (
        ("ps-strategy", "the cluster has no chief task"),
        ("all-reduce", "no ps"),
    ):
        worker = Cluster(tasks, mode, ps=1, worker=1).start("worker")
        assert worker.wait() == 2
        assert message in worker.text and len(worker.text.splitlines()) == 1


@pytest.mark.usefixtures("scratch")
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
