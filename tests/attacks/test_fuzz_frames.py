"""Frames both ways, random and changed real ones: nothing but the errors that are meant for it,
nobody else's host or task touched, no file elsewhere, memory bounded."""

from __future__ import annotations

import asyncio
import copy
import os
import resource
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from launcher.agent import requests, wire
from launcher.agent.fields import FieldError
from launcher.agent.messages import MESSAGES, KillReceipt, Message, TaskFacts
from launcher.agent.probes import PROBES
from launcher.agent.requests import Question, parse_request
from launcher.agent.wire import Decoder, Frame, WireError
from launcher.errors import ProtocolError
from launcher.hosts.frame_checks import FrameChecker, LogBytes
from launcher.hosts.handshake import LinkSettings
from launcher.hosts.link import Link
from launcher.ids import TaskId
from tests.agent_frames import ended, facts, welcome
from tests.attacks.scripted import Bench, bench
from tests.attacks.test_lying_hosts import untouched
from tests.launcher.agent_client import Client, hello, raw_channel, state_folder, watchdog_and_agent
from tests.launcher.test_link import Ears, Scripted, Sink, come_true
from tests.launcher.test_wire import answer_to, asked, talk

SECONDS = 20.0
"""What each fuzzer may take at most; what is left then is not tried."""
OWN = TaskId("worker", 1)
START = requests.Start(OWN, 1, ("true",), {}, "/", 1000)
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=True)
    | st.text(st.characters(categories=None), max_size=10)
    | st.sampled_from(
        ["worker:0", "worker:1", "ps:0", "../../x:0", "/etc/x", "\0", "\x1b]52;c;eA==\x07"]
    )
    | st.sampled_from([-1, 0, 1, 1 << 31, 1 << 62, 1 << 63, 10**19]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=4,
)
RECEIPT = {"ids": [1], "tasks": None, "signalled": 2, "survivors": [], "seconds": 0.1}
SURVIVOR = {"pid": 5, "command": "x", "state": "D"}
FROM_AGENT: list[tuple[int, dict[str, Any]]] = [
    (wire.WELCOME, welcome(tasks=[facts("worker:1")])),
    (wire.STARTED, {**facts("worker:1"), "port_owner": {"port": 1, "pid": 2, "command": "x"}}),
    (wire.LISTENING, facts("worker:1", listening=True)),
    (wire.EXITED, ended("worker:1")),
    (wire.EOF, ended("worker:1", eof=True, lost=1, cut=1)),
    (wire.LOG_SIZE, {"task": "worker:1", "size": 3}),
    (wire.PONG, {"time": 1.0}),
    (wire.RECEIPT, {**RECEIPT, "survivors": [SURVIVOR]}),
    (wire.RECEIPT, {**RECEIPT, "tasks": ["worker:1"]}),
    (wire.NOTE, {"text": "x"}),
    (wire.ERROR, {"text": "x", "code": "y"}),
    (wire.GONE, {"by": "", "left": ["worker:1", None]}),
    (wire.REPLY, {"id": 1, "picked": [20000], "owners": []}),
    (
        wire.REPLY,
        {
            "id": 2,
            "cpu": 0.5,
            "memory_total": 2,
            "memory_used": 1,
            "gpus": [],
            "tasks": {"worker:1": [0.5, 100], "worker:0": [0.5, 1]},
        },
    ),
    (wire.REPLY, {"id": 2, "error": "full"}),
    (wire.STAGE_ERROR, {"text": "full"}),
]
TO_AGENT: list[tuple[int, dict[str, Any]]] = [
    (
        wire.START,
        {
            "task": "junk:0",
            "attempt": 1,
            "argv": ["true"],
            "env": {"A": "b"},
            "cwd": "/",
            "log_limit": 1000,
            "port": None,
            "pty": False,
        },
    ),
    (wire.BEAT, {}),
    (wire.READ_LOG, {"task": "junk:0", "number": 3, "offset": 0, "log_limit": 1000}),
    (wire.CREDIT, {"up_to": 1000}),
    (wire.KILL, {"id": 1, "tasks": ["junk:0"], "grace": 0.0}),
    (wire.PORTS, {"id": 1, "check": [1], "pick": 1, "avoid": [2]}),
    (wire.STATS, {"id": 1}),
    (
        wire.STAGE_MANIFEST,
        {
            "id": 1,
            "first": True,
            "key": "k",
            "entries": [["t", "a", "f", 0o644, 0, "0" * 64]],
            "last": True,
        },
    ),
    (wire.PROBE, {"id": 1, "kind": "clock"}),
    (wire.PROBE, {"id": 1, "kind": "disk_space", "paths": ["/"]}),
    (wire.PROBE, {"id": 1, "kind": "path", "path": "/"}),
    (wire.COLLECT, {"id": 1, "paths": [["a", "/nowhere"]]}),
    (wire.COLLECT_OPEN, {"number": 4, "offset": 0, "up_to": 1 << 22}),
    (wire.COLLECT_CREDIT, {"up_to": 1 << 23}),
    (wire.COLLECT_END, {"id": 1}),
]
fixed = settings(
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@st.composite
def changed(draw: st.DrawFn, real: list[tuple[int, dict[str, Any]]]) -> bytes:
    """A real frame in which a value somewhere is another one, or is missing, or bytes differ."""
    kind, body = copy.deepcopy(draw(st.sampled_from(real)))
    for _ in range(draw(st.integers(0, 2))):
        place: Any = body
        while isinstance(place, dict | list) and place:
            key = draw(st.sampled_from(sorted(place) if isinstance(place, dict) else [0]))
            if not isinstance(place[key], dict | list) or not draw(st.booleans()):
                if draw(st.integers(0, 4)):
                    place[key] = draw(JSON)
                else:
                    del place[key]
                break
            place = place[key]
    frame = wire.encode(kind, body)
    if not draw(st.integers(0, 5)):
        at = draw(st.integers(0, len(frame) - 1))
        frame = frame[:at] + draw(st.binary(max_size=4)) + frame[at + 1 :]
    return frame


def log_bytes() -> st.SearchStrategy[bytes]:
    """Frames with bytes of some log."""
    return st.builds(
        wire.encode_data,
        st.sampled_from([0, 1, 0xFFFF]),
        st.sampled_from([0, 3, 100, 1 << 40, (1 << 64) - 1]),
        st.binary(max_size=20),
    )


def rubbish() -> st.SearchStrategy[bytes]:
    """Bytes that are no frame, or one of any type with any body."""
    kinds = st.sampled_from(sorted(wire.NAMES))
    return st.binary(max_size=60) | st.builds(wire.encode_raw, kinds, st.binary(max_size=60))


FRAMES = st.lists(changed(FROM_AGENT) | log_bytes() | rubbish(), min_size=1, max_size=6)


def checker() -> FrameChecker:
    """One that has asked for everything that `FROM_AGENT` answers."""
    made = FrameChecker("h", {OWN: 1000}, local=False, adopts=False)
    made.sent(START)
    made.sent(requests.ReadLog(OWN, 0, 0))
    made.sent(requests.Kill(1, None, 0.0))
    made.sent(requests.Kill(1, (OWN,), 0.0))
    made.sent(requests.Credit(100))
    made.expect(1, requests.Ports((), 1, ()))
    made.expect(2, requests.Stats())
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
@settings(fixed, max_examples=1200)
def test_the_checker_lets_through_what_is_allowed_and_nothing_else(frames: list[bytes]) -> None:
    """Two kinds of errors, only the host's own task, log bytes within credit and limit."""
    made, decoder = checker(), Decoder()
    made.check(Frame(wire.WELCOME, wire.encode(wire.WELCOME, welcome())[5:]))
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


@given(st.sampled_from(sorted(PROBES)), st.dictionaries(st.text(max_size=9), JSON, max_size=3))
@settings(fixed, max_examples=600)
def test_answers_to_probes_are_typed_or_refused(what: str, body: dict[str, Any]) -> None:
    """No answer of any shape does more than break the protocol."""
    made = checker()
    made.check(Frame(wire.WELCOME, wire.encode(wire.WELCOME, welcome())[5:]))
    made.expect(7, cast(Question[Any], SimpleNamespace(ANSWER=PROBES[what].ANSWER, accepts=bool)))
    try:
        made.check(Frame(wire.REPLY, wire.encode(wire.REPLY, {**body, "id": 7})[5:]))
    except (ProtocolError, WireError):
        pass


@given(st.lists(st.binary(max_size=3000) | rubbish(), max_size=20))
@settings(fixed, max_examples=400)
def test_the_decoder_keeps_no_more_than_a_frame(chunks: list[bytes]) -> None:
    """What waits for the rest of its frame is at most a frame."""
    decoder = Decoder()
    try:
        for chunk in chunks:
            for frame in decoder.feed(chunk):
                frame.json()
            assert len(decoder._buffer) < wire.MAX_BODY + 5
    except WireError:
        pass


@pytest.mark.parametrize(
    "body",
    [
        b'{"a":NaN}',
        b'{"a":-Infinity}',
        b'{"a":1e999}',
        b'{"a":1,"a":2}',
        b'{"a":' + b"9" * 4_000_000 + b"}",
        b'{"a":' * 500_000 + b"1" + b"}" * 500_000,
        b"[" * 4_000_000,
        b'{"a":"\xed\xa0\x80"}',
        b"\xef\xbb\xbf{}",
        b"",
    ],
    ids="nan infinity overflow twice digits depth lists surrogate mark empty".split(),
)
def test_json_that_is_none_of_ours_is_refused_at_once(body: bytes) -> None:
    """NaN, keys that stand twice, integers of a megabyte, depth, what is not UTF-8."""
    began = time.process_time()
    with pytest.raises(WireError):
        Frame(wire.NOTE, body).json()
    assert time.process_time() - began < 5


async def one_link(folder: Path, frames: list[bytes]) -> Ears:
    """What a link's listener hears of these frames behind a greeting."""
    transports: list[Scripted] = []

    async def open_transport(run_id: str, nonce: str) -> Scripted:
        transports.append(Scripted(nonce))
        return transports[-1]

    ears = Ears()
    settings = LinkSettings("run", "h", 60.0, 1.0, "stop", local=False, tasks={OWN: 1000})
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
@settings(fixed, max_examples=150)
def test_a_link_survives_any_frames(tmp_path: Path, frames: list[bytes]) -> None:
    """Its task ends without an exception, and its listener hears only of the host's own task."""
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
    """A whole run: whatever one host says, the other's tasks are as they were, the engine has
    met no error of its own, and files are made in the run's folder only."""
    batches: list[list[bytes]] = []

    @given(FRAMES)
    @settings(fixed, max_examples=40)
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
            await _tell(seen, frames)
            assert untouched(seen), frames
            assert not [note for note in seen.seen.notes if "internal error" in note], frames
            reason = seen.state("liar")[1]
            assert "Error" not in reason, (reason, frames)
        files = {path.parent for path in folder.rglob("*") if path.is_file()}
        assert files <= {folder / "run"}
    assert number > 3


async def _tell(seen: Bench, frames: list[bytes]) -> None:
    for chunk in frames:
        # Another launcher takes over, and this one leaves: true of the whole run by design.
        if chunk[4:5] != bytes([wire.GONE]):
            seen.liar.agent.raw(chunk)
    seen.liar.agent.say(wire.NOTE, {"text": "read so far"})
    link, agent = seen.engine.connections.links["liar"], seen.liar.agent

    def read() -> bool:
        heard = any("read so far" in note for note in seen.seen.notes)
        return heard or link.closed or agent.closed or agent._said.empty()

    await seen.until(read, "all frames are read")


@pytest.mark.parametrize(("kind", "body"), [one for one in FROM_AGENT if one[0] in MESSAGES])
def test_what_an_agent_says_is_read_and_written_alike(kind: int, body: dict[str, Any]) -> None:
    """A message that is read and encoded again is the same message."""
    message = MESSAGES[kind].from_json(body)
    frame = Frame(kind, message.encode()[5:])
    assert MESSAGES[kind].from_json(frame.json()) == message


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ([], "not a JSON object"),
        ({}, "ids: field required"),
        ({**RECEIPT, "signalled": True}, "signalled: not a whole number"),
        ({**RECEIPT, "tasks": ["worker:1", "a/b:0"]}, "tasks.1: not the name of a task"),
        ({**RECEIPT, "tasks": ["worker:01"]}, "tasks.0: not the name of a task"),
        ({**RECEIPT, "survivors": [{**SURVIVOR, "pid": -1}]}, "survivors.0.pid: not a whole"),
    ],
)
def test_an_error_names_the_field(body: Any, problem: str) -> None:
    """Also inside lists and inner records."""
    with pytest.raises(FieldError, match=problem):
        KillReceipt.from_json(body)


# --- an agent ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "body"), TO_AGENT)
def test_what_a_launcher_says_is_allowed(kind: int, body: dict[str, Any]) -> None:
    """The real frames pass: their changed forms are not refused for another reason."""
    request = parse_request(Frame(kind, wire.encode(kind, body)[5:]))
    said = {key: value for key, value in body.items() if value is not None}
    assert request.TYPE == kind and request.to_json().items() >= said.items()
    assert parse_request(Frame(kind, request.encode()[5:])) == request


@given(changed(TO_AGENT) | rubbish())
@settings(fixed, max_examples=1500)
def test_requests_are_typed_or_refused(chunk: bytes) -> None:
    """One kind of error, and a task's name is no path."""
    try:
        for frame in Decoder().feed(chunk):
            request = parse_request(frame)
            assert "/" not in str(getattr(request, "task", ""))
    except WireError as error:
        assert len(str(error)) < 300


@pytest.fixture
def client() -> Iterator[Client]:
    """A run with one task that has lost its launcher."""
    with Client(f"t-{os.urandom(4).hex()}") as channel:
        channel.hello()
        channel.start("w:0", ["sleep", "1000"])
    yield channel
    with Client(channel.run_id) as last:
        last.hello()
        last.kill()
        last.leave()


@given(frames=st.lists(changed(TO_AGENT) | rubbish(), min_size=1, max_size=8))
@settings(fixed, max_examples=80)
def test_an_agent_survives_any_frames(client: Client, frames: list[bytes]) -> None:
    """Whatever a launcher says: the task of the run lives on, no log lies elsewhere, and the
    agent has not grown."""
    leave, kill = bytes([wire.LEAVE]), bytes([wire.KILL])
    frames = [f for f in frames if f[4:5] not in (leave, kill) or b"junk:0" in f]
    talk(client, wire.encode(wire.HELLO, hello(client.token)), *frames)
    held = answer_to(client, asked(client)).json()
    assert any(one["task"] == "w:0" and not one["ended"] for one in held["tasks"])
    home = Path(os.environ["HOME"])
    logs = {path.parent for path in home.rglob("*.log") if path.name != "agent.log"}
    assert logs <= {state_folder(client.run_id) / "logs"}
    _, agent = watchdog_and_agent(client.run_id)
    pages = int(Path(f"/proc/{agent.pid}/statm").read_text().split()[1])
    assert pages * resource.getpagesize() < 150 << 20


def test_the_name_of_a_task_is_no_path_on_a_host(client: Client) -> None:
    """A launcher that opens the log of `../../x:0` is refused, and no file is made anywhere."""
    opened = {"task": "../../evil:0", "number": 1, "offset": 0, "log_limit": 10}
    talk(
        client,
        wire.encode(wire.HELLO, hello(client.token)),
        wire.encode(wire.READ_LOG, opened),
    )
    answer_to(client, asked(client))
    assert not list(Path(os.environ["HOME"]).rglob("*evil*"))


def test_a_launcher_that_does_not_read_is_let_go(client: Client) -> None:
    """Answers wait in memory only so far."""
    with raw_channel(client.run_id) as channel:
        channel.sendall(wire.encode(wire.HELLO, hello(client.token)))
        with pytest.raises((ConnectionError, BrokenPipeError)):
            for _ in range(2000):
                channel.sendall(wire.encode(wire.BEAT) * 1000)
    held = answer_to(client, asked(client)).json()
    assert any(one["task"] == "w:0" and not one["ended"] for one in held["tasks"])
