"""Commands that put themselves in the background, on this machine: what the run says of them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from tests.support.command import run, write

WORK = r"import time\nend = time.process_time() + 1\nwhile time.process_time() < end: pass"
CLUSTER = """
name = "background"
[run]
workdir = ""
on_failure = "keep"
success = "all"
[hosts.localhost]
[jobs.daemon]
command = ["sh", "-c", "setsid sleep 1000 > /dev/null 2>&1 &"]
tasks = ["localhost:auto"]
in_cluster = false
{jobs}
[start.ready]
worker = "started"
"""


def test_a_command_that_only_starts_another_in_the_background_fails(tmp_path: Path) -> None:
    """The form of nearly every launch script: the run ends with 1, and its summary names what was
    left and what to write instead; a job outside of the cluster may leave a daemon."""
    jobs = """
[jobs.worker]
command = ["sh", "-c", "nohup sleep 1000 > log 2>&1 &"]
tasks = ["localhost:auto"]
"""
    file = write(tmp_path, CLUSTER.format(jobs=jobs))
    done = run("up", str(file), "--headless", "--json")
    assert done.returncode == 1, done.stderr
    said = (
        "failed, exit 0 (left 1 process, sleep 1000, which was ended: start it in the foreground, "
    )
    assert f"worker:0 on localhost: {said}without & and nohup)" in done.stderr
    views = [e for e in map(json.loads, done.stdout.splitlines()) if e["event"] == "task"]
    last = {view["task"]: view for view in views}
    assert last["worker:0"]["state"] == "failed" and last["worker:0"]["exit_code"] == 0
    assert last["worker:0"]["left"]["processes"][0]["command"] == "sleep 1000"
    assert last["daemon:0"]["exit_code"] == 0 and "left" not in last["daemon:0"]
    assert "no process is left" in done.stderr


def test_a_command_that_fails_in_the_background_fails(tmp_path: Path) -> None:
    """Though nothing of it is left: the summary says with which status it ended."""
    jobs = """
[jobs.worker]
command = ["sh", "-c", "nohup python3 missing.py > /dev/null 2>&1 &"]
tasks = ["localhost:auto"]
"""
    done = _up(tmp_path, jobs)
    assert done.returncode == 1, done.stderr
    assert "failed, exit 0 (left 1 process, " in done.stderr
    assert ", which failed (exit 2): start it in the foreground" in done.stderr


def test_a_filter_that_finds_nothing_is_no_failure(tmp_path: Path) -> None:
    """`grep -v` of a process substitution ends with 1, behind the program that it has filtered."""
    jobs = """
[jobs.worker]
command = ["bash", "-c", "exec python3 -c 'print(1)' 2> >(grep -v warning >&2)"]
tasks = ["localhost:auto"]
"""
    done = _up(tmp_path, jobs)
    assert done.returncode == 0, done.stderr
    assert "grep" not in done.stderr


def test_a_program_that_has_worked_may_leave_a_helper(tmp_path: Path) -> None:
    """The run is a success, with a note that names the helper, which ends with the run."""
    jobs = """
[jobs.worker]
command = ["sh", "-c", "sleep 1000 & python3 -c '{WORK}'"]
tasks = ["localhost:auto"]
"""
    done = _up(tmp_path, jobs.replace("{WORK}", WORK))
    assert done.returncode == 0, done.stderr
    assert (
        "worker:0 on localhost left 1 process, sleep 1000, which ends with the run" in done.stderr
    )
    assert "no process is left" in done.stderr


def test_check_and_plan_warn_of_it(tmp_path: Path) -> None:
    """Both still do what they do otherwise."""
    jobs = """
[jobs.worker]
command = ["sh", "-c", "nohup sleep 1000 > log 2>&1 &"]
tasks = ["localhost:auto"]
"""
    file = str(write(tmp_path, CLUSTER.format(jobs=jobs)))
    planned, checked = run("plan", file), run("check", file)
    said = "it ends in &, with nohup: the task ends at once"
    assert planned.returncode == 0 and f"worker:0: {said}" in planned.stderr
    assert said not in planned.stdout
    assert checked.returncode == 0 and said in checked.stdout
    assert "[command-background]" in checked.stdout


def _up(folder: Path, jobs: str) -> subprocess.CompletedProcess[str]:
    return run("up", str(write(folder, CLUSTER.format(jobs=jobs))), "--headless")
