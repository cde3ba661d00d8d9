"""What runs have left on hosts: who asks for it before a run is deleted, and what frees it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from launcher.store.runs import RunFolder
from tests.support import command
from tests.support.budgets import variants
from tests.support.cluster_texts import cluster_text
from tests.support.command import Up, python_task, write
from tests.support.patience import wait_until
from tests.testbed.inprocess import SshServer

SAVE = """
import os, signal, sys, time
how, size = sys.argv[1], int(sys.argv[2])
signal.signal(signal.SIGTERM, signal.SIG_IGN if how == "deaf" else signal.SIG_DFL)
for name in ("checkpoints/step1.pt", "lightning_logs/version_0/last.ckpt", "../results/up.pt"):
    os.makedirs(os.path.dirname(name), exist_ok=True)
    with open(name, "wb") as file:
        file.truncate(size)
print("saved", flush=True)
while how in ("lives", "deaf"):
    time.sleep(0.1)
sys.exit(how == "fails")
"""
IGNORED = "*.pt\n*.ckpt\ncheckpoints/\nlightning_logs/\n"
LEFT = {
    "checkpoints/step1.pt",
    "lightning_logs/version_0/last.ckpt",
    "above-workdir/results/up.pt",
}
GB = 10**9


def file(
    server: SshServer, tmp_path: Path, how: str = "ends", size: int = 1000, run: str = ""
) -> Path:
    """A worker on the host `far` that saves files which git ignores, and `exclude`."""
    (tmp_path / "work").mkdir(exist_ok=True)
    (tmp_path / "work/.gitignore").write_text(IGNORED)
    (tmp_path / "work/train.py").write_text("pass")
    text = cluster_text(
        {"worker": ["far"]},
        "left",
        server.host_toml("far", sys.executable),
        command=[*python_task(SAVE), how, str(size)],
        workdir="work",
        start={"ready": {"worker": "started"}},
        more=f'exclude = ["checkpoints"]\n{run}',
    )
    return write(tmp_path, text)


def names(folder: Path) -> set[str]:
    """The files below a folder."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def on_host(server: SshServer, run_id: str) -> Path:
    """The folder of a run on the host."""
    return server.home / f".local/state/tfmux/{run_id}.far"


def ended(server: SshServer, tmp_path: Path, size: int = 1000) -> str:
    """A run that has ended well; its id."""
    with Up("up", str(file(server, tmp_path, size=size)), "--json") as up:
        assert up.wait() == 0, up.transcript()
    wait_until(lambda: not (on_host(server, up.run_id) / "began").exists(), "its agent goes")
    return up.run_id


def press_f9(server: SshServer, up: Up) -> None:
    """One kill of everything."""
    up.press_ctrl_c()
    assert up.wait() == 130, up.transcript()


def press_f9_twice(server: SshServer, up: Up) -> None:
    """A kill at once."""
    up.press_ctrl_c()
    up.wait_for(lambda e: e.get("state") == "killing", "killing")
    up.press_ctrl_c_again()
    assert up.wait() == 130, up.transcript()


def lose_launcher(server: SshServer, up: Up) -> None:
    """The lease ends it, without anybody who could hear of its results."""
    server.pull()
    up.kill_launcher()
    up.process.kill()
    wait_until((on_host(server, up.run_id) / "exit").exists, "the lease has ended it")
    server.heal()


def fail(server: SshServer, up: Up) -> None:
    """The task ends by itself."""
    assert up.wait() == 1, up.transcript()


ENDS: dict[str, tuple[str, Callable[[SshServer, Up], None]]] = {
    "killed": ("lives", press_f9),
    "killed at once": ("deaf", press_f9_twice),
    "failed": ("fails", fail),
    "lost": ("lives", lose_launcher),
}


@variants("end", ENDS, test=2)
def test_whichever_way_a_run_ends_its_results_stay_and_rm_knows(
    ssh_server: SshServer, tmp_path: Path, end: str
) -> None:
    """Given a run whose task has saved files that git ignores, that `exclude` names and that lie
    above the workdir, when it ends, then `rm` refuses and says how many, `collect` fetches all, and
    when the host is off before that, `rm` says that it cannot know."""
    how, finish = ENDS[end]
    with Up("up", str(file(ssh_server, tmp_path, how, run="lease = 2\ngrace = 1")), "--json") as up:
        up.log("worker:0", "saved")
        if how == "lives":
            done = command.run("collect", up.run_id, "*.ckpt")
            assert done.returncode == 0, done.stderr
        finish(ssh_server, up)
    run_id = up.run_id
    ssh_server.pull()
    done = command.run("rm", run_id)
    assert done.returncode == 1 and RunFolder.find(run_id).path.exists()
    ssh_server.heal()
    done = command.run("rm", run_id)
    assert done.returncode == 1 and "3 new files" in done.stderr, done.stderr
    assert "1 from above the workdir" in done.stderr
    done = command.run("collect", run_id)
    assert done.returncode == 0, done.stderr
    assert names(RunFolder.find(run_id).path / "collected/far") == LEFT


def test_hosts_free_what_runs_hold_after_a_question(ssh_server: SshServer, tmp_path: Path) -> None:
    """Given two runs of which each has left three gigabytes, when `ps` is asked, it says so; `rm
    --hosts` deletes nothing without an answer, and with `--yes` the files, not the runs, which `rm`
    then deletes without another word."""
    first = ended(ssh_server, tmp_path, GB)
    with Up("up", str(file(ssh_server, tmp_path, size=GB)), "--json") as up:
        assert up.wait() == 0, up.transcript()
    second = up.run_id
    wait_until(lambda: not (on_host(ssh_server, second) / "began").exists(), "its agent goes")
    said = command.run("ps").stderr
    assert "2 ended runs hold 6.0 GB on far: `tfmux rm --hosts` deletes it there" in said
    done = command.run("rm", "--hosts", first)
    assert done.returncode == 1 and "--yes deletes" in done.stderr
    assert names(on_host(ssh_server, first) / "results") == LEFT
    done = command.run("rm", "--hosts", "--yes", first)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        f"{first}: far: 3 files, 3.0 GB",
        f"{first}: deleted on far",
    ]
    assert not on_host(ssh_server, first).exists()
    assert names(on_host(ssh_server, second) / "results") == LEFT
    assert "1 ended run holds 3.0 GB on far" in command.run("ps").stderr
    done = command.run("rm", first, second)
    assert (done.returncode, done.stdout) == (1, f"{first}\n"), done.stderr
    done = command.run("rm", "--hosts", "--yes")
    assert f"{second}: deleted on far" in done.stdout
    assert command.run("rm", "--hosts", "--yes").stderr.endswith("holds anything on its hosts\n")
    assert command.run("ps").stderr == "tfmux: no active runs\n"
    assert command.run("rm", second).returncode == 0


def test_a_run_that_lives_is_never_freed(ssh_server: SshServer, tmp_path: Path) -> None:
    """Neither by its name nor with all others."""
    with Up("up", str(file(ssh_server, tmp_path, "lives")), "--json") as up:
        up.log("worker:0", "saved")
        for words in ([], [up.run_id]):
            done = command.run("rm", "--hosts", "--yes", *words)
            assert "deleted" not in done.stdout
        assert (on_host(ssh_server, up.run_id) / "stage/work/checkpoints/step1.pt").exists()
        up.press_ctrl_c()
        assert up.wait() == 130


def test_options_that_do_not_go_together(capfd: pytest.CaptureFixture[str]) -> None:
    """`rm` alone, `--yes` alone, and both ways to delete."""
    from tui.main import main

    for words in ([], ["--yes", "x"], ["--hosts", "--force"]):
        assert main(["rm", *words]) == 2
    assert json.dumps(capfd.readouterr().err).count("tfmux: ") == 3
