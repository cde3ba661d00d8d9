"""`tfmux check` as its users run it: table, matrix, JSON, exit codes, first contact."""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import asyncssh
import jsonschema
from rich.console import Console

from launcher.hosts.host_keys import accepted_keys
from launcher.ids import TaskId
from launcher.preflight import Reach, Reachability, Report, report_schema
from tests.support.budgets import variants
from tests.support.command import Up, run, write
from tests.support.patience import PATIENCE, wait_until
from tests.testbed import proc
from tests.testbed.inprocess import SshServer
from tui.commands.check import render

JOBS = """
[jobs.worker]
tasks = [{tasks}]
[run]
command = ["{{python}}", "train.py"]
workdir = ""
"""


def here(tmp_path: Path, *ports: object) -> str:
    """The file of a cluster on this machine; returns its path."""
    (tmp_path / "train.py").touch()
    tasks = ", ".join(f'"localhost:{port}"' for port in ports)
    return str(write(tmp_path, JOBS.format(tasks=tasks)))


def there(tmp_path: Path, server: SshServer) -> str:
    """The file of a cluster on a host whose key nobody knows."""
    (tmp_path / "nobody").touch()
    table = server.host_toml("far", sys.executable)
    table = table.replace(str(server.known_hosts), str(tmp_path / "nobody"))
    jobs = JOBS.format(tasks='"far:auto"').replace("train.py", "-V")
    return str(write(tmp_path, table + jobs))


def agents() -> set[int]:
    """The agents, watchdogs and bridges of this test's preflights."""
    ours = [
        p
        for p in proc.scan(having="TFMUX_AGENT=check-")
        if p.environ.get("HOME") == os.environ["HOME"]
    ]
    return {p.pid for p in ours if p.environ.get("TFMUX_AGENT", "").startswith("check-")}


def test_what_may_go_wrong_later_is_a_warning_with_its_line(tmp_path: Path) -> None:
    """A hook that is not there: the run goes on without it; one that is there is nothing to tell.
    Ranks that only start together and are restarted alone: with `restart-all` there is none."""
    rule = '[run]\nframework = "jax"\nsuccess = "all"\non_failure = "restart"\n'
    hooks = '[hooks]\non_end = ["sh", "-c", ":"]\non_failure = ["./page-me.sh"]\n'
    file = Path(here(tmp_path, "auto"))
    text = file.read_text().replace("train.py", "-V").replace("[run]\n", rule) + hooks
    file.write_text(text)
    done = run("check", str(file), "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    jsonschema.validate(report, report_schema())
    (hook,) = [each for each in report["findings"] if each["code"] == "hook-missing"]
    line = text.splitlines().index('on_failure = ["./page-me.sh"]') + 1
    assert f"hooks.on_failure ({file}:{line}): " in hook["sentence"]
    assert f"{tmp_path}/page-me.sh: no such file" in hook["sentence"]
    (alone,) = [each for each in report["findings"] if each["code"] == "restart-alone"]
    line = text.splitlines().index('on_failure = "restart"') + 1
    assert f"run.on_failure ({file}:{line}" in alone["sentence"] and "restart-all" in alone["todo"]
    for found in (hook, alone):
        assert (found["severity"], found["host"]) == ("warn", "localhost")
    file.write_text(text.replace('"restart"', '"restart-all"').replace("./page-me.sh", "sh"))
    done = run("check", str(file), "--json")
    codes = {found["code"] for found in json.loads(done.stdout)["findings"]}
    assert not codes & {"restart-alone", "hook-missing"}


def test_a_machine_that_is_fine_ends_with_0(tmp_path: Path, tfmux_home: Path) -> None:
    """A table on stdout, nothing on stderr, nothing left of the agent."""
    done = run("check", here(tmp_path, "auto", "auto"))
    assert (done.returncode, done.stderr) == (0, "")
    lines = {line.split()[0]: line for line in done.stdout.splitlines() if line}
    assert "✓ 2." in lines["tensorflow"] and "✓ all 2" in lines["reach"]
    assert "✓ ready to launch" in done.stdout.splitlines()[-1]
    assert not list((tfmux_home / ".local/state/tfmux").iterdir())
    assert not (tfmux_home / ".local/share/tfmux").exists()


def test_a_python_too_old_for_the_bundled_trainer_ends_with_3(tmp_path: Path) -> None:
    """A program of one's own may run with it."""
    answer = {"version": "3.9.2", "executable": "/usr/bin/python3", "tensorflow": "2.5.0"}
    python = tmp_path / "python3.9"
    python.write_text(f"#!/bin/sh\necho '{json.dumps(answer | {'there': True})}'\n")
    python.chmod(0o755)
    file = Path(here(tmp_path, "auto"))
    own = file.read_text().replace("{python}", str(python))
    file.write_text(own)
    assert run("check", str(file)).returncode == 0
    file.write_text(own.replace('"train.py"', '"{trainer}", "async"'))
    done = run("check", str(file), "--json")
    assert done.returncode == 3, done.stdout
    (found,) = [each for each in json.loads(done.stdout)["findings"] if each["severity"] == "error"]
    assert (found["code"], found["check"]) == ("python-old", "python")
    assert found["sentence"] == (
        f"the bundled trainer needs Python 3.10 or newer, and {python} is 3.9.2"
    )


def test_a_taken_port_ends_with_3_and_names_its_holder(tmp_path: Path) -> None:
    """Pid and command line, here those of this very test; one with escape sequences in it is shown
    without them, and cannot act on the terminal."""
    code = "import socket, sys\ns = socket.create_server(('', 0))\n"
    code += "print(s.getsockname()[1], flush=True)\nsys.stdin.read()"
    argv = [sys.executable, "-c", code, "\x1b]52;c;cm0=\x07\x1b[2J"]
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder,
    ):
        assert holder.stdout is not None
        ours, theirs = server.getsockname()[1], int(holder.stdout.readline())
        done = run("check", here(tmp_path, ours, theirs))
    assert done.returncode == 3
    assert f"port {ours} is in use by pid {os.getpid()} (" in done.stdout
    assert f"port {theirs} is in use by pid {holder.pid}" in done.stdout
    assert "[port-in-use]" in done.stdout
    assert "   2 errors" in done.stdout.splitlines()[-1]
    assert "\x1b" not in done.stdout and "\x07" not in done.stdout


def test_a_large_matrix_shows_what_is_wrong_alone() -> None:
    """Tasks that are reached from everywhere are one line; each table fits the width."""
    hosts = ("one-host", "another")
    pairs = tuple(
        Reachability(host, TaskId("worker", number), "far", f"far:{2000 + number}", Reach.OK)
        for host in hosts
        for number in range(40)
    )
    bad = replace(pairs[7], reach=Reach.FILTERED)
    report = Report("x", hosts, (), (*pairs[:7], bad, *pairs[8:]), (), 1.0)
    console = Console(file=io.StringIO(), width=40)
    render(report, console)
    text = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert "39 of 40 tasks are reached from everywhere" in text
    assert [line for line in text if "worker:" in line and "filtered" in line]
    assert not [line for line in text if "worker:8 " in line]
    assert max(map(len, text)) <= 44


def test_a_port_below_1024_is_refused_to_an_ordinary_user(tmp_path: Path) -> None:
    """The task would fail with the same reason, later. Root is made ordinary in this respect."""
    ordinary = ["setpriv", "--bounding-set=-net_bind_service", "--inh-caps=-net_bind_service"]
    done = run("check", here(tmp_path, 81), prefix=ordinary if os.geteuid() == 0 else [])
    assert done.returncode == 3 and "[port-forbidden]" in done.stdout


def test_a_bad_file_ends_with_2(tmp_path: Path) -> None:
    """Nothing is looked at."""
    done = run("check", str(write(tmp_path, "[jobs.worker]\ntasks = 3\n")))
    assert done.returncode == 2 and "jobs.worker.tasks" in done.stderr and done.stdout == ""


def test_first_contact_is_refused_accepted_and_then_known(
    tmp_path: Path, ssh_server: SshServer
) -> None:
    """Without --accept-new the fingerprint is told, with it the key is kept, then it is known."""
    file = there(tmp_path, ssh_server)
    key = asyncssh.import_public_key(ssh_server.host_key.public).get_fingerprint()
    first = run("check", file)
    assert first.returncode == 3 and key in first.stdout and "--accept-new" in first.stdout
    assert not accepted_keys().exists()
    second = run("check", file, "--accept-new")
    assert second.returncode == 0, second.stdout
    assert second.stdout.startswith(f"far: trusted from now on: [127.0.0.1]:{ssh_server.port} ")
    assert key in second.stdout.splitlines()[0]
    third = run("check", file, "--json")
    assert third.returncode == 0 and json.loads(third.stdout)["accepted"] == []


def test_an_interpreter_that_is_too_old_is_told_by_its_version(
    tmp_path: Path, ssh_server: SshServer
) -> None:
    """A real interpreter that says it is Python 3.6."""
    old = tmp_path / "python3.6"
    code = "import sys; sys.version_info = (3, 6, 8, 'final', 0); exec(sys.argv[-1])"
    old.write_text(f'#!/bin/sh\nexec {sys.executable} -IS -c "{code}" "$@"\n')
    old.chmod(0o755)
    table = ssh_server.host_toml("far", str(old))
    done = run("check", str(write(tmp_path, table + JOBS.format(tasks='"far:auto"'))))
    assert done.returncode == 3 and "Python 3.6 is too old" in done.stdout


@variants("end", [signal.SIGINT, signal.SIGKILL], test=1)
def test_nothing_stays_when_a_check_is_ended(
    tmp_path: Path, ssh_server: SshServer, end: signal.Signals
) -> None:
    """Neither after Ctrl-C nor after a SIGKILL, whatever a question waits for."""
    slow = tmp_path / "python-slow"
    slow.write_text(
        f'#!/bin/sh\ncase "$*" in *tensorflow*) sleep 30;; esac\nexec {sys.executable} "$@"\n'
    )
    slow.chmod(0o755)
    file = write(tmp_path, JOBS.format(tasks='"localhost:auto"').replace("{python}", str(slow)))
    argv = [sys.executable, "-m", "tui.main", "check", str(file)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        # the program, and the process of at least one question
        wait_until(lambda: len(agents()) >= 2, "the program of the preflight is there")
        child.send_signal(end)
        child.communicate(timeout=PATIENCE)
    wait_until(lambda: not agents(), "none is left")


_DAEMON = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print("daemon", os.getpid(), flush=True)
        time.sleep(1000)
    os._exit(0)
time.sleep(1000)
"""


def test_leftovers_of_a_dead_run_are_found_and_the_named_command_ends_them(tmp_path: Path) -> None:
    """Launcher, watchdog and agent are killed at once; a daemon with the run's tag lives on."""
    (tmp_path / "run").mkdir()
    text = JOBS.format(tasks='"localhost:auto"') + "lease = 600\n"
    text = text.replace('"train.py"', f'"-c", {json.dumps(_DAEMON)}')
    file = write(tmp_path / "run", text.replace("[run]", 'ready = "started"\n[run]'))
    with Up("up", str(file), "--json") as up:
        pid = int(up.log("worker:0", "daemon")["text"].split()[-1])
        run_id = up.run_id
        tag = f"{run_id};"
        doomed = [each for each in proc.scan(having=tag) if each.environ.get("TFMUX_AGENT") == tag]
        client, launcher = proc.read(up.process.pid), proc.read(up.launcher)
        assert client is not None and launcher is not None
        assert len(doomed) == 3  # bridge, watchdog, agent
        for number in (signal.SIGSTOP, signal.SIGKILL):  # so that none can react to another's end
            for each in (client, launcher, *doomed):
                proc.signal_process(each, number)
    daemon = proc.read(pid)
    assert daemon is not None and daemon.alive
    try:
        (found,) = left_of(run_id, tmp_path)
        assert found["severity"] == "warn"
        assert f"processes of worker:0 are running: pid {pid} " in found["sentence"]
        *_, command, name = found["todo"].split()
        assert run(command, name).returncode == 4  # there may be others, which left no mark
        assert proc.wait_gone(daemon)
    finally:
        proc.signal_process(daemon, signal.SIGKILL)
    assert left_of(run_id, tmp_path) == []


def left_of(run_id: str, tmp_path: Path) -> list[dict[str, str]]:
    """The findings of a check on this machine about one run; other tests may leave others."""
    done = run("check", here(tmp_path, "auto"), "--json")
    assert done.returncode == 0, done.stdout
    findings = json.loads(done.stdout)["findings"]
    return [f for f in findings if f["code"] == "leftovers" and run_id in f["sentence"]]
