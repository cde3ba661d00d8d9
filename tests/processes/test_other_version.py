"""Two versions of tfmux beside each other: a run of one that the other looks at, attaches to, kills
and collects; and one whose own files are replaced or removed while it goes on."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from launcher.agent import wire
from launcher.paths import runs_home
from launcher.store.runs import RunFolder
from tests.support import command
from tests.support.cluster_texts import cluster_text
from tests.support.command import Up, python_task, write
from tests.support.earlier_version import PROTOCOL, earlier_site
from tests.support.paths import REPOSITORY
from tests.support.patience import wait_until
from tests.support.scenario import FaultScenario, ready
from tests.support.terminal import Terminal
from tests.testbed.inprocess import SshServer

pytestmark = [pytest.mark.prove, pytest.mark.xdist_group("versions")]  # one wheel for all
PACKAGES = ("launcher", "tui")
CLUSTER = cluster_text(
    {"worker": 2},
    "versions",
    command=["sleep", "1000"],
    workdir="",
    grace=1,
    on_disconnect="keep",
    start={"ready": {"worker": "started"}},
)
SAVE = """
import os, sys, time
os.makedirs("out", exist_ok=True)
open(f"out/{sys.argv[1]}.ckpt", "w").write("saved")
step = 0
while not os.path.exists(sys.argv[2]):
    step += 1
    print(f"step {step} loss 0.5", flush=True)
    time.sleep(0.2)
raise ValueError("as it was told")
"""


@pytest.fixture(scope="session")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder with the packages of the version before this one."""
    return earlier_site(tmp_path_factory.mktemp("earlier"))


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    """Yield a terminal."""
    found = Terminal(tmp_path, 120, 40)
    yield found
    found.close()


def copied(site: Path) -> Path:
    """The packages of this version in a folder, which becomes a site of its own."""
    for package in PACKAGES:
        # With what is compiled already, but for what somebody else is just writing.
        shutil.copytree(
            REPOSITORY / package, site / package, ignore=shutil.ignore_patterns("*.pyc.*")
        )
    return site


def of_later_version(site: Path) -> Path:
    """This version in a folder, with the next number of the protocol."""
    source = copied(site) / "launcher/agent/wire.py"
    text, version = source.read_text(), wire.VERSION + 1
    source.write_text(re.sub(r"^VERSION = \d+$", f"VERSION = {version}", text, flags=re.M))
    return site


def two_hosts(server: SshServer, folder: Path, name: str = "two", more: str = "") -> Path:
    """A cluster file with a worker here and one over SSH, which save files in a workdir that is
    sent, and fail when the file `go` is there."""
    work = folder / "work"
    work.mkdir(exist_ok=True)
    (work / "train.py").write_text("pass")
    return write(
        folder,
        cluster_text(
            {"worker": "far here"},
            name,
            server.host_toml("far", sys.executable) + '[hosts.localhost]\naddress = "127.0.0.1"\n',
            more,
            command=[*python_task(SAVE), "{index}", str(folder / "go")],
            workdir=str(work),
            grace=1,
            on_disconnect="keep",
            start={"ready": {"worker": "started"}},
        ),
    )


def sleeping(run_id: str) -> list[int]:
    """The pids of a run's tasks on this machine that sleep."""
    return [p.pid for p in FaultScenario.here(run_id) if p.argv[:1] == ("sleep",)]


def left_by(site: Path, file: Path) -> str:
    """Has another version launch a run, and kills its launcher; returns the run's id."""
    with Up("up", str(file), "--json", site=site) as up:
        ready(up, "worker:0", "worker:1")
        up.kill_launcher()
        return up.run_id


@pytest.mark.parametrize(
    "version",
    [PROTOCOL, wire.VERSION + 1],
    ids=["earlier", "later"],
)
def test_the_agent_of_another_version_is_named_and_a_kill_ends_its_tasks(
    version: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Its tasks go on while somebody looks; `kill` ends agent and tasks, and a new agent proves
    that nothing is left."""
    if version == PROTOCOL:
        site = request.getfixturevalue("earlier")
    else:
        site = of_later_version(tmp_path / "site")
    run_id = left_by(site, write(tmp_path, CLUSTER))
    tasks = sleeping(run_id)
    assert len(tasks) == 2
    said = f"another version of tfmux (protocol {version}; this launcher speaks {wire.VERSION})"
    todo = f"attach with that version, or end the run: tfmux kill {run_id}"
    with Up("attach", run_id, "--json") as up:
        up.wait_for(
            lambda e: said in e.get("note", "") and todo in e["note"], "the agent's version"
        )
        up.kill_launcher()
    assert sleeping(run_id) == tasks
    listed = command.run("ps")
    assert said in listed.stderr, listed
    done = command.run("kill", run_id)
    assert done.returncode == 0, done
    assert "no process is left" in done.stdout
    wait_until(lambda: not FaultScenario.here(run_id), "the end of all its processes")


def test_a_run_of_the_version_before_is_used_as_one_of_this(
    earlier: Path, ssh_server: SshServer, tmp_path: Path, terminal: Terminal
) -> None:
    """Given a run of the version before on this machine and another host, then it is listed, looked
    at and kept while it lives; a kill ends it, and its launcher says how; what it has saved is
    fetched after that, and its folder deleted."""
    file = two_hosts(ssh_server, tmp_path)
    with Up("up", str(file), "--json", site=earlier) as up:
        ready(up, "worker:0", "worker:1")
        run_id = up.run_id
        up.log("worker:0", "step 1")
        up.log("worker:1", "step 1")
        (listed,) = json.loads(command.run("ps", "--json").stdout)
        assert (listed["run"], listed["state"]) == (run_id, "running")
        assert "worker:0 | step 1" in command.run("logs", run_id).stdout
        assert command.run("stacks", run_id).returncode == 0
        assert command.run("collect", run_id, "out/*").returncode == 0
        refused = command.run("rm", run_id)
        assert refused.returncode == 1 and "is active" in refused.stderr, refused
        terminal.run()
        terminal.wait_for(run_id[-4:], "running")
        with Up("attach", run_id, "--json") as follower:
            follower.log("worker:1", "step")
            done = command.run("kill", "--all")
            assert done.returncode == 0 and "2 hosts confirmed" in done.stdout, done
            assert follower.wait() == 130, follower.transcript()
        assert up.wait() == 130, up.transcript()
    (end,) = up.of("end")
    assert end["clean"] and end["live"] == 0
    assert command.run("kill", run_id).returncode == 0
    folder = RunFolder.find(run_id)
    assert command.run("collect", run_id).returncode == 0
    assert (folder.path / "collected/far/out/0.ckpt").read_text() == "saved"
    freed = command.run("rm", run_id, "--hosts", "--yes")
    assert freed.returncode == 0, freed
    removed = command.run("rm", "--force", run_id)
    assert removed.returncode == 0, removed
    assert not folder.path.exists()


def test_a_run_of_the_version_before_ends_with_its_verdict(
    earlier: Path, ssh_server: SshServer, tmp_path: Path
) -> None:
    """Given a run of the version before that this one has attached to, when its tasks fail, then
    both say why and leave with 1; its record is whole, and the next run resumes it."""
    file = two_hosts(ssh_server, tmp_path)
    with Up("up", str(file), "--json", site=earlier) as up:
        ready(up, "worker:0", "worker:1")
        with Up("attach", up.run_id, "--json") as follower:
            follower.log("worker:1", "step")
            (tmp_path / "go").touch()
            assert follower.wait() == 1, follower.transcript()
        assert up.wait() == 1, up.transcript()
    for seen in (up, follower):
        assert "ValueError: as it was told" in seen.of("end")[-1]["cause_text"]
    shown = command.run("logs", up.run_id)
    assert shown.returncode == 0 and "as it was told" in shown.stdout
    assert "could not be read" not in shown.stderr
    with Up("up", str(file), "--resume", up.run_id, "--json") as again:
        assert again.wait() == 1, again.transcript()
    assert up.run_id in again.of("run")[-1]["resume"]


def test_the_version_before_kills_a_run_of_this(earlier: Path, tmp_path: Path) -> None:
    """Given a run of this version, then the one before lists it, and starts no second launcher; a
    kill by it ends the run, also where this one's launcher was killed, and proves it."""
    file = write(tmp_path, CLUSTER)
    with Up("up", str(file), "--json") as up:
        ready(up, "worker:0", "worker:1")
        launcher = up.launcher
        (listed,) = json.loads(command.run("ps", "--json", site=earlier).stdout)
        assert (listed["run"], listed["launcher"]) == (up.run_id, launcher)
        refused = command.run("rm", up.run_id, site=earlier)
        assert refused.returncode == 1 and "is active" in refused.stderr, refused
        assert up.launcher == launcher
        done = command.run("kill", up.run_id, site=earlier)
        assert done.returncode == 0 and "no process is left" in done.stdout, done
        assert up.wait() == 130, up.transcript()
    assert command.run("kill", up.run_id).returncode == 0
    with Up("up", str(file), "--json") as up:
        ready(up, "worker:0", "worker:1")
        up.kill_launcher()
    tasks = sleeping(up.run_id)
    listed_by = command.run("ps", site=earlier)
    assert f"protocol {wire.VERSION}; this launcher speaks {PROTOCOL}" in listed_by.stderr
    assert sleeping(up.run_id) == tasks
    done = command.run("kill", up.run_id, site=earlier)
    assert done.returncode == 0 and "no process is left" in done.stdout, done
    wait_until(lambda: not FaultScenario.here(up.run_id), "the end of all its processes")


# --- its own files --------------------------------------------------------------------------


def remove(site: Path) -> None:
    """Takes the packages away, as `pip uninstall` does."""
    for package in PACKAGES:
        shutil.rmtree(site / package)


def replace(site: Path) -> None:
    """Replaces each module by one of a version in which nothing is as it was."""
    for file in site.rglob("*.py"):
        file.write_text("raise ImportError('another version')\n")


@pytest.mark.parametrize("change", [remove, replace])
def test_a_run_whose_own_files_change_goes_on_to_its_receipt(
    change: object, ssh_server: SshServer, tmp_path: Path
) -> None:
    """Given a run whose program's files are removed or replaced when its first task starts, when
    its tasks fail, then its command tells how it ended, with the receipt and what was collected;
    and a kill of another one is as good."""
    assert callable(change)
    site = copied(tmp_path / "site")
    file = two_hosts(ssh_server, tmp_path, more='collect = ["out/*"]')
    with Up("up", str(file), "--json", site=site) as failing:
        with Up("up", str(file), "--json", site=site) as killed:
            for up in (failing, killed):
                up.wait_for(lambda e: e.get("state") == "starting" and "task" in e, "a task")
            change(site)
            for up in (failing, killed):
                ready(up, "worker:0", "worker:1")
                up.log("worker:1", "step 1")
            killed.press_ctrl_c()
            assert killed.wait() == 130, killed.transcript()
        (tmp_path / "go").touch()
        assert failing.wait() == 1, failing.transcript()
    for up in (failing, killed):
        assert up.of("end")[-1]["clean"], up.transcript()
        assert "no process is left, 2 hosts confirmed" in up.said
        assert "Traceback (most recent call last)\n" not in up.said.replace("  | ", "")
        folder = RunFolder.find(up.run_id)
        assert (folder.path / "collected/far/0.ckpt").read_text() == "saved"


def test_a_screen_whose_own_files_are_removed_kills_and_shows_the_receipt(
    tmp_path: Path, terminal: Terminal
) -> None:
    """Given a run on a screen whose program's files are removed, then F9 ends it, and the receipt
    is there."""
    site = copied(tmp_path / "site")
    file = write(tmp_path, CLUSTER)
    words = [sys.executable, "-m", "tui.main", "up", str(file)]
    terminal.start(["env", "-C", str(site), f"PYTHONPATH={site}", *words])
    terminal.wait_for("worker:0", "worker:1", "ready")
    remove(site)
    terminal.keys("F9")
    terminal.wait_for("Receipt", "no process is left")
    terminal.keys("q")
    terminal.wait_for("EXIT-CODE 130")


@pytest.mark.parametrize("how", ["upgraded", "removed"])
def test_a_launcher_of_the_version_before_outlives_its_files(
    how: str, earlier: Path, ssh_server: SshServer, tmp_path: Path
) -> None:
    """Given a run of the version before, whose files this version's replace, or that are removed,
    when its tasks fail, then its launcher ends it with receipt and cause, which this one reads."""
    site = shutil.copytree(earlier, tmp_path / "site")
    file = two_hosts(ssh_server, tmp_path)
    with Up("up", str(file), "--json", site=site) as up:
        ready(up, "worker:0", "worker:1")
        up.log("worker:1", "step 1")
        remove(site)
        if how == "upgraded":
            copied(site)
        launcher = RunFolder(runs_home() / up.run_id).launcher_pid()
        assert launcher is not None
        with Up("attach", up.run_id, "--json") as follower:
            follower.log("worker:1", "step")
            (tmp_path / "go").touch()
            assert follower.wait() == 1, follower.transcript()
        up.process.wait()  # what that version's command imports late is lost
    end = follower.of("end")[-1]
    assert end["clean"] and end["live"] == 0
    assert "ValueError: as it was told" in end["cause_text"]
    assert os.path.exists(RunFolder.find(up.run_id).path)
