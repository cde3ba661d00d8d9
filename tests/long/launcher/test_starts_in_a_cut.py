"""Cuts while files are brought and tasks are started: the run goes on when the host is back."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.agent import wire
from launcher.hosts.transport import Transport
from launcher.run.states import HostState, TaskState
from tests.support.agent_frames import Body, facts, welcome
from tests.support.scripted import CLUSTER, Agent, Bench, Host, bench
from tests.support.short_programs import Talker


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


async def test_a_cut_while_files_are_about_to_come_is_no_refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a connection that ends while the program for the files is being started, then the host
    is lost, and gets its files when it is back."""
    cluster = CLUSTER.replace('workdir = ""', 'workdir = ""\nenv = { CODE = "{trainer}" }')
    assert cluster != CLUSTER
    async with bench(tmp_path, monkeypatch, cluster) as run:
        opened: list[CutOff] = []

        async def open_session(
            run_id: str, nonce: str, beside: Transport | None = None
        ) -> Transport:
            if beside is None or opened:
                return await Host.open(run.liar, run_id, nonce, beside)
            opened.append(CutOff(nonce, run))
            return opened[0]

        monkeypatch.setattr(run.liar, "open", open_session)
        await run.running()
        assert opened and len(run.liar.connections) == 2


@pytest.mark.parametrize("asked", [wire.PORTS, wire.GPUS], ids=["ports", "GPUs"])
async def test_a_cut_while_questions_are_asked_asks_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: int
) -> None:
    """Given a host that is cut off while a launch asks for its ports or GPUs, when it is back,
    then it is asked again, and the run begins."""
    async with bench(tmp_path, monkeypatch) as run:

        def cut(agent: Agent, body: Body) -> None:
            del run.liar.answers[asked]
            agent.raw(b"")

        run.liar.answers[asked] = cut
        await run.running()
        assert len(run.liar.connections) == 2
        for host in run.hosts.values():
            assert [frame.type for frame in host.agent.heard].count(asked) >= 1
        assert run.state("liar") == (HostState.UP, "")


async def test_taken_ports_are_told_while_another_host_is_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given one host that is cut off and another whose port is taken, then the launch ends at once
    for the port: it would be taken afterwards, too."""
    owner = {"port": 2222, "pid": 7, "command": "python old.py", "owner": "me", "run": ""}

    def taken(agent: Agent, body: Body) -> None:
        agent.send(wire.REPLY, {"id": body["id"], "busy": [], "owners": [owner]})

    async with bench(tmp_path, monkeypatch) as run:
        run.liar.answers[wire.PORTS] = lambda agent, body: agent.raw(b"")
        run.honest.answers[wire.PORTS] = taken
        await run.until(lambda: run.state("honest")[0] is HostState.REFUSED, "a host is refused")
        assert "2222" in run.state("honest")[1]
        assert run.state("liar")[0] is not HostState.REFUSED


class CutOff(Talker):
    """A session that ends with its host's connection, when files are about to come and before our
    command has said a word."""

    def __init__(self, nonce: str, run: Bench) -> None:
        super().__init__(nonce)
        self._run = run

    async def read(self) -> bytes:
        """Nothing, in the end."""
        staging = TaskState.STAGING
        await self._run.until(lambda: self._run.task("worker:1").state is staging, "files are sent")
        self._run.liar.agent.raw(b"")
        return b""
