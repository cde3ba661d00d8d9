"""Frames to a launcher, random and changed real ones: nothing but the errors that are meant for
it, nobody else's host or task touched, memory bounded."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.agent import wire
from launcher.agent.wire import Decoder, RawFrame, WireError
from launcher.errors import AgentError, ProtocolError
from launcher.hosts.bootstrap import LinkSettings
from launcher.hosts.frame_checks import FrameChecker, LogBytes, Reply
from launcher.hosts.frames import (
    AgentNote,
    Answer,
    Credit,
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
from tests.support.agent_frames import RULES, welcome
from tests.support.frame_strategies import (
    FRAMES,
    JSON,
    OWN,
    RECEIPT,
    START,
    SURVIVOR,
    rubbish,
    tries,
)
from tests.support.link_ends import Ears, Scripted, Sink, come_true
from tests.support.scripted import Bench, bench, untouched

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
    body = json.dumps({**RECEIPT, "seconds": "here"}).encode().replace(b'"here"', value)
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
        await come_true(lambda: transports)
        transports[0].said.put_nowait(wire.encode(wire.WELCOME, welcome()))
        await ears.wait("link_up")
        link.follow(OWN, 0, 1000)
        link.send(START)
        for chunk in frames:
            transports[0].said.put_nowait(chunk)
        transports[0].said.put_nowait(b"")
        await come_true(lambda: life.done() or transports[0].closed)
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
        ({**RECEIPT, "signalled": True}, "signalled: Input should be a valid integer"),
        ({**RECEIPT, "tasks": ["worker:1", "a/b:0"]}, "tasks.1: not the name of a task"),
        ({**RECEIPT, "tasks": ["worker:01"]}, "tasks.0: not the name of a task"),
        ({**RECEIPT, "survivors": [{**SURVIVOR, "pid": -1}]}, "survivors.0.pid: Input should be"),
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
