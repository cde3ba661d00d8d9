"""Runs on hosts that a command reaches: containers, `ssh` itself, other users, namespaces."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from launcher.cluster import load
from launcher.ids import TaskId
from launcher.paths import runs_home
from launcher.run.states import RunPhase
from launcher.session.client import RunClient
from tests.support import command
from tests.support import fault_tasks as tasks
from tests.support.command import Up
from tests.support.fault_tasks import Ledger
from tests.support.patience import PATIENCE, wait_until
from tests.support.requirements import require, require_testbed
from tests.support.scenario import back, confirmed, last_states, lost, ready, receipt
from tests.support.training import training
from tests.support.via import ALL, cluster, commands, gone, table
from tests.testbed import podman, proc
from tests.testbed.containers import Container
from tests.testbed.namespaces import Testbed
from tests.testbed.proc import Process


@pytest.fixture(scope="module")
def two() -> Iterator[tuple[Container, Container]]:
    """Two containers, for all tests of this module."""
    reason = podman.missing()
    if reason is not None and os.environ.get("CI"):
        pytest.fail(f"{reason}, and in CI missing containers are a failure", pytrace=False)
    if reason is not None:
        pytest.skip(reason)
    with ExitStack() as stack:
        yield stack.enter_context(Container()), stack.enter_context(Container())


def pair(two: tuple[Container, Container]) -> str:
    """The tables of both containers."""
    return "".join(each.hosts_toml(f"c{n}") for n, each in enumerate(two, 1))


def tell(two: tuple[Container, Container], run_id: str, word: str) -> None:
    """Says a word to the run's tasks in both containers."""
    for folder in (each.root / "tmp/ledger" for each in two):
        if folder.is_dir():
            tasks.tell(folder, run_id, word)


def of_run(run_id: str) -> list[Process]:
    """The living processes of the run that can be seen from here, whoever's they are."""
    return [p for p in proc.scan(having=run_id) if p.alive and p.tag]


def whole(run_id: str, task: str, ledgers: Path) -> None:
    """The stored log is what the task wrote."""
    log = (runs_home() / run_id / f"{task.replace(':', '-')}.log").read_bytes()
    ledger = Ledger.read(ledgers / f"{run_id}.{task.replace(':', '-')}.1")
    assert ledger.count and ledger.agrees(log), (task, len(log), ledger.count)


def signal_commands(up: Up, number: signal.Signals) -> None:
    """Signals the commands that reach the hosts, and what they have started in their sessions."""
    below = proc.children(up.launcher)  # one of them writes its files
    leaders = {p.pid for p in below if any("tfmux-agent-" in word for word in p.argv)}
    assert leaders, below
    for process in proc.scan():
        if process.session in leaders:
            proc.signal_process(process, number)


def cut(up: Up, host: str, number: signal.Signals = signal.SIGKILL) -> None:
    """Kills or stops the commands, and waits until another one reaches the host."""
    signal_commands(up, number)
    lost(up, host)
    back(up, host)


def test_kill_all_leaves_nothing_in_containers(
    two: tuple[Container, Container], tmp_path: Path
) -> None:
    """Tasks that ignore TERM, children, a daemon with an emptied environment, one that ignores
    TERM, and one that forks and exits without end: all gone by our own eyes, confirmed, logs
    whole; and no `podman exec` is left."""
    modes = "stubborn child daemon orphan holder chain"
    file = cluster(tmp_path, pair(two), modes=modes)
    with Up("up", str(file), "--json") as up:
        ready(up, *ALL)
        wait_until(lambda: len(two[1].processes()) >= 7, "all have started what they start")
        assert any(not p.environ for p in two[1].processes()), "the daemon"
        up.press_ctrl_c()
        assert up.wait() == 130, up.transcript()
        assert confirmed(up) and set(receipt(up)) == {"c1", "c2"}
    for each in two:
        gone(each.processes, "nothing is left in the container")
    gone(lambda: commands(up.run_id), "no command is left")
    for container, task in ((two[0], "ps:0"), (two[0], "worker:0"), (two[1], "worker:1")):
        whole(up.run_id, task, container.root / "tmp/ledger")
    folders = [p.name for each in two for p in each.root.glob("home/root/.local/state/tfmux/*")]
    assert not folders


def test_files_go_there_and_come_back(two: tuple[Container, Container], tmp_path: Path) -> None:
    """The directory is staged, a port is picked there, statistics come, results are collected."""
    work = tmp_path / "work"
    work.mkdir()
    (work / "note.txt").write_text("brought here\n")
    script = "tr a-z A-Z <note.txt >made.txt; cat note.txt; sleep 1000"
    more = f"""
[jobs.helper]
tasks = ["c2:auto"]
in_cluster = false
command = ["sh", "-c", {json.dumps(script)}]
"""
    run = 'workdir = "work"\ncollect = ["made.txt"]\ngrace = 1\nlease = 600'
    file = cluster(tmp_path, pair(two), run=run, env=', SECONDS = "all is seen"', more=more)
    session = RunClient.launch(load(file, for_launch=True), file.read_text())
    deadline = time.monotonic() + PATIENCE
    usage: set[TaskId] = set()
    memory: set[int] = set()
    while (now := session.snapshot()).state is not RunPhase.ENDED:
        usage |= {task for host in now.hosts for task in host.usage}
        memory |= {host.memory_total for host in now.hosts if host.memory_total}
        if TaskId("worker", 1) in usage and memory and now.task(TaskId("helper", 0)).log_size:
            tell(two, now.run_id, "all is seen")
        assert time.monotonic() < deadline, now
        time.sleep(0.05)
    assert session.wait(PATIENCE)
    session.close()
    assert now.exit_code == 0, now
    assert TaskId("worker", 1) in usage and memory
    folder = runs_home() / session.run_id
    assert (folder / "helper-0.log").read_text() == "brought here\n"
    (made,) = folder.rglob("made.txt")
    assert made.read_text() == "BROUGHT HERE\n"
    for each in two:
        gone(each.processes, "nothing is left in the container")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_the_command_is_killed_or_stopped_in_the_middle(
    two: tuple[Container, Container], tmp_path: Path, number: signal.Signals
) -> None:
    """The link is lost, the tasks write on, and a new command reaches the same agent: nothing is
    started again, no byte is lost, and the stopped command is ended."""
    file = cluster(tmp_path, pair(two), ["c1"] * 3, env=', SECONDS = "it is back"')
    with Up("up", str(file), "--json") as up:
        ready(up, *ALL)
        pids = {e["task"]: e["pid"] for e in up.of("task") if "pid" in e}
        cut(up, "c1", number)
        tell(two, up.run_id, "it is back")
        assert up.wait() == 0, up.transcript()
        assert {e["task"]: e["pid"] for e in up.of("task") if "pid" in e} == pids
        assert {e["attempt"] for e in up.of("task")} <= {0, 1} and confirmed(up)
    for task in ALL:
        whole(up.run_id, task, two[0].root / "tmp/ledger")
    gone(two[0].processes, "nothing is left in the container")
    gone(lambda: commands(up.run_id), "no command is left")


def test_the_launcher_is_killed(two: tuple[Container, Container], tmp_path: Path) -> None:
    """`ps` asks the containers and `kill` ends the run, without the file; under `stop` the
    containers end what they hold by their lease."""
    file = cluster(tmp_path, pair(two), run='lease = 600\ngrace = 1\non_disconnect = "keep"')
    with Up("up", str(file), "--json") as up:
        ready(up, *ALL)
        up.kill_launcher()
        run_id = up.run_id
    file.unlink()
    gone(lambda: commands(run_id), "the commands end with the launcher")
    (listed,) = json.loads(command.run("ps", "--json").stdout)
    assert listed["run"] == run_id and not listed["launcher"]
    assert {task for host in listed["hosts"] for task in host["tasks"]} == set(ALL)
    done = command.run("kill", run_id)
    assert done.returncode == 0 and "nothing is left on any host" in done.stdout + done.stderr
    for each in two:
        gone(each.processes, "nothing is left in the container")
    file = cluster(tmp_path, pair(two), run="lease = 8\ngrace = 1", modes="daemon")
    with Up("up", str(file), "--json") as up:
        ready(up, *ALL)
        up.kill_launcher()
    for each in two:
        gone(each.processes, "the lease has ended everything")


def test_a_container_that_is_stopped(tmp_path: Path, two: tuple[Container, Container]) -> None:
    """Its tasks are gone with it, and the run says which host cannot be asked: exit 4."""
    with Container() as third:
        hosts = pair(two) + third.hosts_toml("c3")
        file = cluster(tmp_path, hosts, ("c1", "c3", "c2"), run="lease = 8\ngrace = 1")
        with Up("up", str(file), "--json") as up:
            ready(up, *ALL)
            third.stop()
            lost(up, "c3")
            assert up.wait() == 4, up.transcript()
            assert not receipt(up)["c3"]["confirmed"] and receipt(up)["c1"]["confirmed"]
        assert not commands(up.run_id)


def test_tensorflow_trains_in_containers(two: tuple[Container, Container], tmp_path: Path) -> None:
    """A ps and two workers of the bundled trainer, on the embedded data."""
    text = training(pair(two), ("c1", "c1", "c2"))
    with Up("up", str(command.write(tmp_path, text)), "--json") as up:
        assert up.wait(300) == 0, up.transcript()
        states = last_states(up)
        assert states["worker:0"] == states["worker:1"] == "exited" and confirmed(up)
        assert up.of("metric")
    for each in two:
        gone(each.processes, "nothing is left in the container")


# --- other commands ---------------------------------------------------------------------------


@pytest.mark.parametrize("program", ["sudo", "setpriv", "unshare", "sh"])
def test_other_commands(program: str, tmp_path: Path) -> None:
    """Another user, namespaces, a shell: a run as on any host. These give the agent our own end
    of the stream, so that it goes on when the command is killed."""
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
    mark = f', MARK = "{home.name}"'
    file = cluster(tmp_path, table(via), ["c1"] * 3, modes="stubborn daemon", env=mark)
    file.write_text(file.read_text().replace("/tmp/ledger", f"{home}/ledger"))
    daemon = f"sleep 3002; : {home.name}"
    try:
        with Up("up", str(file), "--json") as up:
            ready(up, *ALL)
            wait_until(
                lambda: [p for p in proc.scan(saying=daemon) if daemon in p.argv], "daemons live"
            )
            users = {p.uid for p in of_run(up.run_id) if (p.tag or "").endswith("/1;")}
            assert users == {65534 if program in ("sudo", "setpriv") else 0}
            pids = {e["task"]: e["pid"] for e in up.of("task") if "pid" in e}
            signal_commands(up, signal.SIGKILL)
            size = len(up.of("log"))
            wait_until(lambda: len(up.of("log")) > size + 100, "logs go on")
            assert not any(e["state"] == "lost" for e in up.of("host"))
            assert {e["task"]: e["pid"] for e in up.of("task") if "pid" in e} == pids
            up.press_ctrl_c()
            assert up.wait() == 130, up.transcript()
            assert confirmed(up)
        gone(lambda: of_run(up.run_id), "nothing is left")
        gone(lambda: commands(up.run_id), "no command is left")
        gone(
            lambda: [p for p in proc.scan(saying=daemon) if p.alive and daemon in p.argv], "daemons"
        )
        for task in ALL:
            whole(up.run_id, task, home / "ledger")
    finally:
        shutil.rmtree(home)


def test_ssh_as_the_command(testbed: Testbed, tmp_path: Path, tfmux_home: Path) -> None:
    """`ssh` gives its words to a shell: with `{command}` they arrive. Killed, it is started
    again, and the agent is still there; at the end neither `ssh` nor anything there is left."""
    testbed.give_access(tfmux_home)
    config = ["-F", str(tfmux_home / ".ssh/config"), "-o", "BatchMode=yes"]
    hosts = table(["ssh", *config, "tf3", "{command}"]).replace("127.0.0.1", "tf3")
    file = cluster(tmp_path, hosts, ["c1"] * 3, modes="stubborn child daemon")
    with Up("up", str(file), "--json") as up:
        ready(up, *ALL)
        cut(up, "c1")
        up.press_ctrl_c()
        assert up.wait() == 130, up.transcript()
        assert confirmed(up)
    gone(testbed["tf3"].leftovers, "nothing is left on the host")
    gone(lambda: commands(up.run_id), "no ssh is left")
    for task in ALL:
        whole(up.run_id, task, testbed["tf3"].disk / "tmp/ledger")


def test_a_namespace_that_ends_with_its_command(tmp_path: Path) -> None:
    """`unshare --pid` makes a new one each time: when the command dies, the kernel ends the agent
    and all tasks. It is said, and nothing is left; but the next agent, in another namespace, does
    not confirm what it cannot see."""
    require_testbed()
    via = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    ledgers = tmp_path / "ledger"
    file = cluster(tmp_path, table(via, sys.executable), ["c1"] * 3, modes="daemon")
    file.write_text(file.read_text().replace("/tmp/ledger", str(ledgers)))
    with Up("up", str(file), "--json") as up:
        ready(up, *ALL)
        cut(up, "c1")
        assert up.wait() == 4, up.transcript()
        assert not confirmed(up)
        assert set(last_states(up).values()) <= {"failed", "killed", "stopped"}
    gone(lambda: of_run(up.run_id), "nothing is left")
