"""Warm start of whole runs: what happens before a stage, and what does not."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import jsonschema
import pytest

from launcher.paths import runs_home
from launcher.store.runs import RunFolder
from tests.support.command import Up, run, write
from tests.testbed import proc
from tests.testbed.inprocess import SshServer
from tui.commands.plan import output_schema

SLOW = """
import pathlib, time
print("imports slow", flush=True)
while not pathlib.Path("imported").exists():
    time.sleep(0.02)
"""
"""A module whose import takes until the test says so."""

TASK = """
import os, socket, sys, time
task, port = sys.argv[1:]
print("begins", "slow" in sys.modules, os.environ["TF_CONFIG"][:1], flush=True)
server = socket.create_server(("127.0.0.1", int(port)))
while not os.path.exists(f"end-{task}"):
    time.sleep(0.05)
print("ends", flush=True)
"""
PS_WAITS = TASK.replace(
    "server =", "while task == 'ps:0' and not os.path.exists('go'): time.sleep(0.05)\nserver =", 1
)
CLUSTER = """
name = "warm"
[jobs.ps]
tasks = ["localhost:auto"]
[jobs.worker]
tasks = ["localhost:auto", "localhost:auto"]
[run]
command = ["{{python}}", "-u", "task.py", "{{job}}:{{index}}", "{{port}}"]
grace = 5
{run}
[start]
order = [["ps"], ["worker:0"], ["worker"]]
warm = {warm}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A program that listens, and a module whose import takes until `imported` is there."""
    (tmp_path / "task.py").write_text(TASK)
    (tmp_path / "slow.py").write_text(SLOW)
    return tmp_path


def cluster(folder: Path, warm: str = '["slow"]', settings: str = "", **changes: str) -> Path:
    text = CLUSTER.format(warm=warm, run=settings)
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    return write(folder, text)


def end(folder: Path, *tasks: str) -> None:
    for task in tasks:
        (folder / f"end-{task}").touch()


def pid_at_gate(up: Up, task: str) -> int:
    """The pid of a task that imports or waits; its stage may have come in the same moment."""
    event = up.wait_for(
        lambda e: (
            e.get("task") == task and e.get("state") in ("warming", "starting") and "pid" in e
        ),
        f"the process of {task}",
    )
    return int(event["pid"])


def begin_of(up: Up, task: str) -> float:
    return float(up.log(task, "begins")["time"])


def test_all_import_at_once_and_begin_in_their_order(folder: Path) -> None:
    """Each task has one process from the beginning. No program begins before the stage before it
    listens, although all have imported long ago; the log has what imports and program print."""
    with Up("up", str(cluster(folder)), "--json") as up:
        for task in ("worker:0", "worker:1"):
            up.log(task, "imports slow")
        pids = {task: pid_at_gate(up, task) for task in ("worker:0", "worker:1")}
        (folder / "imported").touch()
        listening = float(up.state("ps:0", "ready")["time"])
        for task in ("worker:0", "worker:1"):
            assert begin_of(up, task) >= listening
            listening = float(up.state(task, "ready")["time"])
            assert up.state(task, "ready")["pid"] == pids[task]
        end(folder, "worker:0", "worker:1")
        assert up.wait() == 0, up.transcript()
    states = [e["state"] for e in up.of("task") if e["task"] == "worker:1"]
    wanted = ["pending", "staging", "warming", "starting", "ready", "exited"]
    assert list(dict.fromkeys(states)) == wanted
    logs = RunFolder(runs_home() / up.run_id).path
    assert (logs / "ps-0.log").read_text().startswith("begins False {\n")
    assert (logs / "worker-1.log").read_text() == "imports slow\nbegins True {\nends\n"


def test_a_kill_while_all_wait_leaves_nothing(folder: Path) -> None:
    """Tasks at their gates, or in an import, end with the run; the receipt says so."""
    (folder / "task.py").write_text(PS_WAITS)
    with Up("up", str(cluster(folder)), "--json") as up:
        up.log("worker:0", "imports slow")
        pid = pid_at_gate(up, "worker:0")
        up.press_ctrl_c()
        assert up.wait() == 130, up.transcript()
    assert up.of("receipt")[-1]["clean"]
    assert proc.read(pid) is None
    assert {e["state"] for e in up.of("task") if e["task"] == "worker:0"} == {
        *("pending", "staging", "warming", "killed")
    }


def test_a_dead_launcher_is_followed_by_one_that_releases(folder: Path) -> None:
    """Killed while its tasks wait: they wait on, and the next launcher goes on with the stages."""
    file = cluster(folder, settings='on_disconnect = "keep"\nlease = 60')
    (folder / "task.py").write_text(PS_WAITS)
    (folder / "imported").touch()
    with Up("up", str(file), "--json") as up:
        up.log("ps:0", "begins")
        up.log("worker:0", "imports")
        up.log("worker:1", "imports")
        pids = [pid_at_gate(up, f"worker:{index}") for index in (0, 1)]
        run_id = up.run_id
        up.kill_launcher()
    assert all((process := proc.read(pid)) and process.alive for pid in pids)
    with Up("attach", run_id, "--json") as again:
        again.state("worker:1", "warming")
        (folder / "go").touch()
        for index in (0, 1):
            ready = again.state(f"worker:{index}", "ready")
            assert (ready["pid"], ready["attempt"]) == (pids[index], 1)
        end(folder, "worker:0", "worker:1")
        assert again.wait() == 0, again.transcript()
    assert proc.read(pids[0]) is None


def test_a_restart_in_its_stage_waits_for_nothing(folder: Path) -> None:
    """The next attempt is an ordinary start; the one before waited at its gate."""
    (folder / "imported").touch()
    file = cluster(folder, settings='on_failure = "restart"\nmax_restarts = 1')
    task = folder / "task.py"
    failing = "if task == 'worker:1' and not os.path.exists('tried'):\n"
    failing += "    open('tried', 'w').close()\n    sys.exit(3)\nserver ="
    task.write_text(TASK.replace("server =", failing, 1))
    with Up("up", str(file), "--json") as up:
        up.wait_for(
            lambda e: (e.get("task"), e.get("state"), e.get("attempt")) == ("worker:1", "ready", 2),
            "the second attempt",
        )
        end(folder, "worker:0", "worker:1")
        assert up.wait() == 0, up.transcript()
    log = (RunFolder(runs_home() / up.run_id).path / "worker-1.log").read_text()
    assert log == "imports slow\nbegins True {\nbegins False {\nends\n"


def test_setup_and_interpreter_options_are_kept(folder: Path) -> None:
    """The shell line runs before the imports, and neither sees nor closes the gate."""
    (folder / "imported").touch()
    lines = "export SET=$(cat)up; exec </dev/null; echo $SET"
    file = cluster(folder, settings=f"setup = {json.dumps(lines)}", **{'"-u"': '"-uB"'})
    task = folder / "task.py"
    task.write_text(
        "import sys; print(sys.flags.dont_write_bytecode, sys.stdin.read() == '')\n" + TASK
    )
    with Up("up", str(file), "--json") as up:
        up.state("worker:1", "ready")
        end(folder, "worker:0", "worker:1")
        assert up.wait() == 0, up.transcript()
    log = (RunFolder(runs_home() / up.run_id).path / "worker-1.log").read_text()
    assert log == "up\nimports slow\n1 True\nbegins True {\nends\n"


def test_a_module_that_one_host_lacks_is_named(folder: Path) -> None:
    """The run fails at once, by the task of that host; the message names module and key."""
    (folder / "imported").touch()
    with SshServer(folder / "server") as server:
        text = cluster(folder, '["slow", "only_here"]').read_text()
        text = text.replace("[jobs.ps]", server.host_toml("far", sys.executable) + "[jobs.ps]")
        text = text.replace('["localhost:auto", "localhost:auto"]', '["far:auto", "far:auto"]', 1)
        text = text.replace("[jobs.ps]", '[hosts.localhost]\naddress = "127.0.0.1"\n[jobs.ps]')
        (folder / "only_here.py").write_text("")
        text = text.replace("[run]\n", '[run]\nexclude = ["only_here.py", "server"]\n', 1)
        done = run("up", str(write(folder, text)), "--headless")
    assert done.returncode == 1, done.stderr
    assert "ModuleNotFoundError: No module named 'only_here'" in done.stderr
    assert "cannot import only_here, which is listed in warm in [start]" in done.stderr
    assert "worker:" in done.stderr and "on far" in done.stderr


def test_the_plan_says_what_is_imported(folder: Path) -> None:
    """`tfmux plan` names the modules; its commands are the ordinary ones."""
    assert "\n    warm:    slow\n" in run("plan", str(cluster(folder))).stdout
    answer = json.loads(run("plan", str(cluster(folder)), "--json").stdout)
    jsonschema.validate(answer, output_schema())
    assert [task["warm"] for task in answer["tasks"]] == [[], ["slow"], ["slow"]]
    assert answer["tasks"][0]["argv"][1:3] == ["-u", "task.py"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ('"tensorflow"', 'write true, false or a list of modules, such as ["torch"]'),
        ("[1]", "write the names of modules in quotes"),
        ('["torch nn"]', "write the names of modules in quotes"),
        ('["./torch.py"]', "write the names of modules in quotes"),
        ("{}", "write true, false or a list of modules"),
    ],
)
def test_other_values_are_errors_of_the_file(folder: Path, value: str, expected: str) -> None:
    """Key and line are named."""
    done = run("plan", str(cluster(folder, value)))
    assert done.returncode == 2
    assert expected in done.stderr and "warm" in done.stderr


def test_false_starts_each_task_in_its_stage(folder: Path) -> None:
    """No process before it."""
    with Up("up", str(cluster(folder, "false")), "--json") as up:
        up.state("worker:1", "ready")
        end(folder, "worker:0", "worker:1")
        assert up.wait() == 0, up.transcript()
    assert "warming" not in {e["state"] for e in up.of("task")}
    born = [e for e in up.of("task") if e["state"] == "starting" and "pid" in e]
    assert [e["task"] for e in born] == ["ps:0", "worker:0", "worker:1"]
