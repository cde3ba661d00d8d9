"""Folders of runs that are renamed, copied, moved or removed while their tasks live: the run's id
is in the folder, and no kill says that nothing is left without asking the hosts."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from launcher.paths import runs_home
from launcher.store.runs import socket_path
from tests.support import command
from tests.support.budgets import variants
from tests.support.cluster_texts import one_task
from tests.support.command import Up, write
from tests.support.patience import wait_until
from tests.support.terminal import living

SLOWLY = "import time\nfor step in range(100000): print('step', step, flush=True); time.sleep(0.05)"
KEPT = 'on_hangup = "detach"\non_disconnect = "keep"'


def renamed(run: Path) -> str:
    run.rename(run.with_name("renamed"))
    return "renamed"


def renamed_and_back(run: Path) -> str:
    run.rename(run.with_name("renamed"))
    command.run("ps")
    run.with_name("renamed").rename(run)
    return run.name


def copied(run: Path) -> str:
    shutil.copytree(run, run.with_name("copy"))
    return "copy"


def copied_and_removed(run: Path) -> str:
    shutil.copytree(run, run.with_name("copy"))
    shutil.rmtree(run)
    return "copy"


def named_like_another_run(run: Path) -> str:
    other = f"{run.name.rpartition('-')[0]}-ffff"
    run.rename(run.with_name(other))
    return other


def linked(run: Path) -> str:
    elsewhere = runs_home().parent / "elsewhere"
    run.rename(elsewhere)
    run.with_name("link").symlink_to(elsewhere)
    return "link"


def removed(run: Path) -> str:
    shutil.rmtree(run)
    return run.name


def moved_home(run: Path) -> str:
    """The whole data directory is elsewhere, and its variable names the new place."""
    new = runs_home().parents[1] / "other"
    (new / "tfmux").mkdir(parents=True)
    runs_home().rename(new / "tfmux" / "runs")
    os.environ["XDG_DATA_HOME"] = str(new)
    return run.name


def other_home(run: Path) -> str:
    """The variable names another place, and the runs have stayed."""
    os.environ["XDG_DATA_HOME"] = str(runs_home().parents[1] / "other")
    return run.name


Move = Callable[[Path], str]
MOVES: list[Move] = [
    renamed,
    renamed_and_back,
    copied,
    copied_and_removed,
    named_like_another_run,
    linked,
    removed,
    moved_home,
    other_home,
]
WITHOUT_LAUNCHER: list[Move] = [
    renamed,
    copied,
    copied_and_removed,
    named_like_another_run,
    linked,
    moved_home,
]


@pytest.fixture(autouse=True)
def data_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has the variable as it was when the test has ended."""
    monkeypatch.setenv("XDG_DATA_HOME", os.environ["XDG_DATA_HOME"])


@variants("move", MOVES, ids=lambda move: move.__name__, test=2)
def test_a_kill_by_any_name_of_the_folder_reaches_the_launcher(tmp_path: Path, move: Move) -> None:
    """Given a living launcher, then the run is listed once, commands that look at it find it, and
    the kill ends it and says which run that was."""
    with Up("up", str(write(tmp_path, one_task(SLOWLY, settings=KEPT))), "--json") as up:
        up.log("worker:0", "step 3")
        launcher = up.launcher
        name = move(runs_home() / up.run_id)
        if move is not other_home:
            listed = command.run("ps")
            assert listed.stdout.count(up.run_id) == 1, listed.stdout + listed.stderr
            assert "worker" in command.run("stacks", name).stdout
        if move not in (removed, other_home):
            assert "step 3" in command.run("logs", name).stdout
            if move is not copied_and_removed:
                with Up("attach", name, "--json") as attached:
                    attached.log("worker:0", "step")
                    attached.process.kill()
            kept = command.run("rm", "--force", name)
            assert kept.returncode == 1 and "is active" in kept.stderr
        done = command.run("kill", name)
        assert done.returncode == 0, done.stderr
        assert f"run {up.run_id}:" in done.stdout
        assert "no process is left, 1 host confirmed" in done.stdout
        assert not living()
        assert up.wait() == 130
        if move not in (removed, copied, copied_and_removed, other_home):
            assert "log not stored" not in up.transcript()
            assert command.run("kill", name).stderr.endswith("has ended already, confirmed\n")
        wait_until(lambda: not os.path.exists(f"/proc/{launcher}"), "the launcher has ended")
    assert "no active runs" in command.run("ps").stderr


@variants("move", WITHOUT_LAUNCHER, ids=lambda move: move.__name__, test=1)
def test_a_kill_by_any_name_of_the_folder_asks_the_hosts(tmp_path: Path, move: Move) -> None:
    """Given a launcher that was killed, and tasks that live."""
    with Up("up", str(write(tmp_path, one_task(SLOWLY, settings=KEPT))), "--json") as up:
        up.log("worker:0", "step 3")
        run_id = up.run_id
        up.kill_launcher()
    assert len(living()) == 1
    name = move(runs_home() / run_id)
    listed = command.run("ps")
    assert listed.stdout.count(run_id) == 1, listed.stdout + listed.stderr
    done = command.run("kill", name)
    assert done.returncode == 0, done.stderr
    assert f"run {run_id}:" in done.stdout
    assert "no process is left, 1 host confirmed" in done.stdout
    assert not living()
    again = command.run("kill", name)
    assert again.returncode == 0 and "has ended already" in again.stderr


def test_a_kill_takes_a_run_over_whose_socket_was_removed(tmp_path: Path) -> None:
    """Its launcher lives, and nobody can speak to it."""
    with Up("up", str(write(tmp_path, one_task(SLOWLY, settings=KEPT))), "--json") as up:
        up.log("worker:0", "step 3")
        socket_path(up.run_id).unlink()
        done = command.run("kill", up.run_id)
        assert done.returncode == 0, done.stderr
        assert "no process is left, 1 host confirmed" in done.stdout
        assert not living()


def test_an_attach_says_that_the_folder_was_removed(tmp_path: Path) -> None:
    """The command ends as the run does, of which the launcher tells."""
    with Up("up", str(write(tmp_path, one_task(SLOWLY, settings=KEPT))), "--json") as up:
        up.log("worker:0", "step 3")
        shutil.rmtree(runs_home() / up.run_id)
        with Up("attach", up.run_id, "--json") as attached:
            wait_until(lambda: "its folder has been removed" in attached.transcript(), "it says so")
            assert command.run("kill", up.run_id).returncode == 0
            assert attached.wait() == 130, attached.transcript()
        assert not living()


def test_a_run_without_folder_and_launcher_is_told(tmp_path: Path) -> None:
    """Its hosts are named, and how to ask them: nobody says that no run is active."""
    file = write(tmp_path, one_task(SLOWLY, settings=KEPT))
    with Up("up", str(file), "--json") as up:
        up.log("worker:0", "step 3")
        run_id = up.run_id
        up.kill_launcher()
    shutil.rmtree(runs_home() / run_id)
    listed = command.run("ps")
    assert "no active runs" not in listed.stderr
    assert run_id in listed.stderr and "localhost" in listed.stderr and "--file" in listed.stderr
    alone = command.run("kill", run_id)
    assert alone.returncode == 2 and "--file" in alone.stderr
    every = command.run("kill", "--all")
    assert every.returncode == 4 and run_id in every.stderr
    assert len(living()) == 1
    done = command.run("kill", run_id, "--file", str(file))
    assert done.returncode == 0, done.stderr
    assert not living()
    assert "no active runs" in command.run("ps").stderr


def test_a_copy_of_an_ended_run_is_a_run_that_has_ended(tmp_path: Path) -> None:
    """Given such a copy, then a kill asks no host, and a deletion deletes the copy alone."""
    with Up("up", str(write(tmp_path, one_task("print('done')"))), "--json") as up:
        assert up.wait() == 0
        run = runs_home() / up.run_id
    shutil.copytree(run, run.with_name("copy"))
    assert "no active runs" in command.run("ps").stderr
    for name in ("copy", run.name):
        assert "has ended already" in command.run("kill", name).stderr
        assert "done" in command.run("logs", name).stdout
    assert command.run("rm", "copy").returncode == 0
    assert os.listdir(runs_home()) == [run.name]
