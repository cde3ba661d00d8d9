"""A run whose agent is of another version of tfmux than who attaches to it or kills it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from launcher.agent import wire
from launcher.paths import runs_home
from launcher.store.runs import RunFolder
from tests.support import command
from tests.support.cluster_texts import cluster_text
from tests.support.command import Up, write
from tests.support.paths import REPOSITORY
from tests.support.patience import wait_until
from tests.support.scenario import FaultScenario

pytestmark = pytest.mark.prove


CLUSTER = cluster_text(
    {"worker": 2},
    "versions",
    command=["sleep", "1000"],
    grace=1,
    on_disconnect="keep",
    start={"ready": {"worker": "started"}},
)


@contextmanager
def left_by(version: int, folder: Path) -> Iterator[str]:
    """A run of a tfmux that speaks another version of the protocol, whose launcher was killed."""
    place = folder / "tfmux"
    for package in ("launcher", "tui"):
        # With what is compiled already, but for what somebody else is just writing.
        shutil.copytree(
            REPOSITORY / package, place / package, ignore=shutil.ignore_patterns("*.pyc.*")
        )
    source = place / "launcher/agent/wire.py"
    source.write_text(
        re.sub(r"^VERSION = \d+$", f"VERSION = {version}", source.read_text(), flags=re.M)
    )
    other = subprocess.Popen(
        [sys.executable, "-m", "tui.main", "up", str(write(folder, CLUSTER)), "--json"],
        cwd=place,
        env={**os.environ, "PYTHONPATH": str(place)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with other:
        assert other.stdout is not None
        run_id, ready = "", 0
        while ready < 2:
            event = json.loads(other.stdout.readline())
            run_id = event.get("run", run_id)
            ready += event.get("state") == "ready" and event["event"] == "task"
        other.send_signal(signal.SIGSTOP)  # it would start another launcher
        launcher = RunFolder(runs_home() / run_id).launcher_pid()
        assert launcher is not None
        os.kill(launcher, signal.SIGKILL)
        other.kill()
    yield run_id


def test_the_agent_of_another_version_is_named_and_a_kill_ends_its_tasks(tmp_path: Path) -> None:
    """Its tasks go on while somebody looks; `kill` ends agent and tasks, and a new agent proves
    that nothing is left."""
    version = wire.VERSION + 1
    with left_by(version, tmp_path) as run_id:
        sleeping = [p.pid for p in FaultScenario.here(run_id) if p.argv[:1] == ("sleep",)]
        assert len(sleeping) == 2
        said = f"another version of tfmux (protocol {version}; this launcher speaks {wire.VERSION})"
        todo = f"attach with that version, or end the run: tfmux kill {run_id}"
        with Up("attach", run_id, "--json") as up:
            up.wait_for(
                lambda e: said in e.get("note", "") and todo in e["note"], "the agent's version"
            )
            up.kill_launcher()
        assert [p.pid for p in FaultScenario.here(run_id) if p.pid in sleeping] == sleeping
        listed = command.run("ps")
        assert said in listed.stderr, listed
        done = command.run("kill", run_id)
        assert done.returncode == 0, done
        assert "no process is left" in done.stdout
        wait_until(lambda: not FaultScenario.here(run_id), "the end of all its processes")
