"""What a command says of a run that it leaves: that it goes on only where a launcher lives."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from launcher.store.runs import RunFolder
from tests.support.cluster_texts import one_task
from tests.support.command import Up, run, write
from tests.support.patience import wait_until

SLEEPS = "import time; print('up', flush=True); time.sleep(1000)"
CASES = ("lives", "stopped", "killed")


@pytest.mark.parametrize("launcher", CASES)
def test_a_run_that_is_left_goes_on_only_where_its_launcher_lives(
    tmp_path: Path, launcher: str
) -> None:
    """Given a terminal that closes while the launcher process lives, stands still, or has just been
    killed, then "the run continues" and 0 are said in the first case alone, and 4 otherwise."""
    file = write(tmp_path, one_task(SLEEPS, settings='on_hangup = "detach"'))
    with Up("up", str(file), "--json") as up:
        up.log("worker:0", "up")
        pid = up.launcher
        up.process.send_signal(signal.SIGSTOP)
        if launcher == "killed":
            os.kill(pid, signal.SIGKILL)
            folder = RunFolder.find(up.run_id)
            wait_until(lambda: folder.launcher_pid() is None, "the launcher has ended")
        elif launcher == "stopped":
            os.kill(pid, signal.SIGSTOP)
        up.process.send_signal(signal.SIGHUP)
        up.process.send_signal(signal.SIGCONT)
        status = up.wait()
        if launcher == "stopped":
            os.kill(pid, signal.SIGCONT)
        assert ("the run continues; come back with" in up.said) == (launcher == "lives"), up.said
        assert status == (0 if launcher == "lives" else 4), up.transcript()
        if launcher == "stopped":
            assert f"kill -CONT {pid}" in up.said
        if launcher == "killed":
            assert "its launcher process has ended" in up.said
        run("kill", up.run_id)
