"""Runs on hosts that a command reaches: containers, `ssh` itself, other users, namespaces; and
commands that do more than pass on. What holds for every run is in `test_contract`."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import tempfile
from pathlib import Path

import pytest

from tests.support import command
from tests.support.bed import gone
from tests.support.budgets import soak, variants
from tests.support.patience import wait_until
from tests.support.requirements import require, require_testbed
from tests.support.scenario import back, confirmed, last_states, lost, ready, receipt
from tests.support.training import training
from tests.support.via import SYSTEM_PYTHON, Containers, Via, commands, signal_commands
from tests.testbed import proc
from tests.testbed.containers import Container
from tests.testbed.namespaces import Testbed

LONG = "lease = 600\ngrace = 1"


def folders(containers: Containers, run_id: str) -> set[str]:
    """The containers that have a folder of a run."""
    state = "home/root/.local/state/tfmux"
    found = containers.containers.items()
    return {name for name, each in found if [*each.root.glob(f"{state}/{run_id}*")]}


@pytest.mark.prove
def test_a_container_that_is_stopped(containers: Containers) -> None:
    """Given a task in a container, when that is killed, then the task is gone with it, the run says
    which host cannot be asked, exit 4, and the others keep nothing of it."""
    with Container() as third:
        containers.containers["c3"] = third
        places = {"ps": ["c1"], "worker": ["c3", "c2"]}
        with containers.up(containers.file(places, run="lease = 8\ngrace = 1")) as up:
            ready(up, *containers.tasks)
            assert folders(containers, up.run_id) == {"c1", "c2", "c3"}
            third.stop()
            lost(up, "c3")
            assert up.wait() == 4, up.transcript()
            assert not receipt(up)["c3"]["confirmed"] and receipt(up)["c1"]["confirmed"]
        assert not commands(up.run_id)
        assert folders(containers, up.run_id) <= {"c3"}


@pytest.mark.soak
def test_tensorflow_trains_in_containers(containers: Containers) -> None:
    """Given a ps and two workers of the bundled trainer, on the embedded data; when they are done;
    then the run is a success."""
    text = training(containers.hosts_toml({"c1", "c2"}), ("c1", "c1", "c2"))
    with containers.up(command.write(containers.folder, text)) as up:
        assert up.wait(300) == 0, up.transcript()
        states = last_states(up)
        assert states["worker:0"] == states["worker:1"] == "exited" and confirmed(up)
        assert up.of("metric")
    containers.wait_dead(up.run_id)


# --- other commands ---------------------------------------------------------------------------


@variants("program", ["sudo", soak("setpriv"), "unshare", "sh"], test=1)
def test_other_commands(program: str, tmp_path: Path) -> None:
    """Given a host behind `sudo`, `setpriv`, `unshare` or `sh`, when that command is killed, then
    the tasks go on, since the agent has our own end of the stream, and Ctrl-C ends the run as
    ever."""
    require_testbed()
    if program != "sh" and shutil.which(program) is None:
        require(f"{program} is not installed")
    home = Path(tempfile.mkdtemp(dir="/tmp"))  # `tmp_path` is closed to other users
    os.chown(home, 65534, 65534)
    environ = ("env", f"HOME={home}")
    via = {
        "sudo": ("sudo", "-n", "-u", "nobody", *environ),
        "setpriv": ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *environ),
        "unshare": ("unshare", "--mount", "--uts", "--ipc", *environ),
        "sh": ("sh", "-c", f"cd {home}; exec {{command}}"),
    }[program]
    bed = Via(tmp_path, via, python=SYSTEM_PYTHON, ledgers=home / "ledger")
    try:
        with bed.up(bed.file(modes={"worker": "stubborn daemon"}, run=LONG)) as up:
            ready(up, *bed.tasks)
            wait_until(lambda: [p for p in bed.left() if not p.environ], "daemons live")
            users = {p.uid for p in bed.left() if (p.tag or "").endswith("/1;")}
            assert users == {65534 if program in ("sudo", "setpriv") else 0}
            pids = {e["task"]: e["pid"] for e in up.of("task") if "pid" in e}
            signal_commands(up, signal.SIGKILL)
            size = len(up.of("log"))
            wait_until(lambda: len(up.of("log")) > size + 20, "logs go on")
            assert not any(e["state"] == "lost" for e in up.of("host"))
            assert {e["task"]: e["pid"] for e in up.of("task") if "pid" in e} == pids
            up.press_ctrl_c()
            assert up.wait() == 130, up.transcript()
            assert confirmed(up)
        bed.wait_dead(up.run_id)
        bed.check_logs(up.run_id)
    finally:
        shutil.rmtree(home)


@pytest.mark.prove
def test_ssh_as_the_command(testbed: Testbed, tmp_path: Path, tfmux_home: Path) -> None:
    """Given a host behind `ssh` with `{command}`, when that `ssh` is killed, then another one
    reaches the agent again, and at the end of the run nothing is left, here or on the host."""
    testbed.give_access(tfmux_home)
    host = testbed["tf3"]
    config = ["-F", str(tfmux_home / ".ssh/config"), "-o", "BatchMode=yes"]
    via = ["ssh", *config, "tf3", "{command}"]
    bed = Via(tmp_path, via, python=SYSTEM_PYTHON, address="tf3", ledgers=host.disk / "tmp/ledger")
    env = {"LEDGER": "/tmp/ledger"}
    with bed.up(bed.file(modes={"worker": "stubborn child daemon"}, run=LONG, env=env)) as up:
        ready(up, *bed.tasks)
        signal_commands(up, signal.SIGKILL)
        back(up, "c1")
        up.press_ctrl_c()
        assert up.wait() == 130, up.transcript()
        assert confirmed(up)
    bed.wait_dead(up.run_id)
    gone(host.leftovers, "nothing is left on the host")
    bed.check_logs(up.run_id)


@pytest.mark.prove
def test_a_namespace_that_ends_with_its_command(tmp_path: Path) -> None:
    """Given a host behind `unshare --pid`, when the command is killed and the kernel ends agent and
    tasks with it, then exit 4: the next agent does not confirm what it cannot see."""
    require_testbed()
    bed = Via(tmp_path, ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"])
    with bed.up(bed.file(modes={"worker": "daemon"}, run=LONG)) as up:
        ready(up, *bed.tasks)
        signal_commands(up, signal.SIGKILL)
        back(up, "c1")
        assert up.wait() == 4, up.transcript()
        assert not confirmed(up)
        assert set(last_states(up).values()) <= {"failed", "killed", "stopped"}
    bed.wait_dead(up.run_id)


# --- commands that do more than pass on -------------------------------------------------------


@pytest.mark.prove
def test_a_command_that_goes_on(tmp_path: Path) -> None:
    """Given a `via` command that goes on when the agent has ended, when the run is killed, then
    what lives in the command's session is ended, too."""
    require_testbed()
    bed = Via(tmp_path, ["sh", "-c", '"$@"; exec sleep 4711', "sh"])
    with bed.up(bed.file(run=LONG)) as up:
        ready(up, *bed.tasks)
        up.press_ctrl_c()
        assert up.wait() == 130, up.transcript()
        assert confirmed(up)
    bed.wait_dead(up.run_id)


BAD = [
    (["no-such-program"], ("there is no program no-such-program", "or correct via")),
    (["script", "-qec", "{command}", "/dev/null"], ("a terminal is in between",)),
    (["sh", "-c", "{command} | dd bs=1M iflag=fullblock status=none"], ("holds output",)),
    (["sh", "-c", "{command} | sed -u 's/$/\\r/'"], ("changes line ends",)),
    (["sh", "-c", "test -t 0 || exit 7", "-t"], ("has no terminal to give it",)),
    (["true"], ("ended with status 0 before the agent had started",)),
    (["sh", "-c", "exec sleep SECONDS"], ("gave no answer in 30 s (no output)",)),
]
"""Commands that do not pass on what they should, and what is said of each."""


def test_commands_that_do_not_pass_on(tmp_path: Path) -> None:
    """Given hosts behind commands that change or keep what passes; when a run is to be launched;
    then nothing is started: exit 3, with each command's name and what to change."""
    require_testbed()
    seconds = str(1_000_000 + os.getpid())  # other tests have commands of their own meanwhile
    hosts, names = "", [f"c{number}" for number in range(len(BAD))]
    for name, (words, _) in zip(names, BAD, strict=True):
        via = json.dumps([word.replace("SECONDS", seconds) for word in words])
        hosts += f'[hosts.{name}]\nvia = {via}\naddress = "127.0.0.1"\n'
    tasks = json.dumps([f"{name}:auto" for name in names])
    text = f'{hosts}[jobs.worker]\ntasks = {tasks}\n[run]\ncommand = ["true"]\nworkdir = ""\n'
    done = command.run("up", str(command.write(tmp_path, text)), "--headless")
    assert done.returncode == 3, done.stderr
    for name, (words, said) in zip(names, BAD, strict=True):
        (line,) = [line for line in done.stderr.splitlines() if line.startswith(f"tfmux: {name}")]
        assert f"via: {shlex.join(words)}".replace("SECONDS", seconds)[:40] in line, line
        assert all(text in line for text in said), line
    gone(
        lambda: [p for p in proc.scan(saying=seconds) if p.alive and seconds in p.argv],
        "no command is left",
    )


@pytest.mark.prove
@pytest.mark.parametrize(
    "script",
    [
        pytest.param('echo "Welcome to c1"; echo; exec "$@"', id="prints first"),
        # As `podman exec` does at times: it is tried a second time before it is refused.
        pytest.param('mkdir FIRST 2>/dev/null && exec "$@" </dev/null; exec "$@"', id="no input"),
    ],
)
def test_commands_that_are_forgiven(script: str, tmp_path: Path) -> None:
    """Given a `via` command that prints a banner first or loses its input once, when a run is
    launched, then the run is a success and shows nothing of the banner."""
    require_testbed()
    first = tmp_path / "first"
    bed = Via(tmp_path, ["sh", "-c", script.replace("FIRST", shlex.quote(str(first))), "sh"])
    done = command.run("up", str(bed.file(run=LONG, env={"SECONDS": "1"})), "--headless")
    assert done.returncode == 0 and "Welcome" not in done.stdout, done.stderr
    assert first.is_dir() == ("FIRST" in script)
