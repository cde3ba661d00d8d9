"""The guilty rank of real programs is named: four ranks of a framework, of which one goes wrong."""

from __future__ import annotations

import importlib.util
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support import guilty
from tests.support.budgets import soak
from tests.support.command import Up, write
from tests.support.patience import PATIENCE, wait_until
from tests.testbed.namespaces import Testbed

pytestmark = pytest.mark.prove


HERE = ("raises", "slowly", "memory", "killed", "crashes", "leaves", "stopped", "sleeps", "alike")
CHEAP = [("jax", "raises"), ("jax", "leaves"), ("jax", "sleeps")]
DEAR = [(one, how) for one in guilty.FRAMEWORKS for how in HERE if (one, how) not in CHEAP]
HARMLESS = [("async", "leaves"), ("async", "power"), ("async", "network")]
"""Nobody waits for a worker that trains by itself."""


def require(framework: str) -> None:
    if framework in ("jax", "torch") and importlib.util.find_spec(framework) is None:
        pytest.skip(f"{framework} is not installed")


def verdicts(up: Up, told: Any = lambda: None) -> list[dict[str, Any]]:
    """What is said of a run until it ends, or, of one that hangs, until it is known."""
    deadline = time.monotonic() + 2 * PATIENCE
    while up.process.poll() is None:
        assert time.monotonic() < deadline, up.transcript()
        told()
        if any("verdict" in event for event in up.of("run")):
            break
        time.sleep(0.1)
    if any(event["state"] == "running" for event in up.of("run")[-1:]):
        up.press_ctrl_c()
    up.wait()
    return [event["verdict"] for event in up.of("run") if "verdict" in event]


@pytest.mark.parametrize(("framework", "how"), [*CHEAP, *(soak(*cell) for cell in DEAR)])
def test_the_guilty_rank_of_a_framework_is_named(tmp_path: Path, framework: str, how: str) -> None:
    """Given four ranks of a framework, when one that is drawn by lot goes wrong, then the run's
    record names it, and at no time another one for sure."""
    require(framework)
    if (framework, how) in HARMLESS:
        pytest.skip("nobody misses it")
    rank = random.randrange(4)
    guilty.copy_programs(tmp_path)
    text = guilty.cluster(framework, how, rank, start={"timeout": PATIENCE})
    with Up("up", str(write(tmp_path, text)), "--json") as up:
        said = verdicts(up)
    wrong = [one for one in said if one["sure"] and not guilty.names(one, how, rank)]
    assert said and not wrong, f"worker:{rank} {how}: {said}\n{up.transcript()}"
    assert guilty.names(said[-1], how, rank), f"worker:{rank} {how}: {said}\n{up.transcript()}"


def steps(up: Up) -> None:
    """Waits until the ranks have a pace: it is known by some lines, one a second of each task."""
    up.wait_for(
        lambda e: e["event"] == "metric" and e["values"].get("step", 0) >= guilty.STEP - 1, "steps"
    )
    wait_until(lambda: len(up.of("metric")) >= 6, "a pace")


@pytest.mark.soak
@pytest.mark.parametrize("how", ["killed", "power", "network"])
@pytest.mark.parametrize("framework", guilty.FRAMEWORKS)
def test_a_rank_on_a_host_of_its_own_is_lost(
    testbed: Testbed, tmp_path: Path, tfmux_home: Path, framework: str, how: str
) -> None:
    """Given four ranks on four hosts, when one is killed, its host loses its power, or the host's
    cable is pulled, then the record names that rank."""
    require(framework)
    if (framework, how) in HARMLESS:
        pytest.skip("nobody misses it")
    testbed.give_access(tfmux_home)
    rank = random.randrange(4)
    host = testbed[f"tf{rank + 1}"]
    folder = tmp_path / "job"  # hosts get all of it
    guilty.copy_programs(folder)
    text = guilty.cluster(
        framework, how, rank, "tf1 tf2 tf3 tf4", testbed.hosts_toml(), start={"timeout": PATIENCE}
    )
    with Up("up", str(write(folder, text)), "--json") as up:
        if how != "killed":
            steps(up)
            host.crash() if how == "power" else host.pull()
        said = verdicts(up)
    wrong = [one for one in said if one["sure"] and not guilty.names(one, how, rank)]
    assert said and not wrong, f"worker:{rank} {how}: {said}\n{up.transcript()}"
    assert guilty.names(said[-1], how, rank), f"{how}: {said}\n{up.transcript()}"


@pytest.mark.soak
@pytest.mark.parametrize("how", ["KILL", "STOP", "SEGV"])
@pytest.mark.parametrize("framework", ["async", "sync"])
def test_a_parameter_server_is_lost(tmp_path: Path, framework: str, how: str) -> None:
    """Given four workers and a ps, when the ps is killed, crashes or is stopped, then the record
    names it, and at no time a worker for sure."""
    guilty.copy_programs(tmp_path)
    text = guilty.cluster(framework, "none", 0, start={"timeout": PATIENCE})
    with Up("up", str(write(tmp_path, text)), "--json") as up:
        steps(up)
        (pid,) = {e["pid"] for e in up.of("task") if e["task"] == "ps:0" and e.get("pid")}
        os.kill(pid, getattr(signal, f"SIG{how}"))
        said = verdicts(up)
    wrong = [one for one in said if one["sure"] and one["tasks"] != ["ps:0"]]
    assert said and not wrong, f"{said}\n{up.transcript()}"
    assert said[-1]["tasks"] == ["ps:0"], f"{said}\n{up.transcript()}"
