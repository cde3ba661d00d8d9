"""What runs have left on hosts, or may have: listed as long as it may live, ended, and
forgotten."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from launcher.store.runs import RunFolder
from tests.support import command
from tests.support.agent_client import family, watchdog_and_agent
from tests.support.budgets import variants
from tests.support.cluster_texts import cluster_text, one_task
from tests.support.command import Up, python_task, write
from tests.support.patience import wait_until
from tests.support.recorded import GOOD, Recording
from tests.support.scenario import gone, ready, receipt
from tests.testbed import proc
from tests.testbed.frozen import Freezer
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


TASK = "import time; print('trains', flush=True); time.sleep(1000)"


@pytest.fixture
def doubtful(tmp_path: Path) -> Iterator[str]:
    """A run whose launcher, agent and watchdog were killed, each before it could act."""
    file = write(tmp_path, one_task(TASK, ready={"log": "trains"}, settings="lease = 2.0"))
    with Up("up", str(file), "--json") as up:
        ready(up, "worker:0")
        watched = watchdog_and_agent(up.run_id)
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for process in watched:
                proc.signal_process(process, number)
        up.kill_launcher()
        yield up.run_id
    wait_until(lambda: family(up.run_id) == [], "no agent is left")


@pytest.mark.prove
def test_a_run_is_listed_until_somebody_forgets_it(doubtful: str) -> None:
    """Given a run of which nobody can know whether something lives, when it is killed, then the
    receipt says until when, and what to do; it stays in the list, also without an agent, and
    `kill --all` is no success. `--forget` says what may live, and takes it from there."""
    done = command.run("kill", doubtful)
    assert done.returncode == 4
    assert "localhost: not confirmed until it boots: an earlier agent here and" in done.stdout
    kill, forget = f"tfmux kill {doubtful}", f"tfmux kill --forget {doubtful}"
    first = done.stdout.splitlines()[1]
    assert first.endswith(
        f"; after a boot of localhost: {kill}; to remove it from the list: {forget}"
    )
    wait_until(lambda: family(doubtful) == [], "its agent has gone by its lease")
    listed = command.run("ps", "-q")
    assert listed.stdout == f"{doubtful}\n"
    assert "localhost may have unknown processes until it reboots" in listed.stderr
    assert command.run("kill", "--all").returncode == 4
    done = command.run("kill", "--forget", doubtful)
    assert done.returncode == 4 and "not confirmed until it boots" in done.stdout
    assert done.stderr.endswith(
        f"{doubtful} is no longer listed; its processes may still run on localhost\n"
    )
    assert command.run("ps").stderr == "tfmux: no active runs\n"
    done = command.run("kill", "--all")
    assert (done.returncode, done.stderr) == (0, "tfmux: no active runs\n")
    assert command.run("kill", doubtful).returncode == 4, "it is no success for that"


def test_forgetting_is_for_one_run(recorded: Recording) -> None:
    """And none that has ended well is touched."""
    done = command.run("kill", "--all", "--forget")
    assert done.returncode == 2 and "--forget is for one run" in done.stderr
    done = command.run("kill", "--forget", recorded(GOOD).run_id)
    assert done.returncode == 0 and "has ended already, confirmed" in done.stderr


SURVIVORS_TASK = """
import subprocess, time
subprocess.Popen(['sleep', '{seconds}'], start_new_session=True, env={{}})
print('trains', flush=True)
time.sleep(1000)
"""


@pytest.mark.prove
def test_a_run_with_a_survivor_is_not_over_until_it_has_gone(tmp_path: Path) -> None:
    """Given a daemon of a task in a frozen cgroup, when the run is ended, then it ends with 4 and
    names the daemon; it is listed, and every kill ends with 4 and names it, too. When the daemon
    has gone, a kill confirms that, and nothing is listed any more."""
    seconds = str(10_000 + os.getpid())
    file = write(
        tmp_path, one_task(SURVIVORS_TASK.format(seconds=seconds), ready={"log": "trains"})
    )
    with Freezer(tmp_path / "freezer") as freezer, Up("up", str(file), "--json") as up:
        ready(up, "worker:0")
        words = ("sleep", seconds)
        wait_until(lambda: any(p.argv == words for p in proc.scan(saying=seconds)), "the daemon")
        (daemon,) = [p for p in proc.scan(saying=seconds) if p.argv == words]
        freezer.freeze(daemon.pid)
        up.press_ctrl_c()
        assert up.wait() == 4, up.transcript()
        (host,) = receipt(up).values()
        assert not host.get("confirmed") and [p["pid"] for p in host["survivors"]] == [daemon.pid]
        assert "not confirmed: " in up.said and "1 left after" in up.said
        assert f"pid {daemon.pid} (D) sleep {seconds}" in up.said
        for order in (("kill", up.run_id), ("kill", "--all")):
            done = command.run(*order)
            assert done.returncode == 4 and f"pid {daemon.pid} (D) sleep {seconds}" in done.stdout
            assert command.run("ps", "-q").stdout == f"{up.run_id}\n"
        freezer.thaw()
        wait_until(lambda: proc.read(daemon.pid) is None, "it has gone")
        done = command.run("kill", up.run_id)
        assert done.returncode == 0, done.stdout
        assert "no process is left" in done.stdout
        assert command.run("kill", "--all").stderr == "tfmux: no active runs\n"
    wait_until(lambda: gone(up.run_id), "nothing is left")
