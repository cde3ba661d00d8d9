"""`tfmux stacks`: where the tasks of a run stand, from the command to the hosts and back."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import jsonschema
import pytest

from launcher.run.stack_groups import schema
from tests.support.command import Up, run, start, write
from tests.support.paths import REPOSITORY
from tests.support.patience import PATIENCE, wait_until
from tests.support.scenario import FaultScenario
from tests.testbed import proc
from tests.testbed.namespaces import Testbed

PROGRAM = """
import os, socket, sys, time
def load():
    time.sleep(1000)
def all_reduce():
    a, b = socket.socketpair()
    a.recv(1)
print("begins", flush=True)
if sys.argv[1] == sys.argv[2]:
    load()
all_reduce()
"""
CLUSTER = """
name = "stacks"
[jobs.worker]
tasks = ["localhost:auto", "localhost:auto", "localhost:auto"]
command = ["{python}", "late.py", "{index}", "1"]
ready = "started"
[jobs.helper]
tasks = ["localhost:auto"]
in_cluster = false
command = ["sh", "-c", "sleep 1000; true"]
[run]
grace = 1
workdir = "."
"""
ASLEEP = "sleep sleeps in hrtimer_nanosleep"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "late.py").write_text(PROGRAM)
    return tmp_path


def groups(run_id: str) -> dict[str, list[str]]:
    """The tasks that stand in each innermost function."""
    made = json.loads(run("stacks", run_id, "--json").stdout)
    jsonschema.validate(made, schema())
    return {group["frames"][0]["function"]: group["tasks"] for group in made["groups"]}


def wait_stuck(run_id: str, **tasks: int) -> None:
    """Waits until so many tasks stand in each of these functions."""
    wait_until(
        lambda: {name: len(found) for name, found in groups(run_id).items()} == tasks, str(tasks)
    )


def test_the_one_that_others_wait_for_comes_first(folder: Path) -> None:
    """Given a worker that two others wait for and a sleeping helper, when `tfmux stacks` is asked,
    then each group has a line, the late worker's first, and named tasks come in full, while an
    unknown task or a run that has ended is exit 2."""
    with Up("up", str(write(folder, CLUSTER)), "--json") as up:
        for name in ("worker:0", "worker:1", "worker:2"):
            up.state(name, "ready")
        wait_until(lambda: groups(up.run_id).get("load") == ["worker:1"], "it loads")
        wait_until(lambda: len(groups(up.run_id).get("all_reduce", ())) == 2, "the others wait")
        wait_until(
            lambda: groups(up.run_id).get(ASLEEP) == ["helper:0"],
            "the helper sleeps",
        )
        done = run("stacks", up.run_id)
        assert done.returncode == 0 and done.stderr == ""
        first, second, third = done.stdout.splitlines()
        assert first == "1 task: worker:1 — load late.py:4 ← <module> late.py:10"
        assert second == f"1 task: helper:0 — {ASLEEP}"
        assert third == "2 tasks: worker:0, 2 — all_reduce late.py:7 ← <module> late.py:11"
        full = run("stacks", up.run_id, "worker:1", "helper:0").stdout
        assert "worker:1 on localhost" in full and "worker:0" not in full
        assert f"      load ({folder}/late.py:4)" in full
        assert "    sleeps in do_wait" in full and "open files: 0 /dev/null" in full
        assert run("stacks", up.run_id, "worker:9").returncode == 2
        up.press_ctrl_c()
        assert up.wait() == 130
        ended = run("stacks", up.run_id)
        assert ended.returncode == 2 and f"{up.run_id} has ended\n" in ended.stderr


MANY = """
name = "many"
{hosts}
[jobs.worker]
tasks = {tasks}
command = ["{{python}}", "late.py", "{{index}}", "17"]
ready = "started"
[run]
exclude = ["home"]  # with its keys
grace = 1
workdir = "."
framework = "mpi-like"
"""


@pytest.mark.prove
def test_many_tasks_on_four_hosts(folder: Path, testbed: Testbed, tfmux_home: Path) -> None:
    """Given twenty-four tasks on four hosts, when one is late, then `tfmux stacks` shows it first,
    whatever host it is on, and all others in one line."""
    testbed.give_access(tfmux_home)
    tasks = [f"tf{number % 4 + 1}:auto" for number in range(24)]
    text = MANY.format(hosts=testbed.hosts_toml(), tasks=json.dumps(tasks))
    with Up("up", str(write(folder, text)), "--json") as up:
        up.state("worker:23", "ready")
        wait_stuck(up.run_id, load=1, all_reduce=23)
        wait_until(
            lambda: (
                run("stacks", up.run_id).stdout.splitlines()
                == [
                    "1 task: worker:17 — load late.py:4 ← <module> late.py:10",
                    "23 tasks: worker:0–16, 18–23 — all_reduce late.py:7 ← <module> late.py:11",
                ]
            ),
            "all are told",
        )
        up.press_ctrl_c()
        assert up.wait() == 130


def test_a_frozen_host_is_named_and_kills_do_not_wait_for_it(
    testbed: Testbed, tfmux_home: Path, tmp_path: Path
) -> None:
    """Given a host whose agent is stopped, when `tfmux stacks` is asked, then it tells the other
    host's task and names the silent host; a kill meanwhile reaches the other host at once."""
    testbed.give_access(tfmux_home)
    with FaultScenario(testbed, tmp_path) as scenario:
        file = scenario.file(
            {"worker": ["tf1", "tf3"]},
            run='lease = 600\ngrace = 1\nframework = "mpi-like"',
            extra='[start.ready]\nworker = "started"',
            words=["{python}", "-c", "import time; time.sleep(1000)"],
        )
        with scenario.up(file) as up:
            up.state("worker:0", "ready")
            up.state("worker:1", "ready")
            wait_until(lambda: len(groups(up.run_id)) == 1, "both stand there")
            _, agent = scenario.agents("tf3")
            proc.signal_process(agent, signal.SIGSTOP)
            found = run("stacks", up.run_id)
            assert found.returncode == 0
            assert found.stdout.startswith("1 task: worker:0 — <module> <string>:1")
            assert "tf3: " in found.stderr and "(worker:1)" in found.stderr
            asking, stdout, stderr = start(["stacks", up.run_id], os.environ, REPOSITORY)
            with stdout, stderr:
                up.press_ctrl_c()
                up.wait_for(lambda e: e.get("state") == "killing", "the kill has begun")
                wait_until(lambda: not scenario.of("tf1", "worker:0"), "tf1 has been told")
                asking.wait(PATIENCE)
            # On a busy machine the watchdog has ended what stands still before the kill.
            assert up.wait() in (1, 4, 130)
        scenario.wait_dead(up.run_id)
