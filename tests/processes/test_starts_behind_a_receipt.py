"""Agents that die or stand still among starts: nothing lives behind a confirmed receipt."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.agent_client import watchdog_and_agent
from tests.support.cluster_texts import cluster_text
from tests.support.command import Up, write
from tests.support.patience import wait_until
from tests.support.scenario import confirmed, gone
from tests.testbed import proc

DEAF = ["sh", "-c", "trap '' TERM; (while :; do sleep 1; done) & echo trains; wait"]
"""Deaf to TERM, with a child that the end of its agent alone does not end."""
FAILS = ["sh", "-c", "trap '' TERM; (while :; do sleep 1; done) & echo trains; sleep 1; exit 3"]
WARM = [
    "{python}",
    "-c",
    "import signal, time; signal.signal(15, 1); print('trains'); time.sleep(9)",
]


def stages(folder: Path, more: str = "", b: int = 4, **settings: Any) -> Path:
    """One task that is ready after a while by the launcher's clock, and then deaf ones."""
    start = {"order": [["a"], ["b"]], "ready": {"a": {"after": 2.0}, "b": {"log": "trains"}}}
    start |= settings.pop("start", {})
    words: dict[str, Any] = {"command": DEAF, "framework": "none", "workdir": "", "grace": 1.0}
    jobs: dict[str, Any] = {"a": {"tasks": 1, **settings.pop("a", {})}, "b": b}
    text = cluster_text(jobs, "stages", "", more, start=start, **{**words, **settings})
    return write(folder, text)


def signal_agent(up: Up, number: signal.Signals) -> None:
    proc.signal_process(watchdog_and_agent(up.run_id)[1], number)


@contextmanager
def proven(up: Up) -> Iterator[None]:
    """When the block has ended the run, nothing of it lives behind a receipt that confirms that."""
    with up:
        yield
        left = [p for p in proc.scan(having="TFMUX_TASK") if up.run_id in (p.tag or "")]
        left = [p for p in left if p.alive]
        for process in left:
            proc.signal_process(process, signal.SIGKILL)
        assert not (left and confirmed(up)), up.transcript()
        assert confirmed(up), up.transcript()
    wait_until(lambda: gone(up.run_id), "nothing is left")


def stop_before_the_stage(up: Up) -> None:
    up.log("a:0", "trains")
    signal_agent(up, signal.SIGSTOP)


def kill_before_the_stage(up: Up) -> None:
    up.log("a:0", "trains")
    signal_agent(up, signal.SIGKILL)


def kill_in_the_stage(up: Up) -> None:
    """As soon as one of the stage's tasks has a process, and the others are on their way."""
    up.wait_for(lambda e: str(e.get("task", "")).startswith("b:") and "pid" in e, "a process")
    signal_agent(up, signal.SIGKILL)


def stop_and_press(up: Up) -> None:
    """A person ends the run while starts wait in the input of an agent that stands still."""
    stop_before_the_stage(up)
    up.state("b:0", "starting")
    up.press_ctrl_c()


def press_and_kill(up: Up) -> None:
    """The agent dies while the kill is on its way to it."""
    up.wait_for(lambda e: str(e.get("task", "")).startswith("b:") and "pid" in e, "a process")
    up.press_ctrl_c()
    signal_agent(up, signal.SIGKILL)


def launcher_and_agent(up: Up) -> None:
    """The launcher that takes the run up finds another agent, and then the run ends."""
    stop_before_the_stage(up)
    up.state("b:0", "starting")
    up.signal_launcher(signal.SIGKILL)


def in_a_pause(up: Up) -> None:
    """A task waits for its next attempt."""
    up.state("a:0", "backoff")
    signal_agent(up, signal.SIGSTOP)


def in_a_restart(up: Up) -> None:
    """All tasks are being ended for the next attempt."""
    up.wait_for(lambda e: e["event"] == "run" and e["state"] == "restarting", "the restart")
    signal_agent(up, signal.SIGKILL)


def in_the_restart_stopped(up: Up) -> None:
    up.wait_for(lambda e: e["event"] == "run" and e["state"] == "restarting", "the restart")
    signal_agent(up, signal.SIGSTOP)
    up.press_ctrl_c()


def at_the_connection(up: Up) -> None:
    """Before anything was started."""
    wait_until(lambda: proc.scan(having=f"TFMUX_AGENT={up.run_id}"), "an agent")
    up.state("a:0", "starting")
    signal_agent(up, signal.SIGKILL)


KEEP: dict[str, Any] = {"on_failure": "keep"}
FAILING: dict[str, Any] = {"a": {"command": FAILS}, "start": {"ready": {"a": "started"}}}
ALL: dict[str, Any] = {**FAILING, "on_failure": "restart-all", "max_restarts": 2}
AGAIN: dict[str, Any] = {**FAILING, "on_failure": "restart", "max_restarts": 2}
GATED: dict[str, Any] = {"command": WARM, "start": {"warm": ["json"]}}


@pytest.mark.parametrize(
    ("act", "settings"),
    [
        (stop_before_the_stage, {}),
        (kill_before_the_stage, {}),
        (stop_before_the_stage, KEEP),
        (kill_in_the_stage, {"b": 40}),
        (stop_and_press, {}),
        (press_and_kill, {"b": 20}),
        (launcher_and_agent, {}),
        (in_a_pause, AGAIN),
        (in_a_restart, ALL),
        (in_the_restart_stopped, ALL),
        (stop_before_the_stage, GATED),
        (kill_before_the_stage, GATED),
        (at_the_connection, {"b": 20}),
    ],
)
def test_nothing_lives_behind_a_receipt(
    tmp_path: Path, act: Callable[[Up], None], settings: dict[str, Any]
) -> None:
    """Whenever an agent dies or stands still while starts have no answer: when the run has ended,
    nothing of it lives behind its receipt."""
    up = Up("up", str(stages(tmp_path, **settings)), "--json")
    with proven(up):
        act(up)
        if settings.get("on_failure") in ("keep", "restart", "restart-all"):
            up.wait_for(lambda e: e["event"] == "host" and e["state"] == "up", "host")
            up.press_ctrl_c()
        up.wait()


def test_an_agent_that_is_told_to_stop_among_starts_says_so(tmp_path: Path) -> None:
    """Given an agent that gets TERM while starts wait in its input, then no task that it did not
    start any more has failed: each was ended from outside, and so says the first failure."""
    up = Up("up", str(stages(tmp_path, b=12)), "--json")
    with proven(up):
        stop_before_the_stage(up)
        up.state("b:11", "starting")
        signal_agent(up, signal.SIGTERM)
        signal_agent(up, signal.SIGCONT)
        assert up.wait() == 1, up.transcript()
    assert "ended from outside: the agent was told to stop" in up.said
    assert "failed (" not in up.said and "is being ended" not in up.said, up.said
