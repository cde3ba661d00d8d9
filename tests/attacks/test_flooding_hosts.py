"""Hosts that say too much: each frame is well-formed, and there are too many of them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from launcher.agent import wire
from launcher.ids import TaskId
from launcher.run import events as ev
from launcher.run.states import HostState
from tests.agent_frames import ended, facts, welcome
from tests.attacks.scripted import Agent, bench
from tests.attacks.test_lying_hosts import RECEIPT, untouched


@pytest.mark.large
async def test_a_flood_of_notes_leaves_few_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first ones are shown, and one that says that others are not; a kill works as ever."""
    async with bench(tmp_path, monkeypatch) as seen:
        await seen.running()
        before = len(seen.records)
        for number in range(50_000):
            seen.liar.agent.send(wire.NOTE, {"text": f"note {number} {'x' * 100}"})
        agent = seen.liar.agent
        await seen.until(agent._said.empty, "all are read")
        await seen.settle("liar")
        assert 10 < len(seen.records) - before < 300
        notes = [note for note in seen.seen.notes if note.startswith("liar: ")]
        assert notes[-1] == "liar: too many notes; further ones are dropped"
        assert len([note for note in notes if "too many" in note]) == 1
        assert seen.state("liar")[0] is HostState.UP and untouched(seen)
        seen.run_loop.feed(ev.KillAll(2e9, True))
        await seen.until(lambda: seen.seen.receipt is not None, "the receipt")
        assert seen.seen.exit_code == 130


@pytest.mark.parametrize(
    ("kind", "body", "most"),
    [
        (wire.STARTED, facts("worker:1"), 0),  # once it has said so
        (wire.LISTENING, facts("worker:1", listening=True), 1),
        (wire.EXITED, ended("worker:1"), 1),
        (wire.EOF, ended("worker:1", eof=True), 1),
        (wire.RECEIPT, {**RECEIPT, "ids": []}, 200),
    ],
    ids=["started", "listening", "exited", "ended", "receipt"],
)
async def test_an_event_that_is_reported_again_costs_the_link(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: int,
    body: dict[str, Any],
    most: int,
) -> None:
    """Each start, listening socket, end and receipt is reported as often as it was asked for, and
    what an agent did by itself a few times: else a host could fill the disk here."""
    async with bench(tmp_path, monkeypatch) as seen:
        await seen.running()
        before = len(seen.records)
        for _ in range(most):
            seen.liar.agent.send(kind, body)
        if most == 1:
            await seen.settle("liar")
            assert seen.state("liar")[0] is HostState.UP
        for _ in range(1000):
            seen.liar.agent.send(kind, body)
        reason = await seen.lost()
        assert reason.startswith(f"liar broke the protocol: {wire.NAMES[kind]} "), reason
        assert len(seen.records) - before < 300
        assert untouched(seen)


async def test_a_receipt_answers_each_request_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second receipt of one kill, or one for more requests than there were."""

    def twice(agent: Agent, body: dict[str, Any]) -> None:
        for _ in range(2):
            said = {"ids": [body["id"]], "tasks": body["tasks"], "confirmed": False}
            agent.send(wire.RECEIPT, {**RECEIPT, **said})

    async with bench(tmp_path, monkeypatch) as seen:
        await seen.running()
        seen.liar.answers[wire.KILL] = twice
        seen.run_loop.feed(ev.Restart(2e9, TaskId("worker", 1)))
        reason = await seen.lost()
        assert "RECEIPT of a kill that was not requested" in reason


@pytest.mark.large
async def test_a_host_that_hangs_up_again_and_again_is_contacted_less_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each connection leaves a few lines in the records."""
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
