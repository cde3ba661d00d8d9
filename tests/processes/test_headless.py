"""`tfmux up` and `plan` without a screen: output, exit codes, and bad input of every kind."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import jsonschema
import pytest

from launcher.api import Cluster, Run
from launcher.paths import runs_home
from launcher.store.runs import RunFolder
from tests.support.budgets import soak, variants
from tests.support.cluster_texts import one_task
from tests.support.command import Up, run, write
from tests.support.patience import wait_until
from tests.support.recorded import FAILED, Recording
from tests.support.recorded import GOOD as ENDED_WELL
from tests.testbed.inprocess import SshServer
from tui.commands.plan import output_schema
from tui.headless import run_headless

GOOD = """
name = "good"
[jobs.worker]
tasks = ["localhost:auto"]
[run]
command = ["{python}", "-c", "print('fine')"]
workdir = ""
[start.ready]
worker = "started"
"""


def on_server(server: SshServer, script: str = "print('fine')") -> str:
    """A cluster of one worker on the in-process SSH server."""
    return one_task(script, tasks="far", hosts=server.host_toml("far", sys.executable))


def test_a_run_that_works_ends_with_0_and_its_lines_on_stdout(tmp_path: Path) -> None:
    """stdout is the merged log, stderr tells states and the receipt."""
    done = run("up", str(write(tmp_path, GOOD)), "--headless")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "worker:0 | fine\n"
    assert "no process is left" in done.stderr


def test_several_files_need_a_terminal(tmp_path: Path) -> None:
    """None of them is launched."""
    file = str(write(tmp_path, GOOD))
    done = run(file, file)
    assert done.returncode == 2 and not done.stdout
    assert "several cluster files need a terminal on stdout" in done.stderr
    assert not RunFolder.all()


def test_json_is_one_event_a_line_with_the_documented_keys(recorded: Recording) -> None:
    """Every event has time and event; the task goes through its states in order."""
    up = recorded(ENDED_WELL)
    assert up.code == 0
    assert all(isinstance(e["time"], float) and e["event"] for e in up.events)
    states = [e["state"] for e in up.of("task")]
    assert [s for i, s in enumerate(states) if s not in states[:i]] == [
        "pending",
        "staging",
        "starting",
        "ready",
        "exited",
    ]
    assert up.of("log")[0]["text"] == "fine"
    assert up.of("receipt")[0]["clean"]


def test_without_a_terminal_the_ui_command_falls_back_to_headless(tmp_path: Path) -> None:
    """A pipe on stdout is no terminal: said on stderr, and the run goes on."""
    done = run("up", str(write(tmp_path, GOOD)))
    assert done.returncode == 0
    assert "headless" in done.stderr


def test_a_wrong_file_ends_with_2_and_starts_nothing(tmp_path: Path) -> None:
    """The file and what is wrong stand on stderr; no run folder is made."""
    wrong = write(tmp_path, GOOD.replace("localhost:auto", "tf9:2222"))
    latin = tmp_path / "latin.toml"
    latin.write_bytes(GOOD.replace("good", "gr\xfcn").encode("latin-1"))
    for file, said in ((wrong, "tf9"), (latin, "UTF-8"), (tmp_path / "no.toml", "no such file")):
        done = run("up", str(file), "--headless")
        assert done.returncode == 2 and not runs_home().exists()
        assert str(file) in done.stderr and said in done.stderr and "Traceback" not in done.stderr


def test_a_misspelled_command_names_the_nearest(tmp_path: Path) -> None:
    """`tfmux dmeo` is bad usage, exit 2, with the command that was probably meant."""
    done = run("dmeo")
    assert done.returncode == 2
    assert "'demo'" in done.stderr


def test_plan_shows_the_exact_command_and_starts_nothing(tmp_path: Path) -> None:
    """The plan of a local cluster has this interpreter, TF_CONFIG and the stages."""
    text = GOOD.replace("localhost:auto", "localhost:2222")
    done = run("plan", str(write(tmp_path, text)), "--json")
    assert done.returncode == 0
    plan = json.loads(done.stdout)
    jsonschema.Draft202012Validator.check_schema(output_schema())
    jsonschema.validate(plan, output_schema())
    assert plan["stages"] == [["worker:0"]]
    task = plan["tasks"][0]
    assert task["argv"] == [sys.executable, "-c", "print('fine')"]
    config = json.loads(task["env"]["TF_CONFIG"])
    assert config["task"] == {"type": "worker", "index": 0}
    assert config["cluster"] == {"worker": ["localhost:2222"]}
    assert not runs_home().exists()


def test_a_task_that_fails_is_named_with_its_last_lines(recorded: Recording) -> None:
    """Exit 1; stderr has the task, the host, the status and the last lines."""
    failed = recorded(FAILED)
    assert failed.code == 1
    assert "first failure: worker:1 on localhost: exit 1" in failed.said
    assert "step 1 loss 0.5" in failed.said


def test_no_line_is_lost_before_the_output_begins(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Tasks that have written before the command looks at their logs, as on a busy machine or
    after Ctrl-Z: a run that it has launched itself is printed from its first line on."""
    script = "import time\nfor n in range(6): print('line', n, flush=True)\ntime.sleep(0.5)"

    @asynccontextmanager
    async def late() -> AsyncIterator[Run]:
        async with Cluster.from_text(one_task(script), tmp_path).launch() as run:
            log = run.folder / "worker-0.log"
            written = lambda: log.exists() and b"line 5" in log.read_bytes()  # noqa: E731
            await asyncio.to_thread(wait_until, written, "the task has written")
            yield run

    assert run_headless(lambda _: late(), as_json=False) == 0
    assert capfd.readouterr().out.splitlines() == [f"worker:0 | line {n}" for n in range(6)]


def test_a_run_without_room_for_its_folder_leaves_none(tmp_path: Path) -> None:
    """A folder with half a cluster file would be reported by `ps` and `kill --all` for ever."""
    text = '[jobs.w]\ntasks = ["localhost:auto"]\n[run]\ncommand = ["true"]\n'
    file = write(tmp_path, text + f"# {'x' * 5000}\n")
    no_room = ("sh", "-c", 'ulimit -f 1; exec "$@"', "sh")
    done = run("up", str(file), "--headless", prefix=no_room)
    assert done.returncode == 2 and "cannot be written: File too large" in done.stderr, done
    done = run("kill", "--all")
    assert (done.returncode, done.stderr) == (0, "tfmux: no active runs\n")


def test_a_port_in_use_names_its_holder_and_starts_nothing(tmp_path: Path) -> None:
    """Exit 3 with the pid and command of who listens there."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        text = one_task("print('x')", tasks=f"localhost:{port}")
        done = run("up", str(write(tmp_path, text)), "--headless")
    assert done.returncode == 3
    assert f"port {port} is in use by pid {os.getpid()} " in done.stderr
    assert "nothing was started" in done.stderr


WILD = r"""
import hashlib, os, sys
body = b"\xff\xfe not utf-8\n" + b"x" * 10_000_000 + b"\n"
body += b"\x1b]52;c;ZXZpbA==\x07\x1b[2J\x1b[31mred\x1b[0m\r50%\r100%\n" + b"no newline at the end"
os.write(2, b"")
view = memoryview(body)
while view:
    view = view[os.write(1, view):]
open(sys.argv[1], "w").write(hashlib.sha256(body).hexdigest())
"""


def test_wild_output_harms_nothing_and_is_stored_byte_for_byte(tmp_path: Path) -> None:
    """Not UTF-8, 10 MB without a newline, escape sequences, no last newline: the log is equal
    to what the task wrote, and no escape reaches stdout."""
    text = one_task(WILD).replace("]\nworkdir", f', "{tmp_path}/sum"]\nworkdir')
    done = run("up", str(write(tmp_path, text)), "--headless")
    assert done.returncode == 0, done.stderr
    stored = RunFolder.all()[0].path / "worker-0.log"
    assert hashlib.sha256(stored.read_bytes()).hexdigest() == (tmp_path / "sum").read_text()
    assert "\x1b" not in done.stdout and "\x07" not in done.stdout
    assert "worker:0 | 100%\n" in done.stdout
    assert done.stdout.endswith("worker:0 | no newline at the end\n")


def test_a_run_over_ssh_works_and_leaves_no_folder(ssh_server: SshServer, tmp_path: Path) -> None:
    """The whole way over SSH; afterwards the host has no run folder."""
    done = run("up", str(write(tmp_path, on_server(ssh_server))), "--headless")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "worker:0 | fine\n"
    state = ssh_server.home / ".local/state/tfmux"
    wait_until(lambda: not list(state.iterdir()), "its agent removes it when the launcher leaves")


def unknown_key(server: SshServer, text: str) -> str:
    server.known_hosts.write_text("")
    return text


def changed_key(server: SshServer, text: str) -> str:
    server.new_host_key()
    return text


def refused_key(server: SshServer, text: str) -> str:
    server.refuse_keys = True
    return text


def no_interpreter(server: SshServer, text: str) -> str:
    return text.replace(sys.executable, "/no/such/python3")


def nobody_listens(server: SshServer, text: str) -> str:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return text.replace(f":{server.port}", f":{free.getsockname()[1]}")


@variants(
    ("fault", "said"),
    [
        (unknown_key, ["SHA256:", "--accept-new"]),
        (changed_key, ["CHANGED"]),
        (refused_key, ["refused"]),
        (no_interpreter, ["/no/such/python3", "interpreter"]),
        (nobody_listens, ["refused"]),
    ],
    test=2,
)
def test_a_host_that_cannot_be_used_ends_with_3_and_the_reason(
    fault: Callable[[SshServer, str], str], said: list[str], ssh_server: SshServer, tmp_path: Path
) -> None:
    text = fault(ssh_server, on_server(ssh_server))
    done = run("up", str(write(tmp_path, text)), "--headless")
    assert done.returncode == 3
    assert "far" in done.stderr and all(each in done.stderr for each in said), done.stderr


def test_a_login_shell_that_prints_is_no_obstacle(ssh_server: SshServer, tmp_path: Path) -> None:
    """A `.bashrc` that greets does not disturb the agent's start."""
    ssh_server.bashrc("echo welcome to this machine\n")
    done = run("up", str(write(tmp_path, on_server(ssh_server))), "--headless")
    assert done.returncode == 0, done.stderr


def test_the_working_directory_is_staged_with_its_rules(
    ssh_server: SshServer, tmp_path: Path
) -> None:
    """`.gitignore` and `exclude` are kept out, modes and inner links come along."""
    work = tmp_path / "work"
    (work / "pkg").mkdir(parents=True)
    (work / "pkg" / "mod.py").write_text("NAME = 'staged'\n")
    (work / "tool").write_text("#!/bin/sh\necho tool\n")
    (work / "tool").chmod(0o755)
    (work / "link.py").symlink_to("pkg/mod.py")
    (work / "secret.bin").write_text("x")
    (work / "big.ckpt").write_text("x")
    (work / ".gitignore").write_text("*.bin\n")
    script = (
        "import os, subprocess, pkg.mod, link; "
        "print(pkg.mod.NAME, link.NAME, subprocess.check_output(['./tool']).decode().strip(), "
        "sorted(set(os.listdir('.')) - {'__pycache__'}))"
    )
    text = on_server(ssh_server, script).replace(
        'workdir = ""', 'workdir = "work"\nexclude = ["*.ckpt"]'
    )
    done = run("up", str(write(tmp_path, text)), "--headless")
    assert done.returncode == 0, done.stderr
    assert "staged staged tool ['.gitignore', 'link.py', 'pkg', 'tool']" in done.stdout


def test_a_link_that_leaves_the_tree_is_left_out(ssh_server: SshServer, tmp_path: Path) -> None:
    """The link is named, and the run does without it."""
    work = tmp_path / "work"
    work.mkdir()
    (work / "evil").symlink_to("/etc/passwd")
    text = on_server(ssh_server).replace('workdir = ""', 'workdir = "work"')
    done = run("up", str(write(tmp_path, text)), "--headless")
    assert done.returncode == 0, done.stderr
    assert "evil" in done.stderr and "outside" in done.stderr


def test_terminated_by_the_machine_it_ends_with_143(tmp_path: Path) -> None:
    """TERM to the launcher ends everything first."""
    text = one_task("import time; print('up', flush=True); time.sleep(100)")
    with Up("up", str(write(tmp_path, text)), "--json") as up:
        up.log("worker:0", "up")
        up.process.terminate()
        assert up.wait() == 143
        assert up.of("receipt")[0]["clean"]


REMARKS = """
import time
for _ in range(3):
    print("I0000 00:00:1795302445.880037  934911 cudart_stub.cc:31] Could not find cuda drivers on "
          "your machine, GPU will not be used.")
    print("I0000 00:00:1795302445.880037  934911 fork_posix.cc:75] Other threads are currently "
          "calling into gRPC, skipping fork() handlers")
    print("trains", flush=True)
print("E0000 00:00:1795302448.8141  935012 cuda_platform.cc:52] failed call to cuInit", end="")
"""


def test_remarks_are_left_out_where_that_is_wanted(tmp_path: Path) -> None:
    """The merged log has the rest, stderr says how many at the task's end, the file has all."""
    done = run("up", str(write(tmp_path, one_task(REMARKS))), "--headless", "--quiet-remarks")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[:3] == ["worker:0 | trains"] * 3
    assert lines[3:] == [
        "worker:0 | E0000 00:00:1795302448.8141  935012 cuda_platform.cc:52] failed call to cuInit"
    ]
    left_out = "worker:0: 6 routine messages of TensorFlow and gRPC left out"
    assert done.stderr.count("left out") == 1
    assert done.stderr.index("worker:0 on localhost exited") < done.stderr.index(left_out)
    (folder,) = runs_home().iterdir()
    assert (folder / "worker-0.log").read_text().count("cudart_stub") == 3


@variants("words", [["--headless"], ["--json", "--quiet-remarks"], soak(["--json"])], test=1)
def test_remarks_are_there_otherwise(tmp_path: Path, words: list[str]) -> None:
    """In JSON always."""
    done = run("up", str(write(tmp_path, one_task(REMARKS))), *words)
    assert done.stdout.count("cudart_stub.cc:31]") == 3
    assert "left out" not in done.stderr
