"""Frames of hosts that lie, flood or are random: no host is believed about another's tasks."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.agent import wire
from launcher.agent.wire import Decoder, RawFrame, WireError
from launcher.errors import AgentError, ProtocolError
from launcher.hosts.bootstrap import LinkSettings, query_agent
from launcher.hosts.frame_checks import FrameChecker, LogBytes, Reply
from launcher.hosts.frames import (
    AgentNote,
    Answer,
    Credit,
    Gone,
    GpusAnswer,
    GpusQuestion,
    Kill,
    KillReceipt,
    Message,
    Ports,
    PortsAnswer,
    Question,
    ReadLog,
    StacksAnswer,
    StacksQuestion,
    Stats,
    StatsAnswer,
    TaskFacts,
)
from launcher.hosts.link import Link
from launcher.hosts.programs import read_answer
from launcher.ids import TaskId
from launcher.preflight import probes
from launcher.run import events as ev
from launcher.run.states import HostState, TaskState
from launcher.store.stream import plain
from tests.support.agent_frames import RULES, ended, facts, welcome
from tests.support.frame_strategies import (
    FRAMES,
    JSON,
    OWN,
    START,
    SURVIVOR,
    rubbish,
    tries,
)
from tests.support.frame_strategies import (
    RECEIPT as ANY_RECEIPT,
)
from tests.support.link_ends import Ears, Scripted, Sink
from tests.support.patience import until
from tests.support.scripted import CLUSTER, RECEIPT, Agent, Bench, Host, bench, untouched

# Frames to a launcher, random and changed real ones: nothing but the errors that are meant for it,
# nobody else's host or task touched, memory bounded.

ANSWERS = [PortsAnswer, GpusAnswer] + [
    value
    for value in vars(probes).values()
    if isinstance(value, type) and issubclass(value, Answer) and value.WHAT
]
SECONDS = 20.0
"""What each fuzzer may take at most; what is left then is not tried."""


def checker() -> FrameChecker:
    """One that has asked for everything that `FROM_AGENT` answers."""
    made = FrameChecker("h", {OWN: 1000}, local=False, adopts=False)
    made.sent(START)
    made.sent(ReadLog(OWN, 0, 0))
    made.sent(Kill(1, None, 0.0))
    made.sent(Kill(1, (OWN,), 0.0))
    made.sent(Credit(100))
    made.expect(1, Ports((), (20000,)))
    made.expect(2, Stats())
    made.expect(3, GpusQuestion())
    made.expect(4, StacksQuestion())
    return made


def named(message: object) -> set[TaskId]:
    """The tasks of which a message speaks."""
    if isinstance(message, TaskFacts):
        return {message.task}
    fields = vars(message) if isinstance(message, Message) else {}
    found = {value for value in fields.values() if isinstance(value, TaskId)}
    for value in fields.values():
        if isinstance(value, tuple | dict):
            for each in value:
                found |= {each} if isinstance(each, TaskId) else named(each)
    return found


@given(FRAMES)
@tries(100)
def test_the_checker_lets_through_what_is_allowed_and_nothing_else(frames: list[bytes]) -> None:
    """Given any frames of an agent, when the launcher checks them, then each is about the host's
    own task and within its log's credit, or breaks the protocol, in short, printable words."""
    made, decoder = checker(), Decoder()
    made.check(RawFrame(wire.WELCOME, wire.encode(wire.WELCOME, welcome())[5:]))
    received = 0
    try:
        for chunk in frames:
            for frame in decoder.feed(chunk):
                message = made.check(frame)
                assert named(message) <= {OWN}
                if isinstance(message, LogBytes):
                    assert message.number == 0 and message.offset == received
                    received += len(message.chunk)
                    assert received <= 100
    except ProtocolError as error:
        assert error.reason.startswith("h broke the protocol: ") and error.reason.isprintable()
        assert len(error.reason) < 500
    except WireError:
        pass


@given(
    st.sampled_from([PortsAnswer, StatsAnswer, GpusAnswer, StacksAnswer]),
    st.dictionaries(st.text(max_size=9), JSON, max_size=3),
)
@tries(100)
def test_answers_of_an_agent_are_typed_or_refused(kind: type[Any], body: dict[str, Any]) -> None:
    """Given an agent's answer of any shape, when the launcher checks it, then it has the type of
    the question's answer or breaks the protocol, and nothing worse is raised."""
    made = checker()
    made.check(RawFrame(wire.WELCOME, wire.encode(wire.WELCOME, welcome())[5:]))
    made.expect(7, cast(Question[Any], SimpleNamespace(ANSWER=kind, accepts=bool)))
    try:
        made.check(RawFrame(wire.REPLY, wire.encode(wire.REPLY, {**body, "id": 7})[5:]))
    except (ProtocolError, WireError):
        pass


@given(st.sampled_from(ANSWERS), JSON | st.dictionaries(st.text(max_size=9), JSON, max_size=3))
@tries(100)
def test_answers_to_questions_are_typed_or_refused(kind: type[Answer], body: object) -> None:
    """Given an answer of any shape from a program on a host, when the launcher reads it, then it is
    of the question's type, or an `AgentError` in short, printable words."""
    try:
        read_answer("h", kind, json.dumps(body).encode())
    except AgentError as error:
        assert error.reason.isprintable() and len(error.reason) < 3000


@given(st.lists(st.binary(max_size=3000) | rubbish(), max_size=20))
@tries(100)
def test_the_decoder_keeps_no_more_than_a_frame(chunks: list[bytes]) -> None:
    """Given chunks of any bytes, when the decoder has taken one, then what waits for the rest of
    its frame is at most a frame."""
    decoder = Decoder()
    try:
        for chunk in chunks:
            for frame in decoder.feed(chunk):
                frame.json()
            assert len(decoder._buffer) < wire.MAX_BODY + 5
    except WireError:
        pass


@pytest.mark.parametrize(
    "value",
    [
        b"NaN",
        b"-Infinity",
        b"1e999",
        b"9" * 4_000_000,
        b"[" * 2_000_000 + b"]" * 2_000_000,
        b'{"a":' * 500_000 + b"1" + b"}" * 500_000,
    ],
    ids="nan infinity overflow digits lists depth".split(),
)
def test_values_that_are_none_of_ours_are_refused_at_once(value: bytes) -> None:
    """Given a receipt whose seconds are infinite, millions of digits or deeply nested, when the
    launcher checks it, then it breaks the protocol within five seconds of a processor's time."""
    made = checker()
    made.check(RawFrame(wire.WELCOME, wire.encode(wire.WELCOME, welcome())[5:]))
    body = json.dumps({**ANY_RECEIPT, "seconds": "here"}).encode().replace(b'"here"', value)
    began = time.process_time()
    with pytest.raises(ProtocolError, match="RECEIPT"):
        made.check(RawFrame(wire.RECEIPT, body))
    assert time.process_time() - began < 5


@pytest.mark.parametrize("text", [b'"\xed\xa0\x80"', b'"\\ud800"', b"\xef\xbb\xbf{}", b"5", b""])
def test_text_that_is_none_is_refused(text: bytes) -> None:
    """Given a note whose text is half a character, begins with a byte order mark, is a number or
    nothing, when the launcher checks it, then it breaks the protocol."""
    made = checker()
    made.check(RawFrame(wire.WELCOME, wire.encode(wire.WELCOME, welcome())[5:]))
    with pytest.raises(ProtocolError, match="NOTE"):
        made.check(RawFrame(wire.NOTE, b'{"text":' + text + b"}"))


def test_half_a_character_of_a_host_arrives_as_a_mark() -> None:
    """Given an agent's note with a path that is not UTF-8, when the launcher checks it, then a
    question mark stands for the odd byte. That is no reason to drop the host."""
    made = checker()
    made.check(RawFrame(wire.WELCOME, wire.encode(wire.WELCOME, welcome())[5:]))
    said = made.check(RawFrame(wire.NOTE, wire.encode(wire.NOTE, {"text": "caf\udce9"})[5:]))
    assert isinstance(said, AgentNote) and said.text == "caf?"


async def one_link(folder: Path, frames: list[bytes]) -> Ears:
    """What a link's listener hears of these frames after a WELCOME."""
    transports: list[Scripted] = []

    async def open_transport(run_id: str, nonce: str, beside: object = None) -> Scripted:
        transports.append(Scripted(nonce))
        return transports[-1]

    ears = Ears()
    settings = LinkSettings("run", "h", RULES, local=False, tasks={OWN: 1000})
    link = Link(settings, open_transport, Sink(folder), ears)
    life = asyncio.create_task(link.run())
    try:
        await until(lambda: transports)
        transports[0].said.put_nowait(wire.encode(wire.WELCOME, welcome()))
        await ears.wait("link_up")
        link.follow(OWN, 0, 1000)
        link.send(START)
        for chunk in frames:
            transports[0].said.put_nowait(chunk)
        transports[0].said.put_nowait(b"")
        await until(lambda: life.done() or transports[0].closed)
        assert not life.done() or life.exception() is None
    finally:
        await link.aclose()
        life.cancel()
        await asyncio.gather(life, return_exceptions=True)
    return ears


@given(frames=FRAMES)
@tries(100)
def test_a_link_survives_any_frames(tmp_path: Path, frames: list[bytes]) -> None:
    """Given any frames after a welcome, when a link reads them, then it ends without an exception,
    its listener hears of the host's own task alone, and only that task's log is written."""
    folder = tmp_path / "run"
    folder.mkdir(exist_ok=True)
    ears = asyncio.run(one_link(folder, frames))
    for name, words in ears.heard:
        assert name in ("link_up", "agent_said", "log_grew", "link_lost", "link_superseded")
        assert name == "log_grew" or words[0] == "h"
        assert name != "log_grew" or words[0] == OWN
        assert all(named(word) <= {OWN} for word in words)
    assert {path.name for path in folder.iterdir()} <= {"worker-1.log", "worker-1.idx"}


async def test_a_run_survives_any_frames_of_a_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a run on two hosts, when one of them sends any frames, then the other's tasks are as
    they were, the launcher has no internal error, and all files lie in the run's folder."""
    batches: list[list[bytes]] = []

    @given(FRAMES)
    @tries(20)
    def collect(frames: list[bytes]) -> None:
        batches.append(frames)

    collect()
    began = time.monotonic()
    for number, frames in enumerate(batches):
        if time.monotonic() - began > SECONDS:
            break
        folder = tmp_path / str(number)
        folder.mkdir()
        async with bench(folder, monkeypatch) as seen:
            await seen.running()
            await _send(seen, frames)
            assert untouched(seen), frames
            assert not [note for note in seen.seen.notes if "internal error" in note], frames
            reason = seen.state("liar")[1]
            assert "Error" not in reason, (reason, frames)
        files = {path.parent for path in folder.rglob("*") if path.is_file()}
        assert files <= {folder / "run"}
    assert number > 3


async def _send(seen: Bench, frames: list[bytes]) -> None:
    for chunk in frames:
        # Another launcher takes over, and this one leaves: true of the whole run by design.
        if chunk[4:5] != bytes([wire.GONE]):
            seen.liar.agent.raw(chunk)
    seen.liar.agent.send(wire.NOTE, {"text": "read so far"})
    link, agent = seen.shell.links["liar"], seen.liar.agent

    def read() -> bool:
        heard = any("read so far" in note for note in seen.seen.notes)
        return heard or link.closed or agent.closed or agent._said.empty()

    await seen.until(read, "all frames are read")


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ([], "Input should be an object"),
        ({}, "ids: Field required"),
        ({**ANY_RECEIPT, "signalled": True}, "signalled: Input should be a valid integer"),
        ({**ANY_RECEIPT, "tasks": ["worker:1", "a/b:0"]}, "tasks.1: not the name of a task"),
        ({**ANY_RECEIPT, "tasks": ["worker:01"]}, "tasks.0: not the name of a task"),
        (
            {**ANY_RECEIPT, "survivors": [{**SURVIVOR, "pid": -1}]},
            "survivors.0.pid: Input should be",
        ),
    ],
)
def test_an_error_names_the_field(body: Any, problem: str) -> None:
    """Given a receipt with a wrong or missing field, also inside lists and inner records, when it
    is read, then the error names the field and what should be there."""
    with pytest.raises(ValueError, match=problem):
        KillReceipt.read(json.dumps(body).encode())


PROCESS: dict[str, Any] = {
    "task": "worker:1",
    "pid": 5,
    "command": "python",
    "way": "python",
    "state": "runs",
    "threads": [["main", 0]],
}
FRAME = ["f", "a.py", 1]


def stacks_answer(*processes: dict[str, Any], stacks: list[Any] | None = None) -> Reply:
    """What a launcher makes of an answer to its question for stacks."""
    made = checker()
    made.check(RawFrame(wire.WELCOME, wire.encode(wire.WELCOME, welcome())[5:]))
    body = {"id": 4, "stacks": [[FRAME]] if stacks is None else stacks, "processes": processes}
    reply = made.check(RawFrame(wire.REPLY, wire.encode(wire.REPLY, body)[5:]))
    assert isinstance(reply, Reply)
    return reply


def test_stacks_of_others_are_left_out_and_texts_are_shown() -> None:
    """Given stacks of another host's task and names with escapes, when the launcher checks them,
    then that task is left out and the names are printable. Two host names may be one machine."""
    other = {**PROCESS, "task": "worker:0"}
    reply = stacks_answer(PROCESS, other, stacks=[[["\x1b]52;c;x\x07", "a\u202e.py", 1]]])
    assert isinstance(reply.answer, StacksAnswer)
    assert [one.task for one in reply.answer.processes] == [OWN]
    (((function, file, _),),) = reply.answer.stacks
    assert function.isprintable() and file.isprintable()


@pytest.mark.parametrize(
    ("process", "stacks"),
    [
        ({"threads": [["main", 1]]}, None),
        ({"threads": [["main", -1]]}, None),
        ({"threads": []}, None),
        ({"threads": [["main", 0]] * (wire.MOST_THREADS + 1)}, None),
        ({"way": "magic"}, None),
        ({"pid": "5"}, None),
        ({"task": "../x:0"}, None),
        ({}, [[FRAME] * (wire.MOST_FRAMES + 1)]),
        ({}, [[["f", "a.py", -1]]]),
        ({}, [["f"]]),
    ],
)
def test_stacks_that_break_a_bound_break_the_protocol(
    process: dict[str, Any], stacks: list[Any] | None
) -> None:
    """Given stacks with an index, a count, a number or a name out of bounds, when the launcher
    checks them, then the answer breaks the protocol."""
    with pytest.raises(ProtocolError, match=r"REPLY \(StacksQuestion\)"):
        stacks_answer({**PROCESS, **process}, stacks=stacks)


def test_too_many_processes_break_the_protocol() -> None:
    """Given an answer with one process more than an agent may name, when the launcher checks it,
    then the answer breaks the protocol."""
    with pytest.raises(ProtocolError, match="processes"):
        stacks_answer(*[PROCESS] * (wire.MOST_PROCESSES + 1))


# Hosts that say too much: each frame is well-formed, and there are too many of them.


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


# Hosts that lie: a host is believed about its own tasks and about nothing else.

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
