"""Hosts that say too much: each frame is well-formed, and there are too many of them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from launcher.agent import wire
from launcher.run import events as ev
from launcher.run.states import HostState
from tests.support.agent_frames import ended, facts, welcome
from tests.support.scripted import RECEIPT, Agent, bench, untouched


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (wire.NOTE, {"text": "x" * 100}),
        (wire.STARTED, facts("worker:1")),
        (wire.LISTENING, facts("worker:1", listening=True)),
        (wire.EXITED, ended("worker:1")),
        (wire.EOF, ended("worker:1", eof=True)),
        (wire.RECEIPT, {**RECEIPT, "ids": []}),
        (wire.RECEIPT, {**RECEIPT, "tasks": ["worker:1"], "confirmed": False}),
    ],
    ids=["note", "started", "listening", "exited", "ended", "receipt", "a task's receipt"],
)
async def test_a_host_that_says_more_than_its_tasks_explain_costs_its_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: int, body: dict[str, Any]
) -> None:
    """Given a host with two tasks, when it sends twenty messages too many, then it stays up; after
    a thousand it has lost its link, few are on record, and a kill works."""
    async with bench(tmp_path, monkeypatch) as seen:
        await seen.running()
        before = len(seen.records)
        for _ in range(20):
            seen.liar.agent.send(kind, body)
        await seen.settle("liar")
        assert seen.state("liar")[0] is HostState.UP
        for _ in range(1000):
            seen.liar.agent.send(kind, body)
        reason = await seen.lost()
        said = f"liar broke the protocol: {wire.NAMES[kind]}: more messages than"
        assert reason.startswith(said), reason
        assert len(seen.records) - before < 300
        assert untouched(seen)
        seen.shell.feed(ev.KillAll(2e9, True))
        await seen.until(lambda: seen.seen.receipt is not None, "the receipt")


async def test_a_host_that_hangs_up_again_and_again_is_contacted_less_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a host that hangs up after each welcome, when it has been contacted four more times,
    then the pauses in between have grown. Each connection leaves a few lines in the records."""
    async with bench(tmp_path, monkeypatch) as seen:
        await seen.running()
        times: list[float] = []

        def hang_up(agent: Agent, _: dict[str, Any]) -> None:
            agent.send(wire.WELCOME, welcome())
            agent.raw(b"")
            times.append(time.monotonic())

        seen.liar.answers[wire.HELLO] = hang_up
        seen.liar.agent.raw(b"")
        await seen.until(lambda: len(times) == 4, "four more connections")
        assert times[-1] - times[0] > 0.8 * (0.5 + 1 + 2)
