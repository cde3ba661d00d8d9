"""A process that nobody can end, as a user sees it: exit codes, lists, what ends it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support import command
from tests.support.cluster_texts import one_task
from tests.support.command import Up, write
from tests.support.patience import wait_until
from tests.support.scenario import gone, ready, receipt
from tests.testbed import proc
from tests.testbed.frozen import Freezer

TASK = """
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
    file = write(tmp_path, one_task(TASK.format(seconds=seconds), ready={"log": "trains"}))
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
