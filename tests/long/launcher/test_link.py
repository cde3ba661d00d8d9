"""Links to hosts: an agent that says half or nonsense, a disk that is full, hundreds of hosts."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import FrameType

import pytest

from launcher.agent import wire
from launcher.cluster.read import loads
from launcher.errors import HostError
from launcher.hosts import link
from launcher.hosts.bootstrap import LinkSettings
from launcher.hosts.frames import Kill, KillReceipt
from launcher.hosts.link import Link, Stored
from launcher.hosts.transport import Transport
from launcher.ids import TaskId
from launcher.run import events as ev
from launcher.run.events import Event, ReadyTimeout
from launcher.run.machine import RunStateMachine
from launcher.run.snapshot import HostReceipt
from launcher.run.states import RunPhase
from tests.support.agent_frames import RULES
from tests.support.link_ends import Ears, Scripted, Sink
from tests.support.patience import until
from tests.support.streams import changes

# A host's link alone: an agent that says half, too much or nonsense, and a disk that is full.

TASK = TaskId("worker", 0)
WELCOME = wire.encode(
    wire.WELCOME,
    {"version": wire.VERSION, "pid": 7, "home": "/h", "stage": "/s", "environ": {}, "tasks": []},
)


class Line:
    """A link, its ears, its sink and its transports, running."""

    def __init__(self, folder: Path) -> None:
        self.ears = Ears()
        self.transports: list[Scripted] = []
        self.sink = Sink(folder)
        tasks = {TASK: 1 << 40}
        settings = LinkSettings("run", "h", RULES, local=False, tasks=tasks)
        self.link = Link(settings, self.open, self.sink, self.ears)
        self.task = asyncio.create_task(self.link.run())

    async def open(self, run_id: str, nonce: str, beside: Transport | None = None) -> Transport:
        self.transports.append(Scripted(nonce))
        return self.transports[-1]

    async def up(self) -> Scripted:
        """The handshake is over."""
        await until(lambda: self.transports)
        self.transports[0].said.put_nowait(WELCOME)
        await self.ears.wait("link_up")
        self.link.follow(TASK, 0, 1 << 40)
        return self.transports[0]

    async def close(self) -> None:
        await self.link.aclose()
        await self.task


def granted(transport: Scripted) -> list[int]:
    """The credits that the launcher has given."""
    return [f.json()["up_to"] for f in transport.frames() if f.type == wire.CREDIT]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"\0\0\0\5" + bytes([wire.WELCOME]) + b"[1,2]", "WELCOME: Input should be an object"),
        (b"\xff\xff\xff\xff" + bytes([wire.WELCOME]), "4294967295 bytes"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "not from an agent"),
        (wire.encode(wire.WELCOME), "h broke the protocol: WELCOME: version: Field required"),
        (wire.encode(wire.WELCOME, {"version": wire.VERSION}), "WELCOME: pid: Field required"),
        (wire.encode(wire.ERROR, {"text": "this agent speaks version 1"}), "speaks version 1"),
        (b"", "did not answer the handshake: the shell complains"),
    ],
)
async def test_what_is_no_welcome_is_refused_with_the_reason(
    tmp_path: Path, answer: bytes, reason: str
) -> None:
    """An oversized, cut, wrong or missing WELCOME: one clear error, no crash, no hang."""
    line = Line(tmp_path)
    await until(lambda: line.transports)
    line.transports[0].said.put_nowait(answer)
    _, error = await line.ears.wait("link_refused")
    assert isinstance(error, HostError)
    assert reason in error.reason and error.reason.isprintable()
    await line.task


async def test_half_a_welcome_and_then_silence_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The login worked, some bytes came, and then nothing: the link does not wait for ever."""
    monkeypatch.setattr(link, "START_SECONDS", 0.5)
    line = Line(tmp_path)
    await until(lambda: line.transports)
    line.transports[0].said.put_nowait(WELCOME[:-3])
    _, error = await line.ears.wait("link_refused")
    assert "did not answer the handshake" in error.reason
    await line.task


async def test_log_bytes_out_of_order_end_the_link(tmp_path: Path) -> None:
    """A gap in a log is no accident, for the channel keeps the order: nothing of it is stored,
    and the host is not connected to again."""
    line = Line(tmp_path)
    transport = await line.up()
    transport.said.put_nowait(wire.encode_data(0, 0, b"abc"))
    transport.said.put_nowait(wire.encode_data(0, 7, b"hij"))
    _, reason = await line.ears.wait("link_lost")
    assert "h broke the protocol: DATA of worker:0 at byte 7 instead of 3" in reason
    await line.task
    assert len(line.transports) == 1 and line.sink.size(TASK) == 3


async def test_a_receipt_behind_bytes_that_are_not_stored_is_heard(tmp_path: Path) -> None:
    """While the sink does not say that bytes are on disk there is no new credit; what comes
    behind them does not wait; when they are, the credit goes on."""
    line = Line(tmp_path)
    line.sink.takes = False
    transport = await line.up()
    chunk = bytes(64 * 1024)
    for number in range(16):
        transport.said.put_nowait(wire.encode_data(0, number * len(chunk), chunk))
    line.link.send(Kill(1, None, 0.0))
    receipt = {"ids": [1], "tasks": None, "signalled": 2, "survivors": [], "seconds": 0.1}
    receipt["confirmed"] = True
    transport.said.put_nowait(wire.encode(wire.RECEIPT, receipt))
    host, said = await line.ears.wait("agent_said")
    assert host == "h" and isinstance(said, KillReceipt)
    assert (said.ids, said.tasks, said.signalled) == ((1,), None, 2)
    assert len(line.sink.waiting) == 16 and line.sink.size(TASK) == 0
    assert granted(transport) == [link.WINDOW]
    line.sink.store_waiting()
    assert line.sink.size(TASK) == 16 * len(chunk)
    assert granted(transport)[-1] == link.WINDOW + 16 * len(chunk)
    await line.close()


async def test_a_link_that_is_closed_while_it_handles_frames_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when another machine takes the run over under a flood: it is no error."""
    line = Line(tmp_path)
    transport = await line.up()
    closing: list[asyncio.Task[None]] = []

    def store(task: TaskId, offset: int, data: bytes, stored: Stored) -> None:
        if not closing:
            closing.append(asyncio.create_task(line.link.aclose()))

    monkeypatch.setattr(line.sink, "store", store)
    frames = [wire.encode_data(0, number, b"x") for number in range(16)]
    transport.said.put_nowait(b"".join(frames))
    await line.task
    await closing[0]


async def test_bytes_of_an_earlier_connection_give_no_credit_to_the_next(tmp_path: Path) -> None:
    """They are forgotten, and come again from where the file ends; one that was being stored at
    that moment does not count twice."""
    line = Line(tmp_path)
    line.sink.takes = False
    first = await line.up()
    first.said.put_nowait(wire.encode_data(0, 0, b"x" * 1000))
    await until(lambda: line.sink.waiting)
    (_, _, _, stored) = line.sink.waiting[0]
    await first.aclose()
    await until(lambda: len(line.transports) == 2)
    await until(lambda: line.transports[1].heard)
    assert not line.sink.waiting
    line.transports[1].said.put_nowait(WELCOME)
    await until(lambda: granted(line.transports[1]))
    stored(link.WINDOW)
    assert granted(line.transports[1]) == [link.WINDOW]
    await line.close()


async def test_a_kill_goes_out_at_once(tmp_path: Path) -> None:
    """Whatever waits to be read, a kill is on its way when `send` returns; on a link that is
    down it is refused, for whoever has it to try again."""
    line = Line(tmp_path)
    assert not line.link.send(Kill(1, None, 0.0))
    transport = await line.up()
    for number in range(100):
        transport.said.put_nowait(wire.encode_data(0, number, b"x"))
    assert line.link.send(Kill(2, None, 0.0))
    assert [f.json()["id"] for f in transport.frames() if f.type == wire.KILL] == [2]
    await line.close()


async def test_a_busy_loop_is_no_silence_of_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a host has said meanwhile is heard late; the connection stays."""
    monkeypatch.setattr(LinkSettings, "beat", 0.1)
    line = Line(tmp_path)
    transport = await line.up()
    line.link.last_heard -= 0.5
    beats = len([f for f in transport.frames() if f.type == wire.BEAT])
    time.sleep(1.5)  # noqa: ASYNC251

    def goes_on() -> bool:
        more = len([f for f in transport.frames() if f.type == wire.BEAT]) - beats
        if more:
            transport.said.put_nowait(wire.encode(wire.PONG, {}))
        return more > 2

    await until(goes_on)
    assert line.link.connected and len(line.transports) == 1
    await line.close()


# Growth of the launcher's work with the number of hosts, in calls: seconds depend on load.

TASKS_A_HOST = 8


def life(run: RunStateMachine, *, killed: bool) -> Iterator[Event]:
    """The events of a run from its beginning to the last receipt."""
    hosts, tasks = run.data.plan.hosts, run.data.plan.tasks
    yield ev.Begin(1.0)
    yield from (ev.HostUp(1.0, host.name, (), "") for host in hosts)
    yield ev.HostsChecked(1.0, {})
    yield from (ev.Staged(1.0, host.name) for host in hosts)
    yield from (ev.TaskStarted(2.0, task.id, 1, 100, 0) for task in tasks)
    if killed:
        yield ev.KillAll(3.0, True)
    yield from (ev.TaskExited(3.0, task.id, 1, 0, None) for task in tasks)
    yield from (
        ev.ReceiptReceived(4.0, HostReceipt(host.name, 8, confirmed=True), None) for host in hosts
    )


def calls(work: Callable[[], object]) -> int:
    """Number of calls that something makes."""
    count = 0

    def add(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(add)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


def live(hosts: int, *, killed: bool) -> None:
    """A whole run, from its file on."""
    names = [f"h{number}" for number in range(hosts)]
    places = [f"{name}:{2222 + port}" for name in names for port in range(TASKS_A_HOST)]
    text = "".join(f'[hosts.{name}]\nssh = "{name}"\ngpus = 8\n' for name in names)
    text += f'[jobs.worker]\ntasks = {json.dumps(places)}\n[run]\ncommand = ["x"]\n'
    text += 'success = "all"\n[start.ready]\nworker = "started"\n'
    run = RunStateMachine(loads(text, "c", Path("/")), "run-1", 1.0)
    for event in life(run, killed=killed):
        run.handle(event)
        changes(run, event.time)
    assert run.data.phase is RunPhase.ENDED


@pytest.mark.parametrize(("killed", "most"), [(True, 4.3), (False, 6.4)])
def test_four_times_the_hosts_are_about_four_times_the_work(killed: bool, most: float) -> None:
    """Planning, starting and a kill look at each task a number of times that does not grow; each
    end by itself looks at the tasks that are left."""
    few, many = (calls(partial(live, hosts, killed=killed)) for hosts in (15, 60))
    assert many < most * few


def serving(workers: int, rules: str = "") -> RunStateMachine:
    """A run with a chief of a job of its own and many workers on one host, all ready."""
    places = json.dumps([f"h:{2300 + number}" for number in range(workers)])
    text = '[hosts.h]\nssh = "h"\n[jobs.chief]\ntasks = ["h:2222"]\n[jobs.worker]\n'
    text += f'tasks = {places}\n[run]\ncommand = ["x"]\n{rules}'
    text += '[start.ready]\nworker = "started"\nchief = "started"\n'
    run = RunStateMachine(loads(text, "c", Path("/")), "run-1", 1.0)
    run.handle(ev.Begin(1.0))
    run.handle(ev.HostUp(1.0, "h", (), ""))
    run.handle(ev.HostsChecked(1.0, {}))
    run.handle(ev.Staged(1.0, "h"))
    for task in run.data.plan.tasks:
        run.handle(ev.TaskStarted(2.0, task.id, 1, 100, 0))
    assert run.data.phase is RunPhase.RUNNING
    return run


def end_all(run: RunStateMachine, event: Callable[[TaskId], Event]) -> None:
    """Feeds one event for each worker."""
    for task in run.data.plan.tasks:
        if task.id.job == "worker":
            run.handle(event(task.id))


def test_tasks_that_are_ready_are_awaited_no_more() -> None:
    """Their time limits end together, two minutes after the start: nothing is recorded of them."""
    run = serving(50)
    timers = [ReadyTimeout(task.id, 1) for task in run.data.plan.tasks]
    assert not any(map(run.data.awaits, timers))
    run.handle(ev.Restart(4.0, TaskId("worker", 3), hard=True))
    confirmed = HostReceipt("h", confirmed=True)
    run.handle(ev.ReceiptReceived(5.0, confirmed, (TaskId("worker", 3),)))
    assert run.data.awaits(ReadyTimeout(TaskId("worker", 3), 2))
    assert not run.data.awaits(ReadyTimeout(TaskId("worker", 3), 1))


def test_many_failures_are_counted_below_the_first() -> None:
    """Under `keep` all may fail: a state names a hundred."""
    run = serving(300, 'on_failure = "keep"\n')
    end_all(run, lambda task: ev.TaskExited(3.0, task, 1, 1, None))
    run.validate()
    failure = run.snapshot().first_failure
    assert failure is not None and failure.task == TaskId("worker", 0)
    assert failure.others == tuple(TaskId("worker", number) for number in range(1, 101))
    assert failure.unlisted == 300 - 101
