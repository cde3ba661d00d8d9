"""Frames: whole, cut, too long, of the wrong kind, or no frames at all."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from launcher.agent import wire
from launcher.agent.wire import RawFrame, WireError
from tests.support.agent_client import Client, answer_to, asked, decode, hello, raw_channel, talk
from tests.support.budgets import examples
from tests.support.patience import PATIENCE

KINDS = sorted(wire.NAMES)
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=10)
    | st.sampled_from(["worker:0", "../../x", "/etc/passwd", "\0", "\x1b]52;c;eA==\x07"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
FIELDS = (
    "task attempt argv env cwd log_limit port pty number offset up_to id tasks grace check "
    "candidates entries first last key remove kind version token launcher rules variables paths "
    "stop stop_signal"
).split()
BODIES = st.dictionaries(st.sampled_from(FIELDS), JSON)


@given(st.lists(st.tuples(st.sampled_from(KINDS), st.binary(max_size=300))), st.data())
def test_frames_survive_any_cut(frames: list[tuple[int, bytes]], data: st.DataObject) -> None:
    """However the stream is cut into chunks, the same frames come out."""
    stream = b"".join(wire.encode_raw(kind, body) for kind, body in frames)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    chunks = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert [tuple(frame) for frame in decode(*chunks)] == frames


@given(st.lists(st.binary(max_size=200), max_size=5))
def test_rubbish_is_an_error_or_waits(chunks: list[bytes]) -> None:
    """Random bytes are refused or taken for the beginning of a frame; nothing else happens."""
    try:
        for frame in decode(*chunks):
            assert frame.type in wire.NAMES
    except WireError as error:
        assert "frame" in str(error)


@given(st.sampled_from(KINDS), st.binary(max_size=100))
def test_a_body_is_json_or_refused(kind: int, body: bytes) -> None:
    """A body that is no JSON object, or too short to be log bytes, is a `WireError`."""
    frame = RawFrame(kind, body)
    try:
        assert isinstance(frame.json(), dict)
    except WireError as error:
        assert wire.NAMES[kind] in str(error)
    try:
        number, offset, chunk = frame.data()
        assert (number, offset) == struct.unpack(">HQ", body[:10]) and chunk == body[10:]
    except WireError as error:
        assert len(body) < 10 and "short" in str(error)


def test_an_oversized_frame_is_refused_by_its_head() -> None:
    """Nobody waits for, or makes room for, four gigabytes."""
    with pytest.raises(WireError, match="4294967295 bytes"):
        decode(b"\xff\xff\xff\xff" + bytes([wire.START]))
    biggest = wire.encode_raw(wire.DATA, bytes(wire.MAX_BODY))
    assert len(decode(biggest)[0].body) == wire.MAX_BODY


def test_deep_json_is_refused() -> None:
    """A body nested a hundred thousand deep is an error like any other."""
    with pytest.raises(WireError, match="JSON"):
        RawFrame(wire.START, b"[" * 100_000).json()


# --- a live agent -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def supervised(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A run with one task, whose launcher's channel must survive whatever the others say."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(home))
        patch.setenv("XDG_STATE_HOME", str(home / "state"))
        patch.setenv("XDG_CACHE_HOME", str(home / "cache"))
        with Client() as client:
            client.hello()
            client.start("w:0", ["sleep", "1000"])
            yield client
            client.kill()
            client.leave()


def goes_on(client: Client) -> None:
    """The agent still answers its launcher, and its task still runs."""
    client.send(wire.BEAT)
    client.get(wire.PONG)
    said = client.ask(wire.STATS, {})
    assert "w:0" in said["tasks"]


live = examples(60, suppress_health_check=[HealthCheck.function_scoped_fixture])


@given(st.lists(st.tuples(st.sampled_from(KINDS), BODIES), max_size=4))
@live
def test_frames_before_hello_are_refused(
    supervised: Client, frames: list[tuple[int, dict[str, Any]]]
) -> None:
    """Whoever has not said HELLO gets nothing done, whatever stands in the frames."""
    frames = [(kind, body) for kind, body in frames if kind != wire.HELLO]
    answers = talk(supervised, *(wire.encode(kind, body) for kind, body in frames))
    assert [frame.type for frame in answers] == [wire.ERROR] * bool(frames)
    goes_on(supervised)


@pytest.mark.parametrize(
    "version", [0, wire.VERSION - 1, wire.VERSION + 1, str(wire.VERSION), None, []]
)
def test_another_version_is_refused_by_both_numbers(supervised: Client, version: Any) -> None:
    """The error names the agent's version and the launcher's, and has a code of its own."""
    answer = answer_to(supervised, wire.encode(wire.HELLO, hello("t", version=version)))
    assert answer.type == wire.ERROR and answer.json()["code"] == wire.OTHER_VERSION
    assert f"protocol {wire.VERSION};" in answer.json()["text"]
    assert f"speaks {version})" in answer.json()["text"]
    goes_on(supervised)


def test_a_hello_with_wrong_rules_changes_none(supervised: Client) -> None:
    """A lease that is no number is refused before the launcher that is there is sent away."""
    for lease in ("soon", None, [1]):
        body = hello("t", rules={"lease": lease, "grace": 1.0, "on_disconnect": "stop"})
        answer = answer_to(supervised, wire.encode(wire.HELLO, body))
        assert answer.type == wire.ERROR
    goes_on(supervised)


def test_a_frame_that_never_ends_disturbs_nobody(supervised: Client) -> None:
    """Half a frame, and silence, on one channel; the others go on, and its end is its end."""
    with raw_channel(supervised.run_id) as channel:
        channel.sendall(asked(supervised)[:-5])
        goes_on(supervised)
        channel.shutdown(socket.SHUT_WR)
        assert channel.recv(1) == b""
    goes_on(supervised)


def test_a_stranger_at_the_socket_gets_no_channel(supervised: Client) -> None:
    """Bytes without descriptors, too many, a file that cannot be watched: the agent hangs up.
    Nothing at all: it waits. It goes on."""
    from tests.support.agent_client import socket_path

    sockets = []
    for number in range(4):
        link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        link.connect(socket_path(supervised.run_id))
        with open(__file__) as file:
            handed = [[], [file.fileno()] * 2, [0, 1, 2], []][number]
            rights = struct.pack(f"{len(handed)}i", *handed)
            ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)] if handed else []
            if number < 3:
                link.sendmsg([b"c"], ancillary)
        sockets.append(link)
    goes_on(supervised)
    for link in sockets[:3]:
        link.settimeout(PATIENCE)
        assert link.makefile("rb").read() in (b"", b"k")
    for link in sockets:
        link.close()
    goes_on(supervised)


def test_what_an_agent_sends_is_what_the_encoder_says() -> None:
    """Lengths are of bytes, not of characters."""
    raw = wire.encode(wire.NOTE, {"text": "Grüße"})
    (frame,) = decode(raw)
    assert frame.json() == {"text": "Grüße"} == json.loads(raw[5:])


def test_a_body_that_is_too_long_is_refused_by_its_sender() -> None:
    """The other side would end the connection."""
    with pytest.raises(WireError, match="NOTE of 4194315 bytes"):
        wire.encode(wire.NOTE, {"text": "x" * wire.MAX_BODY})
