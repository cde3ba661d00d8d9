"""Checkpoints of trainings whose ps and chief are on two hosts, each with a disk of its own.

Every mode of the trainer, and every program of the manual, that saves: it saves where the chief is,
and a second training there restores what the first one has saved.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.support.host_tasks import FOLDER, TwoHosts
from tests.support.paths import REPOSITORY
from tests.support.ports import free_ports
from tests.testbed.namespaces import Testbed

EXAMPLES = REPOSITORY / "docs/examples/tf1"
PROGRAMS = [EXAMPLES / "mnist_async.py", EXAMPLES / "mnist_inference.py"]
FIRST, SECOND = 60, 100
"""Steps of the first training, and of the second one, which begins where the first has ended."""


@pytest.fixture(scope="module")
def two(shared_testbed: Testbed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoHosts]:
    """Two hosts that have imported TensorFlow once for all tests."""
    logs = tmp_path_factory.mktemp("logs")
    with TwoHosts(shared_testbed["tf1"], shared_testbed["tf2"], logs, *PROGRAMS) as hosts:
        yield hosts


def train(two: TwoHosts, mode: str, steps: str, logdir: str) -> str:
    """Train with a ps on the first host and a chief on the second; return what the chief says."""
    ports = iter(free_ports(3))
    jobs = {"ps": f"tf1:{next(ports)}", "worker": f"tf2:{next(ports)}"}
    if mode == "ps-strategy":
        jobs["chief"] = f"tf2:{next(ports)}"
    words = [*mode.split(), *(f"--{job}_hosts={place}" for job, place in jobs.items())]
    words += [steps, logdir]
    words.append("--task_id=0" if "mnist_async.py" in words else "--task_index=0")
    started = {
        job: two.start(two.ps if job == "ps" else two.workers, *words, f"--job_name={job}")
        for job in jobs
    }
    chief = started.pop([*jobs][-1])
    texts = [chief.wait(), chief.text, *(task.text for task in started.values())]
    assert texts[0] == 0, texts
    two.end([*started.values()])
    return chief.text


@pytest.mark.parametrize(
    "mode",
    [
        "async",
        "classic",
        *(
            pytest.param(mode, marks=pytest.mark.soak)
            for mode in (
                "async --fetch-every=4 --push-every=4",
                "sync",
                "in-graph",
                "ps-strategy",
                "classic --sync",
            )
        ),
    ],
)
def test_a_mode_saves_where_the_chief_is(two: TwoHosts, mode: str) -> None:
    """The ps's disk stays empty; the second training makes the steps that are missing."""
    place = f"{FOLDER}/logs/{re.sub('[^a-z]', '', mode)}"
    train(two, mode, f"--steps={FIRST}", f"--logdir={place}")
    assert {"checkpoint", f"model.ckpt-{FIRST}.index"} <= two.workers.files(place)
    again = train(two, mode, f"--steps={SECOND}", f"--logdir={place}")
    if not mode.startswith("classic"):
        assert f"restored step {FIRST} from {place}/model.ckpt-{FIRST}" in again
    done = re.search(r"Done: (\d+) training steps", again)
    assert done is not None and int(done[1]) < FIRST, again
    assert f"model.ckpt-{SECOND}.index" in two.workers.files(place)
    assert not two.ps.files(place)


@pytest.mark.parametrize(
    ("place", "sync"),
    [
        ("logs-here", ""),
        pytest.param(f"{FOLDER}/logs/elsewhere", " --sync", marks=pytest.mark.soak),
    ],
)
def test_a_program_of_tensorflow_1_saves_where_the_chief_is(
    two: TwoHosts, place: str, sync: str
) -> None:
    """`MonitoredTrainingSession(checkpoint_dir=…)` as it stands, relative and absolute: its first
    line of the second training is of steps behind the first one's."""
    folder = f"{FOLDER}/{place}" if place[0] != "/" else place
    mode = f"tf1 mnist_async.py{sync}"
    train(two, mode, f"--training_steps={FIRST}", f"--log_dir={place}")
    assert {"checkpoint", f"model.ckpt-{FIRST}.index"} <= two.workers.files(folder)
    again = train(two, mode, f"--training_steps={SECOND}", f"--log_dir={place}")
    first = re.search(r"After 20 training steps \((\d+) global steps\)", again)
    assert first is not None and int(first[1]) > FIRST, again
    assert not two.ps.files(folder)
