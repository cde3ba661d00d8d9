"""`tfmux up --resume RUN`: the run that is meant, and its log directory. Real runs."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from launcher import Cluster, RunNotFoundError
from launcher.cluster.read import load, loads
from launcher.ids import is_run_id, new_run_id
from launcher.plan.facts import Resume
from launcher.run.machine import RunStateMachine
from launcher.session.stored import StoredRun, find_resumed
from launcher.store.runs import RunFolder
from tests.support.cluster_texts import cluster_text
from tests.support.command import run, write

TEXT = cluster_text(
    {"worker": {"tasks": 1, "ready": "started"}},
    "again",
    command=["sh", "-c", "echo {logdir} $TFMUX_RESUME"],
    workdir="",
    logdir="logs/{run_id}",
)


def up(file: Path, *words: str) -> tuple[RunFolder, list[str]]:
    """A run to its end; its folder, and what its task printed."""
    done = run("up", str(file), "--headless", *words)
    assert done.returncode == 0, done.stderr
    return RunFolder.all()[0], done.stdout.removeprefix("worker:0 | ").split()


@pytest.mark.prove
def test_a_run_that_was_resumed_can_be_resumed_again(tmp_path: Path) -> None:
    """All go on in the first one's log directory, and each names the one that it goes on from; also
    where the folder of the first one was removed."""
    file = write(tmp_path, TEXT)
    first, printed = up(file)
    logs = str(tmp_path / "logs" / first.run_id)
    assert printed == [logs]
    second, printed = up(file, "--resume", first.run_id[:-1])
    assert printed == [logs, first.run_id]
    shutil.rmtree(first.path)
    third, printed = up(file, "--resume", second.run_id)
    assert printed == [logs, second.run_id]
    assert StoredRun(third).plan.tasks[0].logdir == logs
    assert find_resumed(first.run_id, "again") == Resume(first.run_id, first.run_id)


def test_an_unknown_run_is_not_resumed(tmp_path: Path) -> None:
    """Neither is a beginning that two runs have; nothing is launched."""
    done = run("up", str(write(tmp_path, TEXT)), "--headless", "--resume", "nonsense")
    assert done.returncode == 2 and not done.stdout
    assert "no run 'nonsense' here" in done.stderr
    assert not RunFolder.all()


async def test_a_program_names_the_run_in_the_same_way(tmp_path: Path) -> None:
    """A beginning that several have is refused before anything is made."""
    file = write(tmp_path, TEXT)
    for digit in "12":
        RunFolder.create(f"again-20260101-120000-000{digit}", TEXT, load(file))
    with pytest.raises(RunNotFoundError, match="beginning of several runs"):
        async with Cluster.from_file(file).launch(resume="again-2026"):
            pass
    assert len(RunFolder.all()) == 2


@pytest.mark.parametrize("name", ["again", "two words", "…"])
def test_a_full_id_of_the_cluster_need_not_be_known(name: str) -> None:
    """Another machine may have launched it; another cluster's, or half an id, is a mistake."""
    run_id = new_run_id(name)
    assert find_resumed(run_id, name) == Resume(run_id, run_id)
    assert not is_run_id(run_id[:-1], name) and not is_run_id(f"x{run_id}", name)
    with pytest.raises(RunNotFoundError):
        find_resumed(run_id, "other")


def test_a_stream_that_resumes_a_run_makes_the_plan_of_that_run() -> None:
    """Whoever takes it up knows of the resumed run only by the record of the run."""
    cluster = loads(TEXT, "again.toml", Path("/"))
    first = RunStateMachine(cluster, "again-2", resume=Resume("again-1", "again-0"))
    machine = RunStateMachine(cluster, "again-2", past=first.data)
    (task,) = machine.data.plan.tasks
    assert "again-1" in str(task.variables["TFMUX_RESUME"])
    assert "again-0" in str(task.words)
