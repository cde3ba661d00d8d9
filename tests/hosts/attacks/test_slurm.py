"""Slurm whose commands lie, hang and forget, and variables of other jobs and of people."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.budgets import soak
from tests.support.command import python_task
from tests.support.patience import wait_until
from tests.support.scenario import confirmed, ready, receipt
from tests.support.slurm_scenario import ALL, Scenario
from tests.testbed import proc
from tests.testbed.slurm import SlurmBed

pytestmark = pytest.mark.prove

OF_ANOTHER_JOB = {
    **{"SLURM_JOB_ID": "99999", "SLURM_JOBID": "99999", "SLURM_NNODES": "4", "SLURM_NTASKS": "64"},
    **{"SLURM_NTASKS_PER_NODE": "16", "SLURM_CPUS_PER_TASK": "64", "SLURM_MEM_PER_CPU": "999999"},
    **{"SLURM_ARRAY_JOB_ID": "99990", "SLURM_ARRAY_TASK_ID": "3", "SLURM_HET_SIZE": "2"},
    **{"SLURM_GPUS_PER_TASK": "9", "SLURM_STEP_ID": "4", "SLURM_PROCID": "63"},
    **{"SLURM_JOB_PARTITION": "nowhere", "SLURM_WORKING_DIR": "/no-such", "SLURM_EXACT": "1"},
    **{"SLURM_CPU_BIND": "quiet,mask_cpu:0xF0", "SLURM_DISTRIBUTION": "arbitrary"},
}
OPTIONS = {
    **{"SLURM_LABELIO": "1", "SLURM_STDINMODE": "none", "SLURM_STDOUTMODE": "none"},
    **{"SLURM_STDERRMODE": "none", "SLURM_TASK_PROLOG": "/bin/false", "SLURM_DEBUG": "4"},
    **{"SLURM_EXPORT_ENV": "NONE", "SLURM_WAIT": "1", "SLURM_TIMELIMIT": "1"},
}
FILTERS = {
    **{"SQUEUE_STATES": "SUSPENDED", "SQUEUE_USERS": "nobody", "SQUEUE_PARTITION": "few"},
    **{"SQUEUE_NAMES": "x", "SQUEUE_FORMAT": "%u", "SINFO_PARTITION": "few", "SINFO_FORMAT": "%n"},
    **{"SCANCEL_STATE": "PENDING", "SCANCEL_NAME": "x", "SCANCEL_INTERACTIVE": "1"},
    **{"SLURM_TIME_FORMAT": "relative", "SLURM_BITSTR_LEN": "1"},
}
WRAPPER = """#!/bin/sh
[ ! -e {folder}/{name} ] || touch {folder}/asked.{name}
case $(cat {folder}/{name} 2>/dev/null) in
hang) exec sleep 1000 ;;
empty) exit 0 ;;
killed) kill -9 $$ ;;
flood) exec yes "1|RUNNING|N/A|sl1|None" ;;
long) head -c 1000000 /dev/zero | tr '\\0' x; exit 0 ;;
invalid) echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1 ;;
controls) printf '1|\\033[2J\\007|-1|sl1|\\n1|RUNNING|N/A|-oProxyCommand=x|None\\n'; exit 0 ;;
esac
exec {real} "$@"
"""


class Lies:
    """Slurm's commands in front of the real ones, which answer as told."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder = folder / "lies"
        self._folder.mkdir()
        places = folder / "wrappers"
        places.mkdir()
        for name in ("squeue", "scontrol", "sinfo", "scancel", "srun"):
            path = places / name
            real = shutil.which(name)
            path.write_text(WRAPPER.format(folder=self._folder, name=name, real=real))
            path.chmod(0o755)
        monkeypatch.setenv("PATH", f"{places}:{os.environ['PATH']}")

    def tell(self, how: str, *names: str) -> None:
        for name in names:
            (self._folder / name).write_text(how)

    def wait_asked(self, name: str) -> None:
        """Waits until a command has answered as told."""
        wait_until((self._folder / f"asked.{name}").exists, f"{name} is asked")

    def end(self) -> None:
        for path in self._folder.iterdir():
            path.unlink()


@pytest.fixture
def scenario(shared_slurm_bed: SlurmBed, tmp_path: Path) -> Iterator[Scenario]:
    """A bed of four nodes for all tests of this module; a failed one leaves nothing to the next."""
    yield Scenario(shared_slurm_bed, tmp_path)
    for process in shared_slurm_bed.leftovers():
        proc.signal_process(process, signal.SIGKILL)
    for job in shared_slurm_bed.jobs():
        shared_slurm_bed.run("scancel", job.split()[0])
    shared_slurm_bed.wait_empty()


def kill_bridges(scenario: Scenario) -> None:
    """What carries bytes to the agents ends, and the agents live on."""
    for name in scenario.bed.names[:3]:
        for process in scenario.agents(name)[2:]:
            proc.signal_process(process, signal.SIGKILL)


def test_variables_of_another_job_and_options_of_a_person_change_nothing(
    scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given variables of a job that has ended, and options that srun takes from its environment,
    when a run is launched, then agents are reached, and tasks see nothing of that job."""
    for name, value in {**OF_ANOTHER_JOB, **OPTIONS, **FILTERS}.items():
        monkeypatch.setenv(name, value)
    shows = (
        "import os, time\n"
        "for name in sorted(os.environ):\n"
        "    name.startswith('S') and print(name, os.environ[name], flush=True)\n"
        "print('is all', flush=True)\n"
        "time.sleep(1000)\n"
    )
    ready_at = '[start.ready]\nps = "started"\nworker = "started"'
    file = scenario.file(run=f"grace = 1.0\n{ready_at}", words=python_task(shows))
    with scenario.up(file) as up:
        for task in ALL:
            up.log(task, "is all")
        up.press_ctrl_c()
        assert up.wait() == 130, up.transcript()
    assert confirmed(up)
    seen = dict(event["text"].partition(" ")[::2] for event in up.of("log"))
    assert seen["SLURM_JOB_ID"].isdecimal() and seen["SLURM_NNODES"] == "3", seen
    strange = {"SLURM_ARRAY_TASK_ID", "SLURM_HET_SIZE", "SLURM_GPUS_PER_TASK", "SLURM_LABELIO"}
    assert not strange & seen.keys() and "99999" not in seen.values()
    for name in (*OF_ANOTHER_JOB, *OPTIONS, *FILTERS):
        monkeypatch.delenv(name)
    scenario.check_empty()


def test_filters_of_a_person_make_no_word_of_slurm(
    scenario: Scenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given agents that cannot be reached on nodes that are up, and variables by which squeue and
    scancel leave the job out, when the run is killed, then the job is cancelled all the same, and
    Slurm's word comes when nothing is left."""
    lies = Lies(tmp_path, monkeypatch)
    with monkeypatch.context() as patch:
        for name, value in FILTERS.items():
            patch.setenv(name, value)
        up = scenario.up(scenario.file(run="grace = 1.0\nlease = 600"))
    with up:
        ready(up, *ALL)
        lies.tell("hang", "srun")
        kill_bridges(scenario)
        for task in ALL:
            up.state(task, "lost")
        up.press_ctrl_c()
        assert up.wait() == 130, up.transcript()
        assert [p for p in scenario.bed.leftovers() if "TFMUX_TASK" in p.environ] == []
    assert confirmed(up) and all(host["by_engine"] for host in receipt(up).values())
    lies.end()
    scenario.check_empty()


@pytest.mark.parametrize(
    "how", ["empty", "invalid", "controls", *map(soak, ["killed", "flood", "long", "hang"])]
)
def test_what_slurms_commands_say_ends_no_task_that_is_heard(
    scenario: Scenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Given commands that print nothing, floods, one long line or control characters, hang, are
    killed, or know no job, when one of two tasks has ended, and Slurm is asked, then the other goes
    on to its end, and the agents' word is enough: the run is a success."""
    lies = Lies(tmp_path, monkeypatch)
    env = {"FIRST": "worker:0", "FIRST_SECONDS": "go on", "SECONDS": "end"}
    run = 'grace = 1.0\nframework = "torch"'
    places = {"worker": ["node0", "node1"]}
    with scenario.up(scenario.file(places, modes="", run=run, env=env, nodes=2)) as up:
        ready(up, "worker:0", "worker:1")
        lies.tell(how, "squeue", "scontrol", "sinfo")
        scenario.tell(up.run_id, "go on")
        up.state("worker:0", "exited")
        lies.wait_asked("squeue")
        scenario.tell(up.run_id, "end")
        up.state("worker:1", "exited")
        lies.end()
        assert up.wait() == 0, up.transcript()
    assert confirmed(up)
    scenario.check_empty()
