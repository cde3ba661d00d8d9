"""Agents that die or stand still among starts: nothing lives behind a confirmed receipt."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.support.agent_client import watchdog_and_agent
from tests.support.cluster_texts import cluster_text
from tests.support.command import Up, write
from tests.support.patience import wait_until
from tests.support.scenario import confirmed, gone
from tests.testbed import proc

DEAF = ["sh", "-c", "trap '' TERM; (while :; do sleep 1; done) & echo trains; wait"]
"""Deaf to TERM, with a child that the end of its agent alone does not end."""


def stages(folder: Path) -> Path:
    """One task that is ready after a while by the launcher's clock, and then four deaf ones."""
    text = cluster_text(
        {"a": 1, "b": 4},
        "stages",
        start={"order": [["a"], ["b"]], "ready": {"a": {"after": 2.0}, "b": {"log": "trains"}}},
        command=DEAF,
        framework="none",
        workdir="",
        grace=1.0,
        lease=600.0,
    )
    return write(folder, text)


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL])
def test_a_stage_that_is_ordered_from_an_agent_that_is_not_there(
    tmp_path: Path, number: signal.Signals
) -> None:
    """Given a stage whose starts have no answer, when their agent is gone and the run fails for
    that, then nothing of the stage is started behind the receipt."""
    with Up("up", str(stages(tmp_path)), "--json") as up:
        up.log("a:0", "trains")
        proc.signal_process(watchdog_and_agent(up.run_id)[1], number)
        up.wait()
        assert confirmed(up), up.transcript()
        left = [p.argv for p in proc.scan(having="TFMUX_TASK") if up.run_id in (p.tag or "")]
        assert left == [], up.transcript()
    wait_until(lambda: gone(up.run_id), "nothing is left")
