"""A run that hangs is looked at by itself: in its record, its notes, its hook and its folder."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import jsonschema
import pytest

from launcher.paths import runs_home
from launcher.run.stack_groups import schema
from tests.support.budgets import variants
from tests.support.cluster_texts import cluster_text
from tests.support.command import Up, run, write
from tests.support.patience import wait_until

PROGRAM = """
import os, sys, time
def never():
    time.sleep(1000)
def others():
    time.sleep(1000)
print("begins", flush=True)
if sys.argv[1] == sys.argv[2]:
    never()
if sys.argv[3:] == ["end"]:
    while not os.path.exists("go"):
        time.sleep(0.05)
    sys.exit(0)
for step in range(5) if sys.argv[3:] == ["steps"] else ():
    print("step", step, "loss", 1, flush=True)
    time.sleep(0.1)
print("ends", flush=True)
others()
"""


STEPS = """
import time
for step in range(10_000):
    print(f"step {step} loss 0.5", flush=True)
    time.sleep(0.2)
"""
"""A program that serves nobody."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "hangs.py").write_text(PROGRAM)
    return tmp_path


def hang(up: Up) -> dict[str, str]:
    """Where the tasks stood, as the record of the run has it; the file has all stacks."""
    event = up.wait_for(lambda e: e["event"] == "run" and "hang" in e, "a look at the run")
    found: dict[str, str] = event["hang"]
    file = runs_home() / up.run_id / found["file"]
    wait_until(file.exists, "the file is written")
    made = json.loads(file.read_text())
    jsonschema.validate(made, schema())
    assert made["time"] == found["time"] and made["groups"]
    return found


def test_one_that_does_not_become_ready_in_time(folder: Path) -> None:
    """Looked at before it is called so, and told below the failure."""
    text = """
name = "late"
[jobs.worker]
tasks = ["localhost:auto", "localhost:auto"]
command = ["{python}", "hangs.py", "{index}", "1"]
ready = { log = "ends" }
[run]
grace = 1
[start]
timeout = 16
order = [["worker"]]
"""
    with Up("up", str(write(folder, text)), "--json") as up:
        found = hang(up)
        assert found["reason"] == "not-ready" and found["file"] == "stacks-not-ready.json"
        assert found["text"].startswith("worker:1 is in never hangs.py:4")
        assert found["text"].endswith("; 1 other waits in others hangs.py:6")
        assert up.wait() == 1
        notes = [event["note"] for event in up.of("note")]
        where = "worker:1 on localhost is in never hangs.py:4"
        assert any(note.startswith(f"worker:1 not ready yet: {where}") for note in notes)
        assert "  ◂ worker:1 is in never" in up.said
        assert up.said.splitlines()[-1] and f"cause: {where}" in up.said
        assert len([e for e in up.of("run") if "hang" in e and e["state"] == "starting"]) == 1


def test_one_that_makes_steps_and_never_listens(folder: Path) -> None:
    """Given a task that makes steps, and does not open the port that its file asks for, when it is
    not ready in time, then nobody says that it hangs: the failure says what it lacks, and which
    setting that is about."""
    (folder / "steps.py").write_text(STEPS)
    text = """
name = "steps"
[jobs.worker]
tasks = ["localhost:auto", "localhost:auto"]
command = ["{python}", "steps.py"]
ready = "listening"
[run]
grace = 1
[start]
timeout = 12
"""
    with Up("up", str(write(folder, text)), "--json") as up:
        assert up.wait() == 1
        assert not [event for event in up.of("run") if event.get("verdict")]
        assert "first failure: worker:0 on localhost: not ready after 12 s: it does not" in up.said
        assert "has made no step" not in up.said


def test_one_that_hangs_at_the_end(folder: Path) -> None:
    """Looked at before it is ended for its silence."""
    text = """
name = "end"
[jobs.worker]
tasks = ["localhost:auto", "localhost:auto"]
command = ["{python}", "hangs.py", "{index}", "1", "end"]
ready = "started"
[run]
grace = 1
finish_timeout = 4
"""
    with Up("up", str(write(folder, text)), "--json") as up:
        assert up.log("worker:1", "begins")
        (folder / "go").touch()
        found = hang(up)
        assert found["reason"] == "at-end"
        assert found["text"].startswith("worker:1 is in never hangs.py:4")
        assert up.wait() == 1
        assert "hangs at its end" in up.said and "all stacks: stacks-at-end.json" in up.said
        kept = run("stacks", up.run_id)
        assert kept.returncode == 2 and "stacks-at-end.json" in kept.stderr
        assert f"{up.run_id} has ended" in kept.stderr and "attach" not in kept.stderr


SERVES = """
import os, socketserver, sys, time
if sys.argv[1] == "1":
    server = socketserver.TCPServer(("localhost", 0), socketserver.BaseRequestHandler)
    print("serves", flush=True)
    server.serve_forever()
while not os.path.exists("go"):
    time.sleep(0.05)
"""


def test_one_that_serves_until_it_is_ended(tmp_path: Path) -> None:
    """Its work is to answer others: when the run has what it wants, nobody says that it hangs."""
    (tmp_path / "serves.py").write_text(SERVES)
    text = """
name = "serves"
[jobs.local]
tasks = ["localhost:auto", "localhost:auto"]
command = ["{python}", "serves.py", "{index}"]
ready = "started"
[run]
grace = 1
finish_timeout = 8
"""
    with Up("up", str(write(tmp_path, text)), "--json") as up:
        assert up.log("local:1", "serves")
        (tmp_path / "go").touch()
        assert up.wait() == 0, up.transcript()
        assert not [event for event in up.of("run") if event.get("hang")]
        (end,) = (task for task in up.of("task") if task["state"] == "stopped")
        assert end["task"] == "local:1" and "hangs" not in up.said


WAITS = """
import sys, time
print("begins", flush=True)
while sys.argv[1] == "1":
    print("I0000 00:00:1.2 3 master.cc:278] CreateSession still waiting for response from worker: "
          "/job:worker/replica:0/task:0", flush=True)
    time.sleep(0.2)
"""


def test_one_that_waits_for_one_that_has_ended(tmp_path: Path) -> None:
    """What it repeats is no output; the failure names the task that is waited for."""
    (tmp_path / "waits.py").write_text(WAITS)
    text = """
name = "waits"
[jobs.worker]
tasks = ["localhost:auto", "localhost:auto"]
command = ["{python}", "waits.py", "{index}"]
ready = "started"
[run]
grace = 1
finish_timeout = 5
"""
    with Up("up", str(write(tmp_path, text)), "--json") as up:
        assert up.wait() == 1
        reason = re.search(r"worker:1 .*: hangs at its end: (.*)", up.said)
        assert reason, up.said
        waited = r"for \d+ s it has only waited for worker:0, which had ended .* before"
        assert re.match(waited, reason[1]), up.said


def test_one_that_stalls(folder: Path) -> None:
    """Told to the hook, with the file; a run without a hook is looked at, too."""
    teller = "import pathlib, sys; pathlib.Path('told').write_text(sys.stdin.read())"
    text = f"""
name = "stalls"
[hooks]
on_stall = ["{sys.executable}", "-c", {json.dumps(teller)}]
[jobs.worker]
tasks = ["localhost:auto"]
command = ["{{python}}", "hangs.py", "{{index}}", "1", "steps"]
ready = "started"
[run]
grace = 1
"""
    with Up("up", str(write(folder, text)), "--json") as up:
        found = hang(up)
        assert found["reason"] == "stalled"
        assert re.match(r"worker:0 is in others hangs.py:6 for \d\d", found["text"]), found
        wait_until((folder / "told").exists, "the hook has run")
        wait_until(lambda: (folder / "told").read_text(), "and was told")
        told = json.loads((folder / "told").read_text())
        assert told["hang"] == found and told["folder"] == str(runs_home() / up.run_id)
        since = up.of("task")[-1]["stalled_since"]
        assert [one["stalled_since"] for one in told["stalled"]] == [since]
        listed = run("ps", "--json")
        (active,) = [one for one in json.loads(listed.stdout) if one["run"] == up.run_id]
        assert (active["stalled"], active["stalled_since"]) == (1, since)
        assert re.search(r"1 task has stalled, for \d\d s", run("ps").stderr)
        up.press_ctrl_c()
        assert up.wait() == 130


IN_EXIT = """
import atexit, os, sys, threading, time, traceback

def save():
    time.sleep(1000)

how, rank = sys.argv[1], int(os.environ["RANK"])
print("step 1 loss 0.5", flush=True)
if rank == 0:  # prints a traceback, and goes on
    try:
        raise KeyError("skipped sample")
    except KeyError:
        traceback.print_exc()
    time.sleep(1000)
if rank == 1:
    if how == "thread":
        threading.Thread(target=save).start()
    else:
        atexit.register(save)
    raise ValueError("bad sample in shard 17")
while True:  # goes on without the others
    print("works", flush=True)
    time.sleep(0.2)
"""


@variants("how", ["thread", "atexit"], test=1)
def test_one_that_has_raised_and_hangs_in_its_exit(tmp_path: Path, how: str) -> None:
    """Given a task that has printed its traceback and does not come to its end, a second one that
    prints a traceback and goes on, and a third one that works, then the first one is named at
    once, and the run ends for its exception when it has been silent for `finish_timeout`."""
    (tmp_path / "exit.py").write_text(IN_EXIT)
    text = cluster_text(
        {"worker": 3},
        command=["{python}", "exit.py", how],
        framework="torch",
        success="all",
        finish_timeout=12,
        grace=1,
        start={"order": [["worker"]], "ready": {"worker": "started"}},
    )
    with Up("up", str(write(tmp_path, text)), "--json") as up:
        event = up.wait_for(lambda e: e["event"] == "run" and "verdict" in e, "a verdict")
        verdict = event["verdict"]
        assert (verdict["tasks"], verdict["kind"]) == (["worker:1"], "raised"), verdict
        assert event["state"] == "running" and verdict["sure"], event
        raised = "raised ValueError: bad sample in shard 17"
        assert verdict["text"] == (
            f"worker:1 on localhost {raised} (exit.py:20), and hangs in its exit"
        )
        assert up.wait() == 1, up.transcript()
        end = up.of("run")[-1]
        assert end["first_failure"]["task"] == "worker:1"
        assert f"{raised}, and hangs in its exit" in end["first_failure"]["how"]
        assert (end["verdict"]["tasks"], end["verdict"]["kind"]) == (["worker:1"], "raised")
