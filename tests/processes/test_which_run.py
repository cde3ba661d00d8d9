"""Which run a command means: the one that is active, by its name or without; again, and in the
background."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from launcher.paths import runs_home
from launcher.store.runs import RunFolder
from tests.support import command
from tests.support.cluster_texts import cluster_text, one_task
from tests.support.command import Up, python_task, run, write
from tests.support.patience import wait_until
from tests.support.terminal import living

SLOWLY = """\
import time
print("here", flush=True)
while True:
    time.sleep(0.2)
    print("tick", flush=True)
"""


@pytest.mark.prove
def test_logs_stacks_attach_and_kill_mean_the_one_active_run(tmp_path: Path) -> None:
    """While there are two, they end nothing and say what there is; kill ends the last one."""
    file = write(tmp_path, one_task(SLOWLY))
    with Up("up", str(file), "--json") as first, Up("up", str(file), "--json") as second:
        for up in (first, second):
            up.log("worker:0", "here")
        for words in (["kill"], ["kill", "--force"], ["logs", "worker:0"], ["stacks"], ["attach"]):
            done = command.run(*words)
            assert done.returncode == 2 and not done.stdout, done
            assert first.run_id in done.stderr and second.run_id in done.stderr
        assert first.process.poll() is second.process.poll() is None
        assert command.run("kill", second.run_id).returncode == 0
        assert second.wait() == 130
        assert command.run("logs", "worker:0").stdout.startswith("here\n")
        assert command.run("logs").stdout.startswith("worker:0 | here\n")
        for words in ([], ["worker:0"]):
            stacks = command.run("stacks", *words)
            assert stacks.returncode == 0 and "worker:0" in stacks.stdout, stacks
        with Up("attach", "--json") as attached:
            attached.log("worker:0", "tick")
            done = command.run("kill")
            assert done.returncode == 0, done.stderr
            assert (
                f"run {first.run_id}:" in done.stdout
                and "no process is left, 1 host confirmed" in done.stdout
            )
            assert attached.wait() == 130 and attached.run_id == first.run_id
        assert first.wait() == 130
    assert not living()
    assert command.run("kill").returncode == 2


def test_the_name_means_the_launch_that_goes_on(tmp_path: Path) -> None:
    """Given one file, launched again after an end, beside an active cluster whose name begins
    alike, then all commands take the name for the launch that goes on; none ends the other."""
    ended = write(tmp_path, one_task("print('here')").replace("one", "mxnet", 1), "mxnet.toml")
    assert command.run("up", str(ended), "--headless").returncode == 0
    slow = [one_task(SLOWLY).replace("one", name, 1) for name in ("mxnet", "mxnet-large")]
    files = [write(tmp_path, text, f"{number}.toml") for number, text in enumerate(slow)]
    with Up("up", str(files[0]), "--json") as up, Up("up", str(files[1]), "--json") as other:
        for each in (up, other):
            each.log("worker:0", "here")
        done = command.run("logs", "mxnet", "worker:0")
        assert done.stdout.startswith("here\n"), done
        assert done.stderr == f"tfmux: using {up.run_id}, the active run\n"
        assert f"{up.run_id} has copied no workdir" in command.run("collect", "mxnet").stderr
        stacks = command.run("stacks", "mxnet", "worker:0")
        assert stacks.returncode == 0 and "time.sleep(0.2)" in stacks.stdout, stacks
        with Up("attach", "mxnet", "--json") as attached:
            attached.log("worker:0", "tick")
            done = command.run("kill", "mxnet")
            assert done.returncode == 0 and f"run {up.run_id}:" in done.stdout, done
            assert attached.wait() == up.wait() == 130 and attached.run_id == up.run_id
        for words in (["kill", "mxnet"], ["kill", "mx"], ["attach", "mxnet-"], ["stacks", "mxn"]):
            assert command.run(*words).returncode == 2, words
        assert other.process.poll() is None and "worker:0" in living()
        assert command.run("kill", other.run_id[:-5]).returncode == 0
        assert other.wait() == 130


def test_a_second_launch_of_a_file_names_the_first(tmp_path: Path) -> None:
    """Given a run that goes on, when its file is launched again, then that says so before it begins
    and names both commands; another file in the same directory, whose name begins alike, does not.
    """
    text = one_task("print('here')").replace("one", "two", 1)
    other = write(tmp_path, one_task("print('here')").replace("one", "two-b", 1), "two-b.toml")
    slow = one_task(SLOWLY).replace("one", "two", 1)
    with Up("up", str(write(tmp_path, slow, "two.toml")), "--json") as first:
        first.log("worker:0", "here")
        file = write(tmp_path, text, "two.toml")
        assert "is still active" not in first.said
        second = command.run("up", str(file), "--headless")
        assert second.returncode == 0, second.stderr
        run = first.run_id
        beside = f"{run}, a run of this file, is still active: this one runs beside it"
        assert f"{beside} (tfmux attach {run}, tfmux kill {run})" in second.stderr
        assert "is still active" not in command.run("up", str(other), "--headless").stderr
        assert command.run("kill", run).returncode == 0
    assert "is still active" not in command.run("up", str(file), "--headless").stderr


PRINTS = "import pathlib; print('says', pathlib.Path('word').read_text(), flush=True)"
WAITS = "import time; print('here', flush=True); time.sleep(1000)"


def launched() -> set[str]:
    """The ids of all runs."""
    return {folder.run_id for folder in RunFolder.all()}


def test_the_last_run_is_launched_again_as_it_was(tmp_path: Path) -> None:
    """Given a run whose cluster file and workdir have changed since, when it is launched again, by
    no name or by its own, then its own copy of the file is launched, on the workdir as it is now,
    and both are said before the first line."""
    (project := tmp_path / "project").mkdir()
    (project / "word").write_text("one")
    file = write(project, cluster_text({"worker": 1}, command=python_task(PRINTS)))
    first = command.run("up", str(file), "--headless")
    assert first.returncode == 0 and "worker:0 | says one" in first.stdout, first.stderr
    (run_id,) = launched()
    (project / "word").write_text("two")
    file.write_text(cluster_text({"worker": 2}))
    for words in ([], [run_id], [run_id[:-2]]):
        before = launched()
        done = command.run("up", "--again", *words, "--headless")
        assert done.returncode == 0, done.stderr
        assert "worker:0 | says two" in done.stdout and "worker:1" not in done.stderr
        assert len(launched() - before) == 1
        told = done.stderr.partition("worker:0")[0]
        assert f"{file.name} has changed since: this run has it as it was" in told
        if words:
            assert f"{run_id} is launched again" in told
            assert "word of the workdir has changed since" in told


@pytest.mark.prove
def test_what_is_not_launched_again(tmp_path: Path) -> None:
    """Without any run, of a run that is not known, beside a file or hosts, and by no name while the
    last run is active, which is then named: exit code 2, and nothing is started."""
    done = command.run("up", "--again", "--headless")
    assert done.returncode == 2 and "no run has been launched here" in done.stderr
    file = write(tmp_path, one_task(WAITS))
    with Up("up", str(file), "--json") as up:
        up.log("worker:0", "here")
        for words, why in {
            (): f"{up.run_id} is active: `tfmux kill {up.run_id}` ends it",
            ("nothing",): "no run 'nothing' here",
            (up.run_id, "--hosts-from", "slurm"): "leave out FILE and the hosts",
        }.items():
            done = command.run("up", "--again", *words, "--headless")
            assert (done.returncode, done.stdout) == (2, "") and why in done.stderr
        assert launched() == {up.run_id}
        done = command.run("rm", "--force", up.run_id)
        assert done.returncode == 1 and f"{up.run_id} is active" in done.stderr
        assert command.run("kill").returncode == 0
        assert up.wait() == 130
    assert not living()
    assert command.run("rm", up.run_id).stdout == f"{up.run_id}\n"
    assert command.run("logs", up.run_id).returncode == 2


@pytest.mark.prove
@pytest.mark.parametrize("rule", ["keep", "stop"])
def test_a_run_whose_launcher_has_died(rule: str, tmp_path: Path) -> None:
    """Given one whose tasks go on, then it is not deleted, and what ends it is said; given one of
    whose host says that nothing is left, then it is."""
    text = one_task(WAITS, settings=f'on_disconnect = "{rule}"')
    with Up("up", str(write(tmp_path, text)), "--json") as up:
        up.log("worker:0", "here")
        up.kill_launcher()
        if rule == "stop":
            wait_until(lambda: not living(), "the agent has ended the task")
        done = command.run("rm", "--force", up.run_id)
        if rule == "keep":
            assert done.returncode == 1 and living()
            assert f"{up.run_id} is active: `tfmux kill {up.run_id}` ends it" in done.stderr
            assert command.run("kill", up.run_id).returncode == 0
            done = command.run("rm", up.run_id)
        assert (done.returncode, done.stdout) == (0, f"{up.run_id}\n"), done.stderr
    assert not living() and not (runs_home() / up.run_id).exists()


@pytest.mark.prove
def test_collect_without_a_run(tmp_path: Path) -> None:
    """Given one active run, then a first word that is no run is a path in its workdir, which is
    said; given none, then the sentence of a run that is not known, and without a word the last
    run."""
    file = write(tmp_path, one_task(WAITS))
    with Up("up", str(file), "--json") as up:
        up.log("worker:0", "here")
        for words in ([], ["out", "*.ckpt"]):
            done = command.run("collect", *words)
            assert done.returncode == 0, done.stderr
            assert f"{up.run_id} has copied no workdir to hosts" in done.stderr
            assert (
                "out is not a run; using it as a path in the workdir of" in done.stderr
            ) is bool(words)
        with Up("up", str(file), "--json") as second:
            second.log("worker:0", "here")
            done = command.run("collect")
            assert done.returncode == 2 and "2 runs are active: name one" in done.stderr
            assert command.run("collect", "out").returncode == 2
            assert command.run("kill", "--all").returncode == 0
            assert up.wait() == second.wait() == 130
    done = command.run("collect", "out")
    assert done.returncode == 2 and "no run 'out' here" in done.stderr
    done = command.run("collect")
    assert done.returncode == 2 and "no active runs; the last one was" in done.stderr


WORK = r"import time\nend = time.process_time() + 1\nwhile time.process_time() < end: pass"
CLUSTER = """
name = "background"
[run]
workdir = ""
on_failure = "keep"
success = "all"
[hosts.localhost]
[jobs.daemon]
command = ["sh", "-c", "setsid sleep 1000 > /dev/null 2>&1 &"]
tasks = ["localhost:auto"]
in_cluster = false
{jobs}
[start.ready]
worker = "started"
"""


def test_a_command_that_only_starts_another_in_the_background_fails(tmp_path: Path) -> None:
    """The form of nearly every launch script: the run ends with 1, and its summary names what was
    left and what to write instead; a job outside of the cluster may leave a daemon."""
    jobs = """
[jobs.worker]
command = ["sh", "-c", "nohup sleep 1000 > log 2>&1 &"]
tasks = ["localhost:auto"]
"""
    file = write(tmp_path, CLUSTER.format(jobs=jobs))
    done = run("up", str(file), "--headless", "--json")
    assert done.returncode == 1, done.stderr
    said = (
        "failed, exit 0 (left 1 process, sleep 1000, which was ended: start it in the foreground, "
    )
    assert f"worker:0 on localhost: {said}without & and nohup)" in done.stderr
    views = [e for e in map(json.loads, done.stdout.splitlines()) if e["event"] == "task"]
    last = {view["task"]: view for view in views}
    assert last["worker:0"]["state"] == "failed" and last["worker:0"]["exit_code"] == 0
    assert last["worker:0"]["left"]["processes"][0]["command"] == "sleep 1000"
    assert last["daemon:0"]["exit_code"] == 0 and "left" not in last["daemon:0"]
    assert "no process is left" in done.stderr


def test_a_command_that_fails_in_the_background_fails(tmp_path: Path) -> None:
    """Though nothing of it is left: the summary says with which status it ended."""
    jobs = """
[jobs.worker]
command = ["sh", "-c", "nohup python3 missing.py > /dev/null 2>&1 &"]
tasks = ["localhost:auto"]
"""
    done = _up(tmp_path, jobs)
    assert done.returncode == 1, done.stderr
    assert "failed, exit 0 (left 1 process, " in done.stderr
    assert ", which failed (exit 2): start it in the foreground" in done.stderr


def test_a_filter_that_finds_nothing_is_no_failure(tmp_path: Path) -> None:
    """`grep -v` of a process substitution ends with 1, behind the program that it has filtered."""
    jobs = """
[jobs.worker]
command = ["bash", "-c", "exec python3 -c 'print(1)' 2> >(grep -v warning >&2)"]
tasks = ["localhost:auto"]
"""
    done = _up(tmp_path, jobs)
    assert done.returncode == 0, done.stderr
    assert "grep" not in done.stderr


def test_a_program_that_has_worked_may_leave_a_helper(tmp_path: Path) -> None:
    """The run is a success, with a note that names the helper, which ends with the run."""
    jobs = """
[jobs.worker]
command = ["sh", "-c", "sleep 1000 & python3 -c '{WORK}'"]
tasks = ["localhost:auto"]
"""
    done = _up(tmp_path, jobs.replace("{WORK}", WORK))
    assert done.returncode == 0, done.stderr
    assert (
        "worker:0 on localhost left 1 process, sleep 1000, which ends with the run" in done.stderr
    )
    assert "no process is left" in done.stderr


def test_check_and_plan_warn_of_it(tmp_path: Path) -> None:
    """Both still do what they do otherwise."""
    jobs = """
[jobs.worker]
command = ["sh", "-c", "nohup sleep 1000 > log 2>&1 &"]
tasks = ["localhost:auto"]
"""
    file = str(write(tmp_path, CLUSTER.format(jobs=jobs)))
    planned, checked = run("plan", file), run("check", file)
    said = "it ends in &, with nohup: the task ends at once"
    assert planned.returncode == 0 and f"worker:0: {said}" in planned.stderr
    assert said not in planned.stdout
    assert checked.returncode == 0 and said in checked.stdout
    assert "[command-background]" in checked.stdout


def _up(folder: Path, jobs: str) -> subprocess.CompletedProcess[str]:
    return run("up", str(write(folder, CLUSTER.format(jobs=jobs))), "--headless")
