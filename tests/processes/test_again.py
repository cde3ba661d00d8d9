"""Runs that are launched again, and deleted, by commands: with real processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.paths import runs_home
from launcher.store.runs import RunFolder
from tests.support import command
from tests.support.cluster_texts import cluster_text, one_task
from tests.support.command import Up, python_task, write
from tests.support.patience import wait_until
from tests.support.terminal import living

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
