"""Runs whose nodes are containers of podman: real ones, without an image."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from launcher.paths import runs_home
from tests import command
from tests.command import Up
from tests.conftest import require
from tests.faults import tasks
from tests.faults.scenario import confirmed, notes, ready, receipt
from tests.faults.tasks import Ledger
from tests.patience import wait_until
from tests.testbed import podman
from tests.testbed.podman import PodmanBed
from tests.training import training

pytestmark = pytest.mark.testbed

ALL = ("ps:0", "worker:0", "worker:1")


@pytest.fixture
def bed() -> Iterator[PodmanBed]:
    """No container of the test is left in it."""
    require(podman.missing())
    with PodmanBed() as bed:
        yield bed
        assert bed.containers() == {}
        assert bed.processes() == []


def file(
    folder: Path,
    podman: str = "",
    *,
    modes: str = "stubborn daemon child",
    run: str = "grace = 1\nlease = 60",
    port: str = "auto",
) -> Path:
    """A ps and two workers, each in a container, that keep ledgers outside of them."""
    ledgers = folder / "ledgers"
    ledgers.mkdir(exist_ok=True)
    options = [] if "options" in podman else [f'options = ["--volume={ledgers}:/ledgers"]']
    text = f"""
name = "boxes"
[podman]
nodes = 3
{podman}
{"".join(options)}
[jobs.ps]
tasks = ["node0:{port}"]
[jobs.worker]
tasks = ["node1:{port}", "node2:{port}"]
[run]
command = {json.dumps(tasks.command())}
env = {{ LEDGER = "/ledgers", PACE = "0.01", MODES = "{modes}" }}
workdir = ""
{run}
"""
    return command.write(folder, text)


def check_logs(folder: Path, run_id: str) -> None:
    """Every stored log is what its task has written."""
    for task in ALL:
        name = task.replace(":", "-")
        ledger = Ledger.read(folder / "ledgers" / f"{run_id}.{name}.1")
        log = (runs_home() / run_id / f"{name}.log").read_bytes()
        assert ledger.count and ledger.agrees(log), task


def names(run_id: str) -> list[str]:
    """The containers of a run."""
    return [f"tfmux-{run_id}-node{number}" for number in range(3)]


def up(path: Path) -> Up:
    """Launches."""
    return Up("up", str(path), "--json")


def test_kill_all_ends_everything_and_removes_the_containers(
    bed: PodmanBed, tmp_path: Path
) -> None:
    """Tasks that ignore TERM, children, daemons with an emptied environment; the agents confirm,
    and podman agrees. What a container wrote is gone with it, the machine's own files are whole."""
    with up(file(tmp_path)) as run:
        ready(run, *ALL)
        assert bed.containers() == dict.fromkeys(names(run.run_id), "running")
        for name in names(run.run_id):
            assert bed.inspect(name, '{{index .Config.Labels "tfmux.run"}}') == run.run_id
        wait_until(lambda: len(bed.processes()) >= 3 * 5, "all have started what they start")
        run.press_ctrl_c()
        assert run.wait() == 130, run.transcript()
    found = receipt(run)
    assert len(found) == 3 and confirmed(run)
    assert {host["engine"] for host in found.values()} == {"podman agrees"}
    assert all(host["signalled"] >= 3 and not host["by_engine"] for host in found.values())
    check_logs(tmp_path, run.run_id)


def test_a_run_ends_by_itself(bed: PodmanBed, tmp_path: Path) -> None:
    """The workdir comes into each container, in order; results come back."""
    work = tmp_path / "work"
    work.mkdir()
    (work / "note.txt").write_text("brought here\n")
    script = (
        "import os, socket, sys, time\n"
        "server = socket.create_server(('127.0.0.1', int(sys.argv[1])))\n"
        "print(open('note.txt').read(), os.getpid() < 200)\n"
        "open('made.txt', 'w').write(os.environ['TFMUX_TASK'])\n"
        "time.sleep(1 if 'worker' in os.environ['TFMUX_TASK'] else 1000)\n"
    )
    words = json.dumps([*command.python_task(script), "{port}"])
    text = f"""
name = "boxes"
[podman]
nodes = 2
[jobs.ps]
tasks = ["node0:auto"]
[jobs.worker]
tasks = ["node0:auto", "node1:auto"]
[run]
command = {words}
workdir = "{work}"
collect = ["made.txt"]
success = "all"
"""
    with up(command.write(tmp_path, text)) as run:
        assert run.wait() == 0, run.transcript()
    assert run.of("run")[0]["state"] == "queued"
    for task in ALL:
        run.log(task, "brought here")
    assert len(receipt(run)) == 2 and confirmed(run)
    assert len(list((runs_home() / run.run_id).rglob("made.txt"))) == 2


def test_containers_of_a_dead_launcher_are_removed_by_a_kill(
    bed: PodmanBed, tmp_path: Path
) -> None:
    """Under `stop` the agents act when their lease ends, and the containers end with them. They
    stay until somebody asks, since podman's word is that they have ended."""
    with up(file(tmp_path, run="lease = 4\ngrace = 1")) as run:
        ready(run, *ALL)
        assert bed.processes()
        run.kill_launcher()
        run_id = run.run_id
    exited = dict.fromkeys(names(run_id), "exited")
    wait_until(lambda: bed.containers() == exited, "the leases have ended the containers", 30)
    assert bed.processes() == []
    assert run_id in command.run("ps").stdout
    done = command.run("kill", run_id)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "podman agrees" in done.stdout + done.stderr
    assert run_id not in command.run("ps").stdout


def test_a_run_is_taken_up_without_a_file(bed: PodmanBed, tmp_path: Path) -> None:
    """The journal knows the containers."""
    path = file(tmp_path)
    with up(path) as run:
        ready(run, *ALL)
        run_id = run.run_id
        run.kill_launcher()
    path.unlink()
    with Up("attach", run_id, "--json") as again:
        again.state("worker:1", "ready")
        again.press_ctrl_c()
        assert again.wait() == 130, again.transcript()
    assert len(receipt(again)) == 3 and confirmed(again)
    check_logs(tmp_path, run_id)


def test_a_container_that_somebody_kills(bed: PodmanBed, tmp_path: Path) -> None:
    """Its agent cannot answer any more; podman can, and the kernel: nothing is left there."""
    with up(file(tmp_path, run='grace = 1\nlease = 60\non_failure = "keep"')) as run:
        ready(run, *ALL)
        assert bed.processes()
        bed.run("kill", names(run.run_id)[2])
        run.state("worker:1", "lost")
        run.press_ctrl_c()
        assert run.wait() == 130, run.transcript()
    found = receipt(run)
    assert [host["by_engine"] for host in found.values()] == [False, False, True]
    assert confirmed(run)


def test_all_containers_are_stopped_by_somebody(bed: PodmanBed, tmp_path: Path) -> None:
    """`podman stop` is TERM to the watchdogs: tasks have their grace, and the run says why it
    ended."""
    with up(file(tmp_path, modes="stubborn", run='grace = 1\non_failure = "keep"')) as run:
        ready(run, *ALL)
        bed.run("stop", *names(run.run_id))
        assert run.wait() == 1, run.transcript()
    assert any("all its containers have ended" in note for note in notes(run)), run.transcript()
    assert len(receipt(run)) == 3 and confirmed(run)


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ('image = "localhost/nothing:1"', "podman pull localhost/nothing:1"),
        ('options = ["--no-such-option"]', "unknown flag: --no-such-option"),
        ('options = ["--volume=/no/such/folder:/x"]', "/no/such/folder"),
        ('python = "/nowhere/python3"', "/nowhere/python3"),
        ('network = "nowhere"', "nowhere"),
    ],
)
def test_what_podman_refuses_is_exit_3_with_its_words(
    bed: PodmanBed, tmp_path: Path, table: str, said: str
) -> None:
    """Nothing has started, also where some containers had; `check` says the same."""
    path = file(tmp_path, table)
    with up(path) as run:
        assert run.wait() == 3, run.transcript()
    assert said in run.said and "nothing was started" in run.said
    assert bed.containers() == {}
    checked = command.run("check", str(path))
    assert checked.returncode == 3 and said in checked.stdout


def test_a_machine_without_podman(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said, with what to do."""
    monkeypatch.setenv("PATH", str(tmp_path))
    path = file(tmp_path)
    done = command.run("up", str(path), "--headless")
    assert done.returncode == 3 and "podman: No such file" in done.stderr
    checked = command.run("check", str(path), "--json")
    assert checked.returncode == 3 and "install podman" in checked.stdout


def test_the_check_starts_a_container_and_leaves_none(bed: PodmanBed, tmp_path: Path) -> None:
    """Python is looked at where the tasks will run."""
    done = command.run("check", str(file(tmp_path)), "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    findings: list[dict[str, Any]] = json.loads(done.stdout)["findings"]
    assert {finding["code"] for finding in findings} == {"ok"}
    assert any("Python 3." in json.dumps(finding) for finding in findings)
    assert [finding["check"] for finding in findings] == ["queue", "python", "limits"]
    told = command.run("check", str(file(tmp_path))).stdout
    for words in ("3 nodes of podman", "node0  ps:0", "node2  worker:1", "✓ ready to launch"):
        assert words in told, told


def test_containers_with_addresses_of_their_own(bed: PodmanBed, tmp_path: Path) -> None:
    """A network of podman: the same fixed port in each container."""
    name = bed.folder.name
    bed.run("network", "create", name)
    try:
        table = f'network = "{name}"'
        with up(file(tmp_path, table, modes="", port="2222")) as run:
            ready(run, *ALL)
            addresses = {e["address"] for e in run.of("task") if e["state"] == "ready"}
            run.press_ctrl_c()
            assert run.wait() == 130, run.transcript()
        assert confirmed(run)
        assert len(addresses) == 3
        assert all(a.endswith(":2222") and a[0].isdigit() for a in addresses), addresses
    finally:
        bed.run("network", "rm", "--force", name)


@pytest.mark.soak
@pytest.mark.slow
def test_tensorflow_trains_in_containers(bed: PodmanBed, tmp_path: Path) -> None:
    """A ps and two workers of the bundled trainer, on the embedded data; the interpreter is the
    one that runs tfmux."""
    table = f"[podman]\nnodes = 3\npython = {json.dumps(sys.executable)}\n"
    text = training(table, ("node0", "node1", "node2"))
    with up(command.write(tmp_path, text)) as run:
        assert run.wait(300) == 0, run.transcript()
        assert run.of("metric") and confirmed(run)
