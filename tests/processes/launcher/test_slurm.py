"""Requests to Slurm and other schedulers, shown before they are made."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from argparse import Namespace
from pathlib import Path

import jsonschema
import pytest

from launcher.cluster.read import loads
from launcher.hosts.frames import Rules
from launcher.plan.planner import make_plan
from launcher.preflight import report_schema
from launcher.slurm.login import LocalCommands, NoAnswerError, SlurmError
from launcher.slurm.script import batch_script, request_of
from tests.support.cluster_texts import SALLOC, UNLISTED_HOSTS
from tests.support.cluster_texts import cluster_on_slurm as cluster
from tests.support.command import run, write
from tui.commands.hosts_from import read_cluster
from tui.commands.plan import output_schema
from tui.format import request_text

FILE = """
name = "s"
[slurm]
nodes = 2
time = "04:00:00"
partition = "gpu"
options = ["--account=proj 42"]
[jobs.worker]
tasks = ["node0:auto", "node1:auto"]
[run]
command = ["train"]
env_from = ["TOKEN"]
"""
ASKS = re.compile(
    r"asks for nodes by: sbatch '--account=proj 42' --parsable --job-name=tfmux-(?P<run>\S+) "
    r"--nodes=2 (?P<more>.*), which reads this batch script:\n"
)


@pytest.fixture
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable that no output may have."""
    monkeypatch.setenv("TOKEN", "hunter2")


@pytest.mark.usefixtures("secret")
def test_the_plan_has_the_script_word_for_word(tmp_path: Path) -> None:
    """With --json it is what sbatch would read but for the run's id, and a shell reads it; the
    text has no line that nobody reads. No secret is in either."""
    file = write(tmp_path, FILE)
    done = run("plan", str(file))
    assert done.returncode == 0, done.stderr
    asks = ASKS.search(done.stdout)
    assert asks is not None and done.stdout.startswith("stage 1: worker:0\n")
    assert max(map(len, done.stdout.splitlines())) < 1000
    said = run("plan", str(file), "--json")
    assert "hunter2" not in done.stdout + said.stdout
    answer = json.loads(said.stdout)
    jsonschema.validate(answer, output_schema())
    request = answer["slurm"]
    assert request["argv"][:3] == ["sbatch", "--account=proj 42", "--parsable"]
    assert request["login"] == ""
    cluster = loads(FILE, "x", tmp_path)
    expected = request_of(cluster, make_plan(cluster, asks["run"]))
    assert expected is not None
    assert done.stdout[asks.end() :] == request_text(expected).partition("\n")[2]
    assert subprocess.run(["sh", "-n"], input=request["script"], text=True).returncode == 0
    (name,) = [word for word in request["argv"] if word.startswith("--job-name=tfmux-")]
    same = request_of(cluster, make_plan(cluster, name.removeprefix("--job-name=tfmux-")))
    assert same is not None and request["script"] == same.script
    assert expected.argv[5:] == tuple(asks["more"].split())
    assert "slurm" not in json.loads(run("plan", str(write(tmp_path, LOCAL)), "--json").stdout)


LOCAL = '[jobs.w]\ntasks = ["localhost:auto"]\ncommand = ["x"]\n'


@pytest.mark.usefixtures("secret")
def test_the_check_shows_the_script_whatever_slurm_says(tmp_path: Path) -> None:
    """Here there is no Slurm to ask, or one that knows no partition gpu."""
    file = write(tmp_path, FILE.replace('"gpu"', '"no-such-partition"'))
    done = run("check", str(file))
    assert done.returncode == 3
    asks = ASKS.search(done.stdout)
    assert asks is not None and "--partition=no-such-partition " in asks["more"]
    assert done.stdout.rstrip().splitlines()[-1].startswith("✗ a launch would fail")
    said = run("check", str(file), "--json")
    answer = json.loads(said.stdout)
    jsonschema.validate(answer, report_schema())
    assert "--nodes=2" in answer["slurm"]["argv"]
    assert "hunter2" not in done.stdout + said.stdout


@pytest.mark.usefixtures("secret")
def test_the_program_of_the_agents_is_cut() -> None:
    """One line of tens of thousands of characters; all others are whole."""
    cluster = loads(FILE, "x", Path("/srv"))
    request = request_of(cluster, make_plan(cluster, "s-1"))
    assert request is not None
    whole, cut = request.script.splitlines(), request_text(request).splitlines()[1:]
    changed = [(a, b) for a, b in zip(whole, cut, strict=True) if a != b]
    assert len(changed) == 1 and len(changed[0][0]) > 10_000
    assert re.fullmatch(r"agent='\S{33}… \([\d,]+ characters; whole with --json\)", changed[0][1])


RULES = Rules(lease=60.0, grace=5.0, on_disconnect="stop")


async def test_commands_get_no_secret_and_end_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """sbatch stores its environment with the job."""
    monkeypatch.setenv("TOKEN", "hunter2")
    monkeypatch.setenv("TFMUX_RESUME", "x")
    output = await LocalCommands(["TOKEN"]).run(["sh", "-c", "env; cat; exit 3"], "in")
    assert output.status == 3 and output.stdout.endswith("in")
    assert "hunter2" not in output.stdout and "TFMUX_" not in output.stdout
    with pytest.raises(SlurmError, match="did not answer within"):
        await LocalCommands().run(["sleep", "1000"], timeout=0.2)
    with pytest.raises(SlurmError, match="no-such-program: No such file"):
        await LocalCommands().run(["no-such-program"])
    flood = await LocalCommands().run(["sh", "-c", "yes | head -c 9000000; yes >&2 & kill $!"])
    assert len(flood.stdout) <= 1 << 20


@pytest.mark.parametrize("script", ["echo $!; sleep 1000", "echo 4711 $!"], ids=["hangs", "ends"])
async def test_who_holds_the_output_of_a_command_open_holds_up_nobody(
    tmp_path: Path, script: str
) -> None:
    """A site's wrapper leaves something behind, out of its session: a command that hangs ends in
    its time, and one that has ended is believed."""
    pid = tmp_path / "pid"
    argv = ["sh", "-c", f"setsid sleep 1000 & echo $! > {pid}; {script}"]
    try:
        if "4711" in script:
            output = await LocalCommands().run(argv)
            assert output.status == 0 and output.stdout.startswith("4711 ")
        else:
            with pytest.raises(NoAnswerError):
                await LocalCommands().run(argv, timeout=3.0)
    finally:
        os.kill(int(pid.read_text()), signal.SIGKILL)


def test_the_script_is_a_shell_script_without_secrets() -> None:
    """A shell reads all of it, and it has what the file says."""
    table = cluster('partition = "gpu"\ngpus = 2\npython = "/opt/x y/python"').slurm
    assert table is not None
    script = batch_script(table, "c-1", RULES)
    assert subprocess.run(["sh", "-n"], input=script, text=True).returncode == 0
    assert "'/opt/x y/python'" in script
    assert len(script) < 200_000


def test_a_file_with_a_byte_order_mark_gets_its_hosts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a list, and in the shell of a Slurm job."""
    on_slurm = UNLISTED_HOSTS + '[slurm]\nnodes = 2\ntime = "1"\n'
    for name, text in (("listed", UNLISTED_HOSTS), ("slurm", on_slurm)):
        (tmp_path / name).write_text("\ufeff" + text, encoding="utf-8")
    (tmp_path / "hosts").write_text("tf1\ntf2\n")
    listed, hosts = tmp_path / "listed", tmp_path / "hosts"
    asked = Namespace(file=listed, hosts_from="hostfile", hostfile=hosts)
    assert set(read_cluster(asked)[0].hosts) >= {"node0", "node1"}
    (tmp_path / "scontrol").write_text("#!/bin/sh\nprintf 'n1\\nn2\\n'\n")
    (tmp_path / "scontrol").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    for variable, value in SALLOC.items():
        monkeypatch.setenv(variable, value)
    cluster, _ = read_cluster(Namespace(file=tmp_path / "slurm"))
    assert cluster.slurm is not None and cluster.slurm.job == "8123"


@pytest.mark.parametrize(("job", "stays"), [("8120", True), ("8121", False), ("", False)])
async def test_a_command_has_variables_of_its_own_job_alone(
    monkeypatch: pytest.MonkeyPatch, job: str, stays: bool
) -> None:
    """Variables of another job, and exported options, are for srun and tasks of that job. Questions
    have none that change their answer, and their times are UTC."""
    for name in ("SLURM_JOB_ID", "SLURM_NTASKS", "SRUN_DEBUG", "SLURM_LABELIO", "SQUEUE_USERS"):
        monkeypatch.setenv(name, "8120")
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm.conf")
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    commands = LocalCommands({"TOKEN"}, job)
    ran, asked = (await commands.run(("env",))).stdout, (await commands.ask(("env",))).stdout
    for output in (ran, asked):
        assert ("SLURM_NTASKS=" in output) is stays and ("SRUN_DEBUG=" in output) is stays
        assert "SLURM_CONF=/etc/slurm.conf" in output
    assert "SQUEUE_USERS" in ran and "SQUEUE_USERS" not in asked
    assert "TZ=Asia/Tokyo" in ran and "TZ=UTC0" in asked
