"""Runs whose files here are gone, damaged, or told by a clock that was set."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from launcher.run.states import RunPhase
from launcher.session.client import RunClient
from launcher.store.runs import RunFolder
from tests.support import command
from tests.support.budgets import variants
from tests.support.cluster_texts import one_task
from tests.support.command import Up, write
from tests.support.patience import PATIENCE, wait_until
from tests.support.terminal import cluster, living
from tests.testbed.launcher_thread import LauncherThread

SLOWLY = "import time\nfor step in range(100000): print('step', step, flush=True); time.sleep(0.05)"


@variants("words", [["--all"], ["RUN"], []], ids=["all", "name", "no name"], test=1)
def test_a_run_whose_folder_was_removed_is_listed_and_ended(
    tmp_path: Path, words: list[str]
) -> None:
    """Its launcher process lives, and its tasks do: neither `ps` nor `kill` says that no run is
    active."""
    file = write(tmp_path, one_task(SLOWLY, settings='on_hangup = "detach"'))
    with Up("up", str(file), "--json") as up:
        up.log("worker:0", "step 3")
        run = up.run_id
        shutil.rmtree(RunFolder.find(run).path)
        listed = command.run("ps")
        assert listed.returncode == 0 and "no active runs" not in listed.stderr
        assert f"{run} is still active, but its folder has been removed" in listed.stderr
        done = command.run("kill", *(run if word == "RUN" else word for word in words))
        assert done.returncode == 0, done.stderr
        assert (
            f"run {run}:" in done.stdout and "no process is left, 1 host confirmed" in done.stdout
        )
        assert not living()
        assert up.wait() == 130
    assert "no active runs" in command.run("ps").stderr


@variants(
    "damage",
    ["", "name = 'ticking", "\0" * 100, "name = 'ticking'\n"],
    ids=range(4),
    test=1,
)
def test_a_damaged_cluster_file_is_replaced_by_a_given_one(tmp_path: Path, damage: str) -> None:
    """`kill RUN` says what is wrong with it, and with `--file` ends the tasks of a launcher that
    has died."""
    file = cluster(tmp_path)
    file.write_text(file.read_text() + 'on_disconnect = "keep"\n')
    with Up("up", str(file), "--json") as up:
        up.state("worker:1", "running")
        run = RunFolder.find(up.run_id)
        up.kill_launcher()
    run.cluster_file.write_text(damage)
    alone = command.run("kill", run.run_id)
    assert alone.returncode == 2 and "cluster.toml" in alone.stderr
    assert "--file" in alone.stderr
    assert len(living()) == 3
    done = command.run("kill", run.run_id, "--file", str(file))
    assert done.returncode == 0, done.stderr
    assert not living()


@variants("jump", [-86_400.0, 86_400.0], test=1)
def test_elapsed_time_does_not_follow_a_clock_that_was_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jump: float
) -> None:
    """A machine gets its time from the network after the start: the run is as old as before."""
    monkeypatch.setattr("launcher.session.client.LauncherProcess", LauncherThread)
    from launcher.cluster.read import load

    file = cluster(tmp_path)
    client = RunClient.launch(load(file), file.read_text())
    try:
        wait_until(lambda: client.snapshot().state is RunPhase.RUNNING, "running", PATIENCE)
        before = client.snapshot().started
        real = time.time
        monkeypatch.setattr(time, "time", lambda: real() + jump)
        wait_until(lambda: client.snapshot().started != before, "another start", PATIENCE)
        assert 0 <= time.time() - client.snapshot().started < PATIENCE
        (folder,) = RunFolder.all()
        text = command.run("ps", "--json").stdout
        assert folder.run_id in text
    finally:
        client.kill_all()
        client.wait(PATIENCE)
        client.close()
    assert not living()


@pytest.mark.prove
def test_after_a_kill_a_flood_is_not_printed_to_its_end(tmp_path: Path) -> None:
    """Whoever presses Ctrl-C gets the receipt and the prompt, and where the rest is."""
    flood = "while True: print('x' * 100)"
    with Up("up", str(write(tmp_path, one_task(flood))), "--json") as up:
        up.log("worker:0", "xxx")
        log = RunFolder.find(up.run_id).path / "worker-0.log"
        wait_until(lambda: log.stat().st_size > 200 << 20, "200 MB", PATIENCE)
        up.press_ctrl_c()
        assert up.wait() == 130
    assert "of logs were not printed after the kill; tfmux logs" in up.said
    assert sum(len(event["text"]) for event in up.of("log")) < log.stat().st_size / 2
    assert "no process is left" in up.said
