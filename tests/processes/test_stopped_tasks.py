"""Tasks whose processes somebody has stopped: the run says so, and when they go on."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.support.cluster_texts import one_task
from tests.support.command import Up, write
from tests.support.scenario import ready

TRAINS = "import time; print('trains', flush=True); time.sleep(1000)"


def test_a_stopped_task_is_named_until_it_goes_on(tmp_path: Path) -> None:
    """Given a task that trains, when somebody stops its process, then its record says `stopped` and
    since when; when it goes on, neither."""
    text = one_task(TRAINS, ready={"log": "trains"})
    with Up("up", str(write(tmp_path, text)), "--json") as up:
        ready(up, "worker:0")
        pid = next(event["pid"] for event in up.of("task") if event.get("pid"))
        os.kill(pid, signal.SIGSTOP)
        found = up.wait_for(lambda event: event.get("halted") == "stopped", "it is stopped")
        assert found["task"] == "worker:0" and found["halted_since"] is not None
        os.kill(pid, signal.SIGCONT)
        up.wait_for(
            lambda event: (
                event.get("event") == "task"
                and not event.get("halted")
                and event["time"] > found["time"]
            ),
            "it goes on",
        )
        up.press_ctrl_c()
        assert up.wait() == 130
