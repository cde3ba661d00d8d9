"""Runs on nodes that somebody else got: the shell of a Slurm job, a list of hosts."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests import command
from tests.command import Up
from tests.faults import tasks
from tests.faults.scenario import confirmed, ready, receipt
from tests.testbed import disk
from tests.testbed.namespaces import Testbed
from tests.testbed.slurm import SlurmBed

pytestmark = pytest.mark.testbed

ALL = ("ps:0", "worker:0")


def file(folder: Path, python: str, hosts: str = "") -> Path:
    """A ps and a worker on two hosts that the file does not name."""
    text = f"""
name = "given"
{hosts}
[jobs.ps]
tasks = ["node0:auto"]
[jobs.worker]
tasks = ["node1:auto"]
[run]
command = {json.dumps([python, *tasks.command()[1:]])}
env = {{ LEDGER = "/tmp/ledger", PACE = "0.01", MODES = "stubborn daemon" }}
workdir = ""
grace = 1
"""
    return command.write(folder, text)


@pytest.mark.parametrize(
    "table", ["", f'[slurm]\nnodes = 2\ntime = "1"\npython = "{sys.executable}"']
)
def test_in_the_shell_of_a_slurm_job(
    slurm_bed: SlurmBed, tmp_path: Path, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its nodes are used, nothing is submitted, everything is ended, and the job stays."""
    slurm_bed.run("salloc", "-N", "3", "--no-shell", "--time=10")
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "sl[1-3]")
    path = file(tmp_path, sys.executable, table)
    words = [] if table else ["--hosts-from", "slurm"]
    planned = command.run("plan", str(path), "--json", *words)
    assert '"sl2:auto"' in planned.stdout, planned.stderr
    with Up("up", str(path), "--json", *words) as up:
        ready(up, *ALL)
        assert slurm_bed.jobs() == ["1 RUNNING"]
        up.press_ctrl_c()
        assert up.wait() == 130, up.told()
    assert len(receipt(up)) == 2 and confirmed(up)
    assert ("the nodes are those of Slurm 1" in up.said) == bool(table)
    assert slurm_bed.leftovers() == []
    assert slurm_bed.jobs() == ["1 RUNNING"]
    slurm_bed.run("scancel", "1")
    slurm_bed.wait_empty()


def test_a_list_of_hosts(
    testbed: Testbed, tmp_path: Path, tfmux_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As PBS leaves it: a line for each slot. The run knows its hosts without the list."""
    testbed.give_access(tfmux_home)
    listed = tmp_path / "nodes"
    listed.write_text("tf1\ntf1\ntf2\ntf2\n")
    monkeypatch.setenv("PBS_NODEFILE", str(listed))
    path = file(tmp_path, disk.PYTHON)
    with Up("up", str(path), "--json", "--hosts-from", "hostfile") as up:
        ready(up, *ALL)
        run_id = up.run_id
        listed.unlink()
        done = command.run("kill", run_id)
        assert done.returncode == 0, done.stdout + done.stderr
        assert up.wait() == 130, up.told()
    assert set(receipt(up)) == {"node0", "node1"} and confirmed(up)
    assert testbed["tf1"].leftovers() == [] and testbed["tf2"].leftovers() == []
    failed = command.run("up", str(path), "--headless", "--hosts-from", "hostfile")
    assert failed.returncode == 2 and "No such file" in failed.stderr
