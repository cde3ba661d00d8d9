"""Starts of which a host can tell only when it is back."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.agent import wire
from launcher.run.states import TaskState
from tests.support.agent_frames import Body, facts, welcome
from tests.support.scripted import Agent, bench


@pytest.mark.parametrize("pid", [0, 100], ids=["no process", "no program"])
async def test_a_start_that_failed_during_a_cut_fails_for_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pid: int
) -> None:
    """Given a start that a host could not make while its connection ended, when it is back, then
    the task has failed for what the host says, as it would have without the cut."""
    said = facts("worker:1", pid=pid, error="x: No such file or directory", ended=True, eof=True)
    async with bench(tmp_path, monkeypatch) as run:

        def back(agent: Agent, body: Body) -> None:
            agent.send(wire.WELCOME, welcome(tasks=[said]))

        def cut(agent: Agent, body: Body) -> None:
            run.liar.answers[wire.HELLO] = back
            agent.raw(b"")

        run.liar.answers[wire.START] = cut
        await run.until(lambda: run.task("worker:1").ended, "it has ended")
        task = run.task("worker:1")
        assert (task.state, task.reason) == (TaskState.FAILED, "x: No such file or directory")
