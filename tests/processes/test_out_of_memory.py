"""A task that the kernel has ended for want of memory is told apart from one that was killed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.budgets import variants
from tests.support.cluster_texts import cluster_text
from tests.support.command import Up, python_task, run, write

FILLS = """
import os, sys, time
while not os.path.exists(sys.argv[2]):
    time.sleep(0.02)
with open(sys.argv[1] + "/cgroup.procs", "w") as file:
    file.write(str(os.getpid()))
held = []
while True:
    held.append(b"x" * (4 << 20))
"""
KILLS = "import os; os.kill(os.getpid(), 9)"


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group of its own for the task, as a container or a job of Slurm has one."""
    name = f"tfmux-test-{os.getpid()}"
    for top, limit in (
        ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
        ("/sys/fs/cgroup", "memory.max"),
    ):
        folder = Path(top, name)
        try:
            folder.mkdir()
            (folder / limit).write_text(str(64 << 20))
        except OSError:
            if folder.exists():
                folder.rmdir()
            continue
        yield folder
        folder.rmdir()
        return
    pytest.skip("this machine lets nobody make a control group of memory")


@variants("shell", [False, True], ids=["itself", "below a shell"], test=1)
def test_the_kernel_has_ended_a_task_of_its_own_group(
    tmp_path: Path, group: Path, shell: bool
) -> None:
    """Given a task in a control group that the agent does not count, when the kernel ends it, or
    the program that its shell has started, for want of memory, then the run says so."""
    go = tmp_path / "go"
    task = [*python_task(FILLS), str(group), str(go)]
    command = ["sh", "-c", '"$@"; exit $?', "sh", *task] if shell else task
    text = cluster_text(
        {"worker": 1}, command=command, workdir="", grace=1, start={"ready": {"worker": "started"}}
    )
    with Up("up", str(write(tmp_path, text)), "--json") as up:
        up.wait_for(lambda e: e["event"] == "run" and e["state"] == "running", "the task")
        assert run("stacks", up.run_id).returncode == 0  # its processes are known
        go.touch()
        assert up.wait() == 1, up.transcript()
    verdict = up.of("run")[-1]["verdict"]
    assert (verdict["kind"], verdict["sure"]) == ("out-of-memory", True), verdict
    assert "out of memory" in up.said


def test_a_kill_is_none(tmp_path: Path) -> None:
    """Given a task that somebody has killed, then nothing is said of memory."""
    text = cluster_text(
        {"worker": 1},
        command=python_task(KILLS),
        workdir="",
        grace=1,
        start={"ready": {"worker": "started"}},
    )
    with Up("up", str(write(tmp_path, text)), "--json") as up:
        assert up.wait() == 1, up.transcript()
    assert up.of("run")[-1]["verdict"]["kind"] == "killed"
