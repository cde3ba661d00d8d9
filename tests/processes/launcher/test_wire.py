"""Bytes between launcher and agent, and records in the stream of a run."""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from launcher.agent import wire
from launcher.agent.processes import ProcessTracker
from launcher.agent.wire import RawFrame, WireError
from launcher.client.launcher_link import attach_order
from launcher.client.run_client import RunClient
from launcher.cluster.read import loads
from launcher.history.run_list import read_run
from launcher.history.stored import FinishedRun, StoredRun
from launcher.ids import TaskId
from launcher.process.run_shell import RunShell
from launcher.run.snapshot import Metric, RunView, TaskView
from launcher.run.states import Outcome, RunPhase, TaskState
from launcher.run.views import Views
from launcher.store.runs import RunFolder
from launcher.store.stream import encode, read_end, read_stream
from tests.support.agent_client import Client, answer_to, asked, decode, hello, raw_channel, talk
from tests.support.budgets import examples
from tests.support.cluster_texts import cluster_text
from tests.support.patience import PATIENCE, wait_until
from tests.support.streams import check_stream
from tests.testbed.launcher_thread import LauncherThread

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


CLUSTER = cluster_text(
    {"worker": 2},
    "kept",
    command=["sh", "-c", "echo 'step 7 loss 0.5'; sleep 1000"],
    workdir="",
    grace=1,
    start={"ready": {"worker": "started"}},
)


def tells(folder: RunFolder, shell: RunShell) -> bool:
    """Whoever folds the stream has the launcher's own views, but for figures."""
    kept, views = read_stream(folder.events, folder.run_id).views, shell.data
    return (
        [without_figures(view) for view in kept.tasks.values()]
        == [without_figures(view) for view in views.tasks.values()]
        and [replace(host, **BLANK) for host in kept.hosts.values()]
        == [replace(host, **BLANK) for host in views.hosts.values()]
        and replace(kept.run, waiting="") == replace(views.run, waiting="")
        and (kept.notes, kept.receipt, kept.facts) == (views.notes, views.receipt, views.facts)
    )


BLANK: dict[str, Any] = {
    "last_heard": None,
    "cpu": None,
    "memory_used": None,
    "memory_total": None,
    "gpus": (),
    "gpu_problem": "",
    "usage": {},
}


def without_figures(view: TaskView) -> TaskView:
    """What is recorded of a task at once."""
    return replace(view, step=None, loss=None, rate=None, metrics={}, last_output=None, log_size=0)


def launched() -> tuple[RunClient, RunShell]:
    """A run, and its launcher's shell."""
    thread = LauncherThread()
    client = RunClient.launch(loads(CLUSTER, "kept.toml", Path("/")), CLUSTER, process=thread)
    client.await_state(PATIENCE)
    return client, thread.shell


def test_the_stream_gives_the_run_back() -> None:
    """While it runs and at its end; a list needs only the last record."""
    client, shell = launched()
    folder = client.folder
    tasks = [view.id for view in client.snapshot().tasks]
    wait_until(lambda: client.snapshot().step == 7 and running(client), "all tasks run")
    wait_until(lambda: tells(folder, shell), "the stream tells it")
    stored = StoredRun(folder)
    assert not stored.damage and not stored.over
    assert stored.snapshot().step == 7 and read_end(folder.events, folder.run_id) is None
    client.kill_all()
    assert client.wait(PATIENCE)
    assert tells(folder, shell)
    check_stream(folder)
    told = read_run(folder)
    seen = told.summary
    assert (seen.outcome, seen.exit_code, seen.step) == (Outcome.KILLED, 130, 7)
    assert told.over and read_end(folder.events, folder.run_id) is not None
    past = FinishedRun(StoredRun(folder))
    assert past.snapshot().state is RunPhase.ENDED
    assert list(past.series(tasks[0]).points.losses) == [0.5]


def running(client: RunClient) -> bool:
    """All its tasks have told metrics."""
    return all(view.state is TaskState.RUNNING for view in client.snapshot().tasks)


def test_a_launcher_that_takes_up_a_run_writes_on_in_its_stream() -> None:
    """From the views that it has read."""
    first, shell = launched()
    wait_until(lambda: running(first), "all tasks run")
    wait_until(lambda: tells(first.folder, shell), "the stream tells it")
    thread = LauncherThread()
    link = thread.order(attach_order(first.folder, "nothing"))
    second = RunClient(first.folder, Views.of(first.snapshot()), link)
    assert first.wait(PATIENCE) and first.snapshot().outcome is Outcome.TAKEN_OVER
    wait_until(lambda: running(second), "the second one has it")
    second.kill_all()
    assert second.wait(PATIENCE)
    assert tells(first.folder, thread.shell)
    check_stream(first.folder)
    assert StoredRun(first.folder).over and read_run(first.folder).summary.exit_code == 130


def test_a_client_that_shows_no_curves_keeps_no_points(tmp_path: Path) -> None:
    """Metrics are read when somebody asks for them, and then all that were written."""
    task = TaskId("worker", 0)
    rows = [Metric(task, "h", {"loss": 1.0}, time=1.0 + number) for number in range(100)]
    folder = RunFolder(tmp_path)
    folder.metrics.write_bytes(b"".join(map(encode, rows)))
    now = Views(RunView(folder.run_id, "r", RunPhase.RUNNING, 0.0))
    client = RunClient(folder, now, None)
    seen = threading.Event()
    client.subscribe(lambda _: seen.set())
    assert seen.wait(PATIENCE)  # it finds no launcher, and goes on
    assert not client._metrics.latest
    deadline = time.monotonic() + PATIENCE
    while len(client.series(TaskId("worker", 0))) < 100 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(client.series(TaskId("worker", 0))) == 100
    client.close()
    closed = RunClient(folder, now, None)
    closed.close()
    assert len(closed.series(TaskId("worker", 0))) == 100


RUN_ID = "exec-20260101-000000-abcd"
MARKS_BLANK = """\
import ctypes
fields = open("/proc/self/stat").read().rpartition(")")[2].split()
begins, ends = map(int, (fields[45], fields[48]))
whole = ctypes.string_at(begins, ends - begins)
ctypes.memset(begins, 0, len(whole))
print("blank", flush=True)
input()
ctypes.memmove(begins, whole, len(whole))
print("whole", flush=True)
input()
"""
"""Looks like a process that is in an exec, and then like one whose exec is done: its arguments and
its environment lie one behind the other."""


def test_a_process_seen_in_an_exec_belongs_to_its_task_at_the_next_look() -> None:
    """Given a process of a run that shows neither arguments nor an environment, when it shows one
    at a later look, then it belongs to the task that is named there."""
    tracker = ProcessTracker(RUN_ID)
    environ = {**os.environ, "TFMUX_TASK": f"{RUN_ID}/worker:0/1;"}
    argv = [sys.executable, "-c", MARKS_BLANK]
    with subprocess.Popen(
        argv,
        env=environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            assert process.stdout.readline() == "blank\n"
            tracker.scan()
            process.stdin.write("\n")
            process.stdin.flush()
            assert process.stdout.readline() == "whole\n"
            assert tracker.scan()[process.pid][1] == "worker:0"
        finally:
            process.kill()
