"""Requests that Slurm cannot meet, or nobody can make: one error, what to do, and nothing left."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support import command
from tests.support.budgets import soak
from tests.support.command import Up
from tests.support.patience import wait_until
from tests.support.requirements import require
from tests.support.scenario import confirmed, ready, receipt
from tests.support.slurm_scenario import ALL, Scenario, folders, forget
from tests.testbed import slurm
from tests.testbed.slurm import SlurmBed


@pytest.fixture
def scenario(slurm_scenario: Scenario) -> Scenario:
    """A bed of four nodes; a run takes three, unless its test says another number."""
    return slurm_scenario


def refused(file: Path, *said: str | re.Pattern[str]) -> None:
    """A launch ends with 3 and these words or patterns, and nothing is in doubt."""
    with Up("up", str(file), "--json") as up:
        assert up.wait() == 3, up.transcript()
    for words in said:
        pattern = re.compile(re.escape(words)) if isinstance(words, str) else words
        assert pattern.search(up.said), up.transcript()
    assert "nothing was started" in up.said
    assert "could not be released" not in up.said and "no answer" not in up.said
    assert up.of("receipt") == [] or receipt(up) == {} or confirmed(up), up.transcript()


def blocked(file: Path, *said: str) -> None:
    """The check says the same."""
    done = command.run("check", str(file))
    assert done.returncode == 3, done.stdout + done.stderr
    words = " ".join(done.stdout.split())
    assert all(one in words for one in said), done.stdout


@pytest.mark.prove
def test_no_sbatch(scenario: Scenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a machine without Slurm's commands, when a run is launched or checked, then exit 3, and
    it says that there is no `sbatch` and that `login` can name a host with one."""
    said = ("sbatch: No such file or directory", 'login = "user@host"')
    with monkeypatch.context() as patch:
        patch.setenv("PATH", str(tmp_path))
        refused(scenario.file(), *said)
        blocked(scenario.file(), *said)
    scenario.check_empty()


@pytest.mark.prove
def test_login_hosts_that_let_nobody_in(tmp_path: Path) -> None:
    """Given a login host that is absent, has no sshd, does not know the user or gives the user no
    shell, when a run is launched or checked, then exit 3 with that reason, and no job is there."""
    require(slurm.missing())
    with SlurmBed(nodes=1, login=True) as bed:
        scenario = Scenario(bed, tmp_path)
        address = bed.give_access(Path.home()).partition("@")[2].partition(":")[0]
        nowhere = address.rpartition(".")[0] + ".199"
        for login, said in {
            f"root@{nowhere}:22": ("login", nowhere),
            f"root@{address}:23": ("login", "refused"),
            f"no-such-user@{address}:22": ("login", "permission denied"),
            f"daemon@{address}:22": ("not available",),
        }.items():
            file = scenario.file(nodes=2, slurm=f'login = "{login}"')
            refused(file, *said)
            blocked(file, *said)
        assert bed.jobs() == []


@pytest.mark.prove
def test_munge_is_down(scenario: Scenario) -> None:
    """Given a Slurm whose munge is down, so that nobody can prove who they are, when a run is
    launched or checked, then exit 3, and munge is named."""
    with scenario.bed.without_munge():
        refused(scenario.file(), "munge")
        blocked(scenario.file(), "munge")
    scenario.check_empty()


REFUSED = {
    'partition = "nowhere"': ("invalid partition", "sinfo -s lists them"),
    'partition = "closed"': ("Invalid user id", "this user may not submit that"),
    "gpus = 99": ("not available", "correct nodes, gpus or options"),
    'options = ["--no-such-option"]': ("unrecognized option", "correct options"),
}


@pytest.mark.prove
def test_what_sbatch_refuses_is_said_with_what_to_change(scenario: Scenario) -> None:
    """Given an absent or closed partition, more GPUs than a node has, or an unknown option, when a
    run is launched or checked, then exit 3 with sbatch's reason and with what to change."""
    for line, said in REFUSED.items():
        file = scenario.file(slurm=line)
        refused(file, *said)
        blocked(file, *said)
    scenario.check_empty()


@pytest.mark.prove
def test_limits_that_slurm_enforces_are_refused_by_sbatch(scenario: Scenario) -> None:
    """Given a Slurm that enforces the limits of partitions, when a run that is too long for its
    partition is launched or checked, then exit 3 with sbatch's words and with what to change."""
    conf = scenario.bed.folder / "slurm.conf"
    conf.write_text(f"EnforcePartLimits=ALL\n{conf.read_text()}")
    scenario.bed.run("scontrol", "reconfigure")
    file = scenario.file(slurm='partition = "short"')
    said = ("Slurm: sbatch: error: ", "Requested time limit is invalid", "write a shorter time")
    refused(file, *said)
    blocked(file, *said[1:])
    scenario.check_empty()


@pytest.mark.prove
def test_what_a_partition_never_gives_is_said_in_the_queue(scenario: Scenario) -> None:
    """Given a partition for shorter times, for fewer nodes or for other accounts, when sbatch has
    taken the job, then a note says what to change, and Ctrl-C cancels the job in the queue."""
    for partition, said in {
        "short": "write a shorter time",
        "few": "fewer nodes",
        "members": "write an account that the partition allows",
    }.items():
        with scenario.up(slurm=f'partition = "{partition}"') as up:
            up.wait_for(lambda e, said=said: said in e.get("note", ""), said)  # type: ignore[misc]
            up.press_ctrl_c()
            assert up.wait() == 130, up.transcript()
        assert "cancelled in the queue: nothing had started" in up.said
    scenario.check_empty()


def without_python(file: Path, python: str) -> Path:
    """The file with another interpreter on the nodes."""
    lines = file.read_text().splitlines()
    lines = [f'python = "{python}"' if line.startswith("python = ") else line for line in lines]
    file.write_text("\n".join(lines) + "\n")
    return file


@pytest.mark.prove
def test_no_python_on_any_node(scenario: Scenario) -> None:
    """Given an interpreter that no node has, so that the job ends at once, when a run is launched,
    then exit 3 says to write where a Python is, and no job is left."""
    file = without_python(scenario.file(), "/opt/no-such/python")
    refused(file, "to a Python 3.8 or newer")
    scenario.check_empty()


@pytest.mark.prove
def test_no_python_on_one_node(scenario: Scenario) -> None:
    """Given an interpreter that one of its nodes lacks, when a run is launched, then exit 3 names
    that node and what to write, and the agents of the others end."""
    for name in scenario.bed.names[:2]:
        scenario.bed.run_on(name, "ln", "-s", shutil.which("python3") or "", "/tmp/python")
    file = without_python(scenario.file(), "/tmp/python")
    refused(file, "node2 (sl3)", "via: srun -Q", "to a Python 3.8 or newer")
    scenario.check_empty()


@pytest.mark.prove
def test_homes_that_are_one_disk(scenario: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given nodes that keep their state on one shared disk, when a run starts, then each has a
    folder of its own there; a kill is confirmed by all and leaves no folder."""
    monkeypatch.setenv("XDG_STATE_HOME", str(scenario.bed.folder / "state-of-tests"))
    monkeypatch.setenv("HOME", str(scenario.bed.folder))  # the directory of tasks, on each node
    with scenario.up() as up:
        ready(up, *ALL)
        assert len(folders(scenario, up.run_id, "sl1")) == 3
        up.press_ctrl_c()
        assert up.wait() == 130, up.transcript()
    assert len(receipt(up)) == 3 and confirmed(up)
    scenario.check_logs(up.run_id)
    assert not folders(scenario, up.run_id, "sl1")
    scenario.check_empty()


READ_ONLY = ("mount", "-o", "remount,ro", "/tmp")
FULL = ("mount", "-t", "tmpfs", "-o", "nr_inodes=2", "none", "/var/lib")
"""There is room for the user's folder, but not for the run's in it."""
NOT_WRITABLE, NO_SPACE = "/tmp: Read-only file system", "No space left on device"


@pytest.mark.prove
@pytest.mark.parametrize(
    ("names", "fault", "said"),
    [
        (["sl3"], FULL, NO_SPACE),
        soak(["sl3"], READ_ONLY, NOT_WRITABLE),
        soak(["sl1", "sl2", "sl3", "sl4"], FULL, NO_SPACE),
        (["sl1", "sl2", "sl3", "sl4"], READ_ONLY, NOT_WRITABLE),
    ],
    ids=["one-full", "one-read-only", "all-full", "all-read-only"],
)
def test_agents_that_cannot_make_their_folder(
    scenario: Scenario,
    monkeypatch: pytest.MonkeyPatch,
    names: Sequence[str],
    fault: Sequence[str],
    said: str,
) -> None:
    """Given a read-only or full disk on one node or on all, when a run is launched, then exit 3
    names a node and the reason. Where all agents have ended before anybody looked, it only says
    that they could not make their folder."""
    monkeypatch.setenv("XDG_STATE_HOME", "/var/lib")
    for name in scenario.bed.names:
        scenario.bed.run_on(name, "mount", "-t", "tmpfs", "none", "/var/lib")
    for name in names:
        scenario.bed.run_on(name, *fault)
    if len(names) == 1:
        refused(scenario.file(modes=""), "node2 (sl3)", said)
    else:
        named = rf"node2 \(sl3\): .*{re.escape(said)}"
        refused(scenario.file(modes=""), re.compile(f"cannot make its folder on a node|{named}"))
    scenario.check_empty()


@pytest.mark.prove
def test_nodes_that_do_not_know_each_other(scenario: Scenario) -> None:
    """Given a node that cannot resolve another node's name, when a run is launched, then exit 3
    names both: TensorFlow's tasks would wait for each other."""
    forget(scenario, "sl2", lambda name: name == "sl3")
    refused(scenario.file(), "sl2 cannot resolve sl3, the name of node2", "/etc/hosts")
    scenario.check_empty()


# --- a kill while sbatch is under way -------------------------------------------------------------

WRAPPER = """#!/bin/sh
touch {folder}/asked
(until [ -e {folder}/go ]; do sleep 0.05; done
 {sbatch} "$@"; status=$?; touch {folder}/done; exit $status)
status=$?
exit $status
"""


def wrap_sbatch(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Puts an sbatch that waits for a file `go` before the real one, as sites have wrappers."""
    real = shutil.which("sbatch")
    places = folder / "wrappers"
    places.mkdir()
    wrapper = places / "sbatch"
    wrapper.write_text(WRAPPER.format(folder=places, sbatch=real))
    wrapper.chmod(0o755)
    path = f"{places}:{Path(real or '').parent}:/usr/bin:/bin"
    monkeypatch.setenv("PATH", path)
    return places


@pytest.mark.prove
def test_a_kill_while_sbatch_submits_leaves_no_job(
    scenario: Scenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given an `sbatch` that is under way, when Ctrl-C is pressed, then the kill waits for its
    answer and cancels the job in the queue."""
    marks = wrap_sbatch(tmp_path, monkeypatch)
    with scenario.up() as up:
        wait_until((marks / "asked").exists, "sbatch is under way")
        up.press_ctrl_c()
        up.wait_for(lambda e: e.get("state") == "killing", "killing")
        (marks / "go").touch()
        assert up.wait() == 130, up.transcript()
    wait_until((marks / "done").exists, "sbatch has ended")
    assert "Slurm 1 was cancelled in the queue: nothing had started" in up.said
    scenario.check_empty()


@pytest.mark.prove
def test_a_second_kill_does_not_wait_for_sbatch(
    scenario: Scenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given an `sbatch` that is under way, when Ctrl-C is pressed twice, then `sbatch` is ended,
    and stderr has the `scancel` for a job that may still come."""
    marks = wrap_sbatch(tmp_path, monkeypatch)
    with scenario.up() as up:
        wait_until((marks / "asked").exists, "sbatch is under way")
        up.press_ctrl_c()
        up.wait_for(lambda e: e["event"] == "run" and e["state"] == "killing", "the first press")
        up.press_ctrl_c_again()
        assert up.wait() == 130, up.transcript()
    assert f"scancel --me --name=tfmux-{up.run_id}" in up.said
    assert not (marks / "done").exists()
    scenario.check_empty()
