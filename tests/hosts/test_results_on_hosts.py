"""Results that stay on hosts: four of them, a shared home, homes that are full or hang, nodes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from launcher.store.runs import RunFolder
from tests.support import command
from tests.support.command import Up, python_task, write
from tests.support.patience import wait_until
from tests.support.scenario import confirmed
from tests.support.slurm_scenario import Scenario
from tests.testbed.disk import inside
from tests.testbed.faults import share_home
from tests.testbed.frozen import FreezableDisk
from tests.testbed.namespaces import Testbed

SAVE = """
import os, sys, time
os.makedirs("out", exist_ok=True)
open(f"out/{sys.argv[1]}.ckpt", "w").write(sys.argv[1] * 1000)
print("saved", flush=True)
until = sys.argv[2]
while until and not os.path.exists(until):
    time.sleep(0.05)
"""


def workdir(folder: Path) -> None:
    """A workdir with a file, in which git ignores all that tasks will save."""
    (folder / "work").mkdir()
    (folder / "work/train.py").write_text("pass")
    (folder / "work/.gitignore").write_text("out/\n*.ckpt\n")


def cluster(hosts: str, *places: str, until: str = "", run: str = "") -> str:
    """A worker at each of these places, that saves a file and ends when another one is there."""
    words = [*python_task(SAVE), "{index}", until]
    return f"""
name = "kept"
{hosts}
[jobs.worker]
tasks = {json.dumps([f"{place}:auto" for place in places])}
[run]
command = {json.dumps(words)}
workdir = "work"
success = "all"
{run}
[start.ready]
worker = "started"
"""


def names(folder: Path) -> set[str]:
    """The files below a folder."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.prove
def test_hosts_that_share_a_home_keep_results_apart(testbed: Testbed, tmp_path: Path) -> None:
    """Given four hosts, two of which share their home, and two tasks on one, when each task saves a
    file, then the end names each host with its own, and all are brought."""
    workdir(tmp_path)
    share_home(testbed["tf1"], testbed["tf2"])
    places = ["tf1", "tf2", "tf3", "tf3", "tf4"]
    with Up("up", str(write(tmp_path, cluster(testbed.hosts_toml(), *places))), "--json") as up:
        assert up.wait() == 0, up.transcript()
    kept = {one["host"]: one["files"] for one in up.of("run")[-1]["results_kept"]}
    assert kept == {"tf1": 1, "tf2": 1, "tf3": 2, "tf4": 1}
    done = command.run("collect", up.run_id)
    assert done.returncode == 0, done.stderr
    here = RunFolder.find(up.run_id).path / "collected"
    found = {host: names(here / host) for host in kept}
    assert found == {
        "tf1": {"out/0.ckpt"},
        "tf2": {"out/1.ckpt"},
        "tf3": {"out/2.ckpt", "out/3.ckpt"},
        "tf4": {"out/4.ckpt"},
    }
    assert (here / "tf2/out/1.ckpt").read_text() == "1" * 1000
    done = command.run("collect", up.run_id, "3.ckpt")
    assert done.returncode == 0 and done.stdout.startswith("tf3: 1 file fetched before")


def test_one_host_that_is_off_keeps_no_other_from_being_collected(
    testbed: Testbed, tmp_path: Path
) -> None:
    """Given results on two hosts, when one is down, then those of the other come, exit 1, and the
    next time the rest does."""
    workdir(tmp_path)
    text = cluster(testbed.hosts_toml(), "tf1", "tf2")
    with Up("up", str(write(tmp_path, text)), "--json") as up:
        assert up.wait() == 0, up.transcript()
    testbed["tf2"].crash()
    done = command.run("collect", up.run_id)
    here = RunFolder.find(up.run_id).path / "collected"
    assert (done.returncode, names(here)) == (1, {"tf1/out/0.ckpt"})
    assert "tf2: not collected: " in done.stderr
    testbed["tf2"].boot()
    done = command.run("collect", up.run_id)
    assert (done.returncode, names(here)) == (0, {"tf1/out/0.ckpt", "tf2/out/1.ckpt"}), done.stderr


@pytest.mark.prove
def test_a_full_home_loses_no_result(testbed: Testbed, tmp_path: Path) -> None:
    """Given a task whose results fill the last byte of its home, when it ends, then the receipt is
    as ever, the host is named, and the results can be brought."""
    workdir(tmp_path)
    host = testbed["tf1"]
    home = host.account.home
    host.run(["mkdir", "-p", f"{home}/.local"])
    words = f"size=1m,mode=700,uid={host.account.uid},gid={host.account.uid}"
    host.run(["mount", "-t", "tmpfs", "-o", words, "small", f"{home}/.local"], as_user=False)
    text = cluster(testbed.hosts_toml(), "tf1", until=f"{home}/full")
    with Up("up", str(write(tmp_path, text)), "--json") as up:
        up.log("worker:0", "saved")
        fill = f"cat /dev/zero > {home}/.local/state/tfmux/{up.run_id}.tf1/stage/work/big"
        assert host.run(["sh", "-c", fill], check=False).returncode
        host.run(["touch", f"{home}/full"])
        assert up.wait() == 0, up.transcript()
        assert confirmed(up)
    (one,) = up.of("run")[-1]["results_kept"]
    assert one["files"] == 2
    done = command.run("collect", up.run_id)
    assert done.returncode == 0, done.stderr
    here = RunFolder.find(up.run_id).path / "collected/tf1"
    assert names(here) == {"out/0.ckpt", "big"} and (here / "big").stat().st_size > 100_000


def test_a_home_that_hangs_at_the_end_holds_no_receipt_up(testbed: Testbed, tmp_path: Path) -> None:
    """Given a host whose home hangs, when the run is killed, then the receipt comes and the run
    ends, and says that it does not know; when the home answers again, the results are brought."""
    workdir(tmp_path)
    host = testbed["tf1"]
    home = host.account.home
    with FreezableDisk(tmp_path / "image", inside(host.disk, home) / ".local") as disk:
        subprocess.run(["chown", f"{host.account.uid}", str(disk.mountpoint)], check=True)
        with Up(
            "up", str(write(tmp_path, cluster(testbed.hosts_toml(), "tf1", until="/no"))), "--json"
        ) as up:
            up.log("worker:0", "saved")
            disk.freeze()
            up.press_ctrl_c()
            assert up.wait() == 130, up.transcript()
            assert confirmed(up)
        assert f"tfmux collect {up.run_id}" in up.said
        disk.thaw()
        wait_until(lambda: not host.leftovers(), "the agent has gone")
        done = command.run("collect", up.run_id)
        assert done.returncode == 0, done.stderr
        here = RunFolder.find(up.run_id).path / "collected/tf1"
        assert names(here) == {"out/0.ckpt"}


@pytest.mark.prove
def test_results_of_nodes_are_brought_when_their_job_is_over(
    slurm_scenario: Scenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given tasks on nodes of Slurm that save files in their workdir, when the run has given the
    nodes back, then it has named them, and they are found in the home that the nodes share."""
    workdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(slurm_scenario.bed.folder / "state"))
    python = json.dumps(sys.executable)
    table = f'[slurm]\nnodes = 2\ntime = "10"\npython = {python}\n'
    file = write(tmp_path, cluster(table, "node0", "node1"))
    with Up("up", str(file), "--json") as up:
        assert up.wait() == 0, up.transcript()
    assert {one["host"] for one in up.of("run")[-1]["results_kept"]} == {"node0", "node1"}
    assert slurm_scenario.bed.jobs() == []
    done = command.run("collect", up.run_id)
    assert done.returncode == 0, done.stderr
    assert slurm_scenario.bed.jobs() == []
    here = RunFolder.find(up.run_id).path / "collected"
    assert names(here) == {"node0/out/0.ckpt", "node1/out/1.ckpt"}


PROTECT = """
import os, sys, time
os.makedirs("cache/deep")
open("cache/deep/model.ckpt", "w").write("model")
for folder in ("cache/deep", "cache"):
    os.chmod(folder, 0o555)
print("saved", flush=True)
while not os.path.exists("theirs/go"):
    time.sleep(0.05)
"""


def test_folders_that_let_nothing_go(testbed: Testbed, tmp_path: Path) -> None:
    """Given a task of a user who is not root, that makes its folders read-only, and a folder of
    root in its workdir, as a container leaves it, when the run ends, then what is the user's has
    been moved, the rest has stayed, both come, and the place that is named has both."""
    workdir(tmp_path)
    text = cluster(testbed.hosts_toml(), "tf3")
    old, new = (json.dumps([*python_task(script)])[1:-1] for script in (SAVE, PROTECT))
    assert old in text
    file = write(tmp_path, text.replace(old, new))
    with Up("up", str(file), "--json") as up:
        up.log("worker:0", "saved")
        run = f"/home/tfuser/.local/state/tfmux/{up.run_id}.tf3"
        script = f"cd {run}/stage/work; mkdir -m 755 theirs; echo x > theirs/go"
        testbed["tf3"].run(["sh", "-c", script], as_user=False)
        assert up.wait() == 0, up.transcript()
    (kept,) = up.of("run")[-1]["results_kept"]
    assert (kept["files"], kept["folder"]) == (2, run)
    done = command.run("collect", up.run_id)  # waits until the agent has moved what it can
    assert done.returncode == 0, done.stderr
    find = f"cd {run}; find . -name go -o -name '*.ckpt'"
    found = testbed["tf3"].run(["sh", "-c", find]).stdout.decode().split()
    assert sorted(found) == ["./results/cache/deep/model.ckpt", "./stage/work/theirs/go"]
    collected = RunFolder.find(up.run_id).path / "collected/tf3"
    assert names(collected) == {"cache/deep/model.ckpt", "theirs/go"}
