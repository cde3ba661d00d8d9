"""Runs on a host whose `nvidia-smi` tells of GPUs, of lost and full ones, or hangs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from launcher.paths import runs_home
from launcher.store.runs import RunFolder
from tests.support.budgets import variants
from tests.support.cluster_texts import cluster_text
from tests.support.command import Up, python_task, run, write
from tests.support.nvidia_smi import FakeNvidiaSmi, app, gpu
from tests.support.paths import REPOSITORY
from tests.support.patience import wait_until

SCHEMA = json.loads((REPOSITORY / "docs/schemas/event.schema.json").read_text())
MIB = 1 << 20
RAISES = """
import os, sys, time
while not os.path.exists(sys.argv[1]) or sys.argv[3] != sys.argv[4]:
    time.sleep(0.02)
raise RuntimeError(sys.argv[2])
"""
"""A task that fails alone: of two, a busy machine decides whose failure the launcher hears of."""


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeNvidiaSmi:
    """The `nvidia-smi` of this machine."""
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    return FakeNvidiaSmi(tmp_path / "bin")


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    """A process that is no run's."""
    argv = [sys.executable, "-c", "input()", "sweep.py"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def two_workers(folder: Path, *command: str, gpus: int | None = None) -> str:
    """A cluster file of two tasks here, and the number of GPUs where it says one."""
    text = cluster_text(
        {"worker": 2},
        command=command,
        workdir="",
        grace=1,
        start={"ready": {"worker": "started"}},
    )
    if gpus is not None:
        text += f"\n[hosts.localhost]\ngpus = {gpus}\n"
    return str(write(folder, text))


def raising(index: int, go: Path, error: str) -> list[str]:
    """The command of tasks of which one raises an error as soon as a file is there."""
    return [*python_task(RAISES), str(go), error, "{index}", str(index)]


def has_task(event: dict[str, Any]) -> bool:
    return event["event"] == "gpus" and bool(event["tasks"])


def pid_of(up: Up, task: str) -> int:
    said = up.wait_for(lambda e: e["event"] == "task" and e["task"] == task and "pid" in e, task)
    return int(said["pid"])


def test_gpus_are_in_events_in_ps_and_in_the_file_of_metrics(
    smi: FakeNvidiaSmi, tmp_path: Path, stranger: subprocess.Popen[bytes]
) -> None:
    """Given two GPUs, of which a task holds one and a stranger too, then the load comes every five
    seconds with the memory of tasks, and `ps` names the processes."""
    smi.say(gpu=[gpu(0, utilization__gpu="42"), gpu(1)])
    with Up("up", two_workers(tmp_path, "sleep", "1000"), "--json") as up:
        pid = pid_of(up, "worker:0")
        smi.say(apps=[app(0, stranger.pid, "9000"), app(0, pid, "1222"), app(1, pid, "100")])
        held = up.wait_for(has_task, "the load")
        assert held["tasks"] == {"worker:0": 1322 * MIB}
        first, second = held["gpus"]
        assert (first["index"], first["utilisation"], first["temperature"]) == (0, 0.42, 62)
        assert second["memory_used"] == 4390 * MIB
        jsonschema.validate(held, SCHEMA)
        listed: list[Any] = []

        def told() -> bool:
            seen = json.loads(run("ps", "--json").stdout)
            (host,) = next(one["hosts"] for one in seen if one["run"] == up.run_id)
            listed[:] = host["gpus"]
            return bool(listed and listed[0]["processes"])

        wait_until(told, "ps knows the processes", 90)
        task, other = listed[0]["processes"]
        assert (task["task"], task["pid"], task["memory"]) == ("worker:0", pid, 1222 * MIB)
        assert other["pid"] == stranger.pid and other["command"].endswith("sweep.py")
        assert other["user"] == "root" and other.get("task") is None
        tasks = {e["task"]: e.get("gpus") for e in up.of("task")}
        assert tasks == {"worker:0": ["0"], "worker:1": ["1"]}
        metrics = RunFolder(runs_home() / up.run_id).metrics.read_text().splitlines()
        assert held in list(map(json.loads, metrics))


def test_a_full_gpu_names_who_holds_it(
    smi: FakeNvidiaSmi, tmp_path: Path, stranger: subprocess.Popen[bytes]
) -> None:
    """Given a GPU that a stranger holds, when a task finds no memory there, then the cause names
    the stranger's user, pid, command and size."""
    go = tmp_path / "go"
    error = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 139 GiB"
    smi.say(gpu=[gpu(0), gpu(1)], apps=[app(0, stranger.pid, "120000")])
    with Up("up", two_workers(tmp_path, *raising(0, go, error)), "--json") as up:
        pid_of(up, "worker:0")
        up.wait_for(lambda e: e["event"] == "gpus", "the load")
        go.touch()
        assert up.wait() == 1, up.transcript()
    verdict = up.of("run")[-1]["verdict"]
    assert (verdict["kind"], verdict["tasks"]) == ("raised", ["worker:0"]), verdict
    held = f"GPU 0 is held by root's pid {stranger.pid} ({sys.executable} -c input() sweep.py), 126"
    assert held in verdict["text"], verdict
    assert held in up.said


@pytest.mark.prove
def test_a_full_gpu_names_the_task_that_shares_it(smi: FakeNvidiaSmi, tmp_path: Path) -> None:
    """Given two tasks on one GPU, when one finds no memory there, in JAX's words, then the cause
    names the other one and what it holds."""
    go = tmp_path / "go"
    error = "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 8589934592 bytes."
    smi.say(gpu=[gpu(0)])
    with Up("up", two_workers(tmp_path, *raising(0, go, error)), "--json") as up:
        smi.say(apps=[app(0, pid_of(up, "worker:0")), app(0, pid_of(up, "worker:1"), "120000")])
        up.wait_for(has_task, "the load")
        go.touch()
        assert up.wait() == 1, up.transcript()
    verdict = up.of("run")[-1]["verdict"]
    assert verdict["tasks"] == ["worker:0"], verdict
    assert "GPU 0 is held by worker:1, 126 GB" in verdict["text"], verdict


@variants("told", ["lost", "xid"], test=1)
def test_a_gpu_that_fails_makes_its_host_guilty(
    smi: FakeNvidiaSmi, tmp_path: Path, told: str
) -> None:
    """Given a GPU that is lost while a task uses it, or whose memory fails, when the task fails,
    then a note says so at once, and the cause is that GPU of that host."""
    go = tmp_path / "go"
    smi.say(gpu=[gpu(0), gpu(1)])
    error = "CUDA error: unspecified launch failure"
    with Up("up", two_workers(tmp_path, *raising(1, go, error)), "--json") as up:
        smi.say(apps=[app(1, pid_of(up, "worker:1"))])
        up.wait_for(has_task, "the load")
        if told == "lost":
            lost = "Unable to determine the device handle for GPU0000:07:00.0: Unknown Error"
            smi.say(gpu=[gpu(0), lost], apps=[], status=15)
            fault = f"GPU 1 cannot be used: {lost}"
        else:
            smi.say(gpu=[gpu(0), gpu(1, ecc__errors__uncorrected__volatile__total="1")])
            fault = "GPU 1 has had 1 error of its memory that could not be corrected (ECC)"
        up.wait_for(lambda e: e["event"] == "note" and fault in e["note"], "the fault")
        go.touch()
        assert up.wait() == 1, up.transcript()
    verdict = up.of("run")[-1]["verdict"]
    assert (verdict["kind"], verdict["tasks"]) == ("gpu", ["worker:1"]), verdict
    assert verdict["text"].startswith(f"localhost: {fault}")


def test_an_nvidia_smi_that_hangs_holds_up_no_run(smi: FakeNvidiaSmi, tmp_path: Path) -> None:
    """Given a driver that never answers, then tasks start, and a kill is proven all the same, and
    ends the tasks alone: what the agent asks is no process of the run."""
    smi.say(gpu=[gpu(0)], seconds=3000)
    with Up("up", two_workers(tmp_path, "sleep", "1000", gpus=1), "--json") as up:
        up.wait_for(lambda e: e["event"] == "run" and e["state"] == "running", "all tasks")
        wait_until(lambda: smi.asked, "it is asked")
        assert run("kill", up.run_id).returncode == 0
        assert up.wait() == 130, up.transcript()
        receipt = up.of("receipt")[-1]
        assert receipt["clean"] and receipt["hosts"][0]["signalled"] == 2, receipt


def test_check_names_who_holds_a_gpu(
    smi: FakeNvidiaSmi, tmp_path: Path, stranger: subprocess.Popen[bytes]
) -> None:
    """Given a GPU that the plan gives away and a stranger holds, then `check` warns of it."""
    smi.say(gpu=[gpu(0), gpu(1)], apps=[app(1, stranger.pid, "120000")])
    done = run("check", two_workers(tmp_path, "sleep", "1"), "--json")
    assert f"GPU 1 is held by root's pid {stranger.pid}" in done.stdout, done.stdout + done.stderr


def test_check_knows_which_gpus_the_host_shows(
    smi: FakeNvidiaSmi,
    tmp_path: Path,
    stranger: subprocess.Popen[bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Given an environment that shows GPUs 2 and 3 alone, then who holds GPU 1 is no matter of the
    run, and who holds GPU 3 is."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    apps = [app(1, stranger.pid, "110000"), app(3, stranger.pid, "120000")]
    smi.say(gpu=[gpu(index) for index in range(4)], apps=apps)
    done = run("check", two_workers(tmp_path, "sleep", "1"), "--json")
    assert f"GPU 3 is held by root's pid {stranger.pid}" in done.stdout, done.stdout + done.stderr
    assert "GPU 1 is held" not in done.stdout


@pytest.mark.prove
def test_a_launch_says_who_holds_a_gpu_that_it_gives_away(
    smi: FakeNvidiaSmi, tmp_path: Path, stranger: subprocess.Popen[bytes]
) -> None:
    """Given a stranger on a GPU that the plan gives away, then a note names it, once, and the tasks
    start all the same; one on another GPU is no matter of the run."""
    apps = [app(1, stranger.pid, "120000"), app(2, stranger.pid, "110000")]
    smi.say(gpu=[gpu(index) for index in range(3)], apps=apps)
    with Up("up", two_workers(tmp_path, "sleep", "1000", gpus=2), "--json") as up:
        held = f"localhost: GPU 1 is held by root's pid {stranger.pid}"
        up.wait_for(lambda e: e["event"] == "note" and held in e["note"], "the note")
        smi.say(apps=[*apps, app(0, pid_of(up, "worker:0"))])
        up.wait_for(has_task, "another look")
        assert sum("is held by" in event["note"] for event in up.of("note")) == 1
        assert "GPU 2 is held" not in up.transcript()


def test_a_gpu_that_fails_in_the_last_moment_is_seen(smi: FakeNvidiaSmi, tmp_path: Path) -> None:
    """Given a GPU whose memory fails at the same moment as the task on it, then no report comes any
    more, and the cause is that GPU all the same."""
    go = tmp_path / "go"
    bad = gpu(1, ecc__errors__uncorrected__volatile__total="1")
    smi.say(gpu=[gpu(0), gpu(1)])
    error = "CUDA error: unspecified launch failure"
    with Up("up", two_workers(tmp_path, *raising(1, go, error)), "--json") as up:
        smi.say(apps=[app(1, pid_of(up, "worker:1"))])
        up.wait_for(has_task, "the load")
        newer = up.of("gpus")[-1]["time"]
        up.wait_for(lambda e: e["event"] == "gpus" and e["time"] > newer, "the last report")
        smi.say(gpu=[gpu(0), bad])
        go.touch()
        assert up.wait() == 1, up.transcript()
    verdict = up.of("run")[-1]["verdict"]
    assert (verdict["kind"], verdict["tasks"]) == ("gpu", ["worker:1"]), verdict
