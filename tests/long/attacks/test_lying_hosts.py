"""Hosts that lie: a host is believed about its own tasks and about nothing else.

Each lie is told over a real link to a real engine. It must cost the liar its link, with a reason
that names host and rule, and nobody else anything.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from launcher.agent import wire
from launcher.errors import AgentError
from launcher.hosts.bootstrap import LinkSettings, query_agent
from launcher.hosts.frames import Gone
from launcher.ids import TaskId
from launcher.run import events as ev
from launcher.run.states import HostState, TaskState
from launcher.store.stream import plain
from tests.support.agent_frames import RULES, ended, facts, welcome
from tests.support.scripted import CLUSTER, RECEIPT, Agent, Bench, Host, bench, untouched

NO_TASK_OF_ITS_OWN = "which is not one of its tasks"

LIES: dict[str, tuple[int, dict[str, Any], str]] = {
    "another host's task exited": (wire.EXITED, ended("worker:0"), NO_TASK_OF_ITS_OWN),
    "another host's task started": (wire.STARTED, facts("ps:0"), NO_TASK_OF_ITS_OWN),
    "another host's task listens": (wire.LISTENING, facts("ps:0"), NO_TASK_OF_ITS_OWN),
    "another host's log ended": (wire.EOF, ended("ps:0", eof=True), NO_TASK_OF_ITS_OWN),
    "a task nobody knows": (wire.EXITED, ended("worker:99"), NO_TASK_OF_ITS_OWN),
    "a size in another folder": (wire.LOG_SIZE, {"task": "../../x:0", "size": 5}, "SIZE"),
    "a size although its logs come as bytes": (
        wire.LOG_SIZE,
        {"task": "worker:1", "size": 5},
        "SIZE",
    ),
    "a task that is a number": (wire.EXITED, ended("x") | {"task": 5}, "task"),
    "a task that is a list": (wire.LISTENING, facts("x") | {"task": ["worker:1"]}, "task"),
    "other digits": (wire.EXITED, ended("worker:١"), "task: not the name of a task"),
    "a negative size": (wire.EXITED, ended("worker:1", size=-1), "size"),
    "more than log_limit": (wire.EXITED, ended("worker:1", size=100_001), "log_limit"),
    "an attempt that was never started": (wire.EXITED, ended("worker:1", attempt=2), "attempt 2"),
    "an attempt that is a truth value": (wire.STARTED, facts("worker:1", attempt=True), "attempt"),
    "an exit without an end": (wire.EXITED, facts("worker:1"), "EXITED"),
    "a status beyond all": (wire.EXITED, ended("worker:1", status=1 << 62), "status"),
    "a pid beyond all": (wire.STARTED, facts("worker:1", pid=1 << 40), "pid"),
    "a signal that is an object": (wire.EXITED, ended("worker:1", signal={}), "signal"),
    "a receipt for another's task": (
        wire.RECEIPT,
        {**RECEIPT, "tasks": ["worker:0"], "confirmed": False},
        NO_TASK_OF_ITS_OWN,
    ),
    "one task's kill that the kernel has confirmed": (
        wire.RECEIPT,
        {**RECEIPT, "tasks": ["worker:1"]},
        "of some tasks only",
    ),
    "the end of a log of an attempt that was not asked about": (
        wire.LOG_SIZE,
        {"task": "worker:1", "size": 0, "attempt": 7},
        "which was not asked about",
    ),
    "a kill that is confirmed beside survivors": (
        wire.RECEIPT,
        {**RECEIPT, "survivors": [{"pid": 5, "command": "x", "state": "D"}]},
        "or survivors",
    ),
    "survivors that are a number": (wire.RECEIPT, {**RECEIPT, "survivors": 4}, "survivors"),
    "a second welcome": (wire.WELCOME, welcome(tasks=[ended("worker:1")]), "WELCOME"),
    "an answer that nobody asked for": (wire.REPLY, {"id": 4711, "busy": [1]}, "REPLY"),
    "an answer to a list": (wire.REPLY, {"id": [1]}, "REPLY"),
    "a note that is no text": (wire.NOTE, {"text": {"a": 1}}, "text"),
    "what only launchers say": (wire.KILL, {"id": 1, "tasks": None, "grace": 0}, "KILL"),
    "farewell to a number": (wire.GONE, {"by": 5}, "by"),
}


async def test_the_honest_run_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given two hosts that tell the truth, when a task writes and exits, then its exit is believed
    and both hosts stay up: the tests below are about lies and not about their testbed."""
    async with bench(tmp_path, monkeypatch) as seen:
        await seen.running()
        number, offset = log_of(seen, "worker:1")
        seen.liar.agent.raw(wire.encode_data(number, offset, b"fine\n"))
        seen.liar.agent.send(wire.EXITED, ended("worker:1", size=5))
        await seen.until(lambda: seen.task("worker:1").exit_code == 0, "it has exited")
        assert seen.state("liar")[0] is HostState.UP and untouched(seen)


@pytest.mark.parametrize("lie", LIES)
async def test_a_lie_costs_the_liar_its_link_and_nobody_else_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lie: str
) -> None:
    """Given a run on two hosts, when one tells a lie, then its link is lost for good, with a reason
    that names host and rule, its tasks are lost and no success, and the other host is untouched."""
    kind, body, rule = LIES[lie]
    async with bench(tmp_path, monkeypatch) as seen:
        await seen.running()
        seen.liar.agent.send(kind, body)
        reason = await seen.lost()
        assert reason.startswith("liar broke the protocol: ") and rule in reason, reason
        assert "not connecting to it again" in reason
        assert reason.isprintable() and len(reason) < 500
        assert untouched(seen)
        mine = [seen.task("worker:1"), seen.task("worker:2")]
        assert all(task.state is TaskState.LOST and task.exit_code is None for task in mine)
        assert any(reason in note for note in seen.seen.notes)
        assert seen.shell.links["liar"].closed and seen.liar.agent.closed
        assert len(seen.liar.connections) == 1
        seen.shell.feed(ev.KillAll(2e9, True))
        await seen.until(lambda: seen.seen.receipt is not None, "the receipt")
        assert seen.seen.exit_code == 4
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == []
    assert {path.parent for path in tmp_path.rglob("*.log")} <= {seen.folder}


def log_of(seen: Bench, task: str) -> tuple[int, int]:
    """The number under which the launcher reads a task's log, and from where."""
    host = seen.hosts[seen.task(task).host]
    opened = [f.json() for f in host.agent.heard if f.type == wire.READ_LOG]
    (said,) = [body for body in opened if body["task"] == task]
    return int(said["number"]), int(said["offset"])


def credit(seen: Bench) -> int:
    """The log bytes that the liar may have sent."""
    return max(int(f.json()["up_to"]) for f in seen.liar.agent.heard if f.type == wire.CREDIT)


def beyond_log_limit(seen: Bench) -> list[bytes]:
    number, _ = log_of(seen, "worker:1")
    chunk = bytes(50_000)
    return [wire.encode_data(number, at, chunk) for at in range(0, 150_000, 50_000)]


def a_gap(seen: Bench) -> list[bytes]:
    number, _ = log_of(seen, "worker:1")
    return [wire.encode_data(number, 0, b"abc"), wire.encode_data(number, 7, b"hij")]


def the_same_again(seen: Bench) -> list[bytes]:
    number, _ = log_of(seen, "worker:1")
    return [wire.encode_data(number, 0, b"abc"), wire.encode_data(number, 0, b"xyz")]


def anothers_log(seen: Bench) -> list[bytes]:
    number, _ = log_of(seen, "worker:0")
    return [wire.encode_data(number, 0, b"forged")]


def a_log_that_is_not_open(seen: Bench) -> list[bytes]:
    return [wire.encode_data(4711, 0, b"x")]


@pytest.mark.parametrize(
    ("lie", "rule"),
    [
        (beyond_log_limit, "log_limit"),
        (a_gap, "byte 7"),
        (the_same_again, "byte 0"),
        (anothers_log, "not open"),
        (a_log_that_is_not_open, "not open"),
    ],
)
async def test_log_bytes_that_were_not_asked_for_cost_the_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lie: Callable[[Bench], list[bytes]], rule: str
) -> None:
    """Given a host that sends log bytes beyond `log_limit`, out of order or of a log that is not
    open, when they come, then its link is lost for that reason, and no log here is too long."""
    async with bench(tmp_path, monkeypatch) as seen:
        await seen.running()
        for frame in lie(seen):
            seen.liar.agent.raw(frame)
        reason = await seen.lost()
        assert "liar broke the protocol: DATA" in reason and rule in reason, reason
        assert untouched(seen)
        assert all(path.stat().st_size <= 100_000 for path in seen.folder.glob("*.log"))
        assert not (seen.folder / "worker-0.log").exists()


async def test_more_than_its_credit_costs_the_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a `log_limit` that is far away, when a host sends more log bytes than the launcher's
    credit, then its link is lost, and the log here is no longer than the credit."""
    cluster = CLUSTER.replace("100_000", "1_000_000_000")
    async with bench(tmp_path, monkeypatch, cluster) as seen:
        await seen.running()
        number, _ = log_of(seen, "worker:1")
        granted = credit(seen)
        chunk = bytes(3 << 20)  # one frame beyond the window, so no new credit comes between
        seen.liar.agent.raw(wire.encode_data(number, 0, chunk))
        reason = await seen.lost()
        assert "more than its credit" in reason, reason
        log = seen.folder / "worker-1.log"
        assert not log.exists() or log.stat().st_size <= granted


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"version": 99}, "version 99"),
        ({"version": "1"}, "version"),
        ({"tasks": [ended("worker:0")]}, NO_TASK_OF_ITS_OWN),
        ({"tasks": [ended("worker:1")]}, "attempt 1"),
        ({"tasks": {"worker:1": 1}}, "tasks"),
        ({"home": "relative"}, "home"),
        ({"home": 5}, "home"),
        ({"environ": {"PATH": "/evil"}}, "environ"),
        ({"environ": {"PYTHONPATH": 5}}, "environ"),
        ({"previous_end": ["x"]}, "previous_end"),
    ],
)
async def test_a_welcome_that_lies_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any], rule: str
) -> None:
    """Given a welcome with a wrong version, task, path or variable, when the launcher first logs
    in, then the host is refused with that reason, and the run ends as after a failed preflight."""
    async with bench(tmp_path, monkeypatch) as seen:
        seen.liar.answers[wire.HELLO] = lambda agent, _: agent.send(wire.WELCOME, welcome(**change))
        await seen.until(lambda: seen.seen.outcome is not None, "the run has ended")
        state, reason = seen.state("liar")
        assert state is HostState.REFUSED
        assert "liar broke the protocol: WELCOME" in reason and rule in reason, reason
        assert str(seen.seen.outcome) == "preflight"
        assert all(view.exit_code is None for view in seen.seen.tasks)


async def test_a_second_answer_to_a_question_is_a_lie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a question that a host has answered, when it sends the answer again, then its link is
    lost with that reason, and the other host is untouched."""
    async with bench(tmp_path, monkeypatch) as seen:
        ports: list[dict[str, Any]] = []

        def twice(agent: Agent, body: dict[str, Any]) -> None:
            ports.append({"id": body["id"], "busy": [], "owners": []})
            agent.send(wire.REPLY, ports[0])

        seen.liar.answers[wire.PORTS] = twice
        await seen.running()
        seen.liar.agent.send(wire.REPLY, ports[0])
        reason = await seen.lost()
        assert "REPLY to a question that was not asked" in reason
        assert untouched(seen)


@pytest.mark.parametrize(
    ("kind", "body", "reason"),
    [
        (wire.WELCOME, welcome(tasks=[facts("worker:0")]), NO_TASK_OF_ITS_OWN),
        (wire.WELCOME, welcome(tasks=5), "tasks"),
        (wire.GONE, {"by": "", "left": {"worker:1": 1}}, "left"),
        (wire.NOTE, {"text": "x"}, "before WELCOME"),
        (wire.ERROR, {"text": "no room"}, "no room"),
    ],
)
async def test_a_query_believes_no_more_than_a_launch(
    kind: int, body: dict[str, Any], reason: str
) -> None:
    """Given an agent that lies, when `tfmux ps` or `kill` asks it without taking it over, then that
    is an error of its host; a farewell's tasks that are not the host's own become nameless."""
    host = Host("liar")
    host.answers[wire.HELLO] = lambda agent, _: agent.send(kind, body)
    tasks = {TaskId("worker", 1): 1000}
    settings = LinkSettings("r", "liar", RULES, local=False, tasks=tasks)
    with pytest.raises(AgentError, match=reason):
        await query_agent(settings, host.open)
    left = {"by": "", "left": ["worker:1", "worker:0", None]}
    host.answers[wire.HELLO] = lambda agent, _: agent.send(wire.GONE, left)
    gone = await query_agent(settings, host.open)
    assert isinstance(gone, Gone) and gone.left == (TaskId("worker", 1), None, None)


EVIL = "\x1b]52;c;ZXZpbA==\x07\x1b[2J\u202e\u200b\x9b31m\x00\ud800\nevil"
LONG = "\x1b[2J" + "x" * 100_000


def texts(value: Any) -> list[str]:
    """All texts in a record's values."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for item in (*value, *value.values()) for text in texts(item)]
    return [text for item in value for text in texts(item)] if isinstance(value, list) else []


@pytest.mark.parametrize("text", [EVIL, LONG], ids=["escapes", "long"])
async def test_what_a_host_says_is_recorded_without_escapes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """Given a host whose texts hold escapes, or are endless, when the run records them, then each
    record has them on one line of a bounded length, without anything on which a terminal acts."""
    left = {"pid": 9, "command": text, "age": 5.0, "cpu": 1.0}
    lasting = CLUSTER.replace("grace = 0.5", 'grace = 0.5\non_failure = "keep"')
    assert lasting != CLUSTER
    async with bench(tmp_path, monkeypatch, lasting) as seen:
        await seen.running()
        agent = seen.liar.agent
        agent.send(wire.NOTE, {"text": text})
        holder = {"port": 2222, "pid": 5, "command": text}
        agent.send(wire.STARTED, facts("worker:1", error=text, port_owner=holder))
        lefts = {"processes": [left], "unlisted": 0, "seconds": 1.0, "cpu": 1.0}
        agent.send(wire.EXITED, ended("worker:2", left=lefts, stopped_why=text))
        survivor = {"pid": 5, "command": text, "state": text}
        receipt = {**RECEIPT, "confirmed": False, "survivors": [survivor], "doubt": text}
        agent.send(wire.RECEIPT, {**receipt, "ids": []})
        agent.send(wire.RECEIPT, {**receipt, "ids": [0], "tasks": ["worker:1"]})
        await seen.settle("liar")
        seen.liar.answers[wire.KILL] = lambda agent, _: agent.send(wire.RECEIPT, receipt)
        seen.liar.answers[wire.HELLO] = lambda agent, _: agent.send(
            wire.WELCOME, welcome(previous_end=text)
        )
        agent.closed = True  # the connection breaks, and the next agent greets
        agent.send(wire.PONG, {})
        await seen.until(lambda: any("is back" in n for n in seen.seen.notes), "it is back")
        seen.shell.feed(ev.KillAll(2e9, True))
        await seen.until(lambda: seen.seen.receipt is not None, "the receipt")
    said = [one for record in seen.records for one in texts(plain(record))]
    known = "evil" if text is EVIL else "xxx"
    assert sum(known in one for one in said) > 6
    assert all(one.isprintable() and len(one) < 8000 for one in said)
