"""A run whose hosts are agents in memory: each answers as an honest one, and lies when told to.

The launcher's shell and links are real; only login and wire are replaced.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from launcher.agent import wire
from launcher.cluster.read import loads
from launcher.errors import UnreachableError
from launcher.hosts import bootstrap
from launcher.hosts.transport import Transport, TransportFactory
from launcher.ids import TaskId
from launcher.plan.run_plan import HostPlan
from launcher.process import host_links
from launcher.process.run_shell import Beginning, RunShell
from launcher.run import events as ev
from launcher.run import shutdown
from launcher.run.machine import RunStateMachine
from launcher.run.snapshot import Snapshot, TaskView
from launcher.run.states import HostState, TaskState
from launcher.store.run_writer import RunWriter
from launcher.store.runs import RunFolder
from launcher.store.stream import Line
from tests.support.agent_frames import Body, facts, welcome
from tests.support.cluster_texts import cluster_text
from tests.support.crash import failed
from tests.support.patience import until
from tests.support.short_programs import Obliging

CLUSTER = cluster_text(
    {"ps": "honest:2222", "worker": "honest:2223 liar:2222 liar"},
    "two",
    {"honest": {"ssh": "honest"}, "liar": {"ssh": "liar"}},
    command=["x"],
    workdir="",
    grace=0.5,
    lease=60,
    log_limit=100000,
    start={"ready": {"ps": "started", "worker": "started"}},
)


class Agent(Transport):
    """One connection to a host's agent, whose other side is the test."""

    def __init__(self, host: Host, nonce: str) -> None:
        self.host = host
        self.closed = False
        self.heard: list[wire.RawFrame] = []
        self._decoder = wire.Decoder()
        self._before: bytes | None = b""
        self._said: asyncio.Queue[bytes] = asyncio.Queue()
        self._said.put_nowait(bootstrap.marker(nonce) + b"\n" + bootstrap.EVERY_BYTE)

    async def read(self) -> bytes:
        return b"" if self.closed else await self._said.get()

    def write(self, data: bytes) -> None:
        if self.closed:
            return
        for frame in self._decoder.feed(self._frames_of(data)):
            self.heard.append(frame)
            self.host.answer(self, frame)

    async def drain(self) -> None:
        return

    async def aclose(self) -> None:
        self.closed = True
        self._said.put_nowait(b"")

    @property
    def complaint(self) -> str:
        return ""

    def send(self, kind: int, body: Body) -> None:
        """Sends a frame to the launcher."""
        self._said.put_nowait(wire.encode(kind, body))

    def raw(self, data: bytes) -> None:
        """Sends bytes to the launcher."""
        self._said.put_nowait(data)

    def _frames_of(self, data: bytes) -> bytes:
        """What follows the agent's source, which comes first."""
        if self._before is None:
            return data
        self._before += data
        loader = 8 + int(self._before[:8])
        packed = int(self._before[loader : loader + 8])
        rest = self._before[loader + 8 + packed :]
        self._before = None
        return rest


class Host:
    """A host and its agent's honest answers; `answers` has others by the kind of the question."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.connections: list[Agent] = []
        self.answers: dict[int, Callable[[Agent, Body], None]] = {}
        self.unreachable = False

    @property
    def agent(self) -> Agent:
        """The latest connection."""
        return self.connections[-1]

    async def open(self, run_id: str, nonce: str, beside: Transport | None = None) -> Transport:
        """Stands in for a login, and for a session in which files would come."""
        if self.unreachable:
            raise UnreachableError(self.name, "no route")
        if beside is not None:
            return Obliging(nonce)
        self.connections.append(Agent(self, nonce))
        return self.agent

    def answer(self, agent: Agent, frame: wire.RawFrame) -> None:
        """Answers a frame of the launcher."""
        body = frame.json()
        if frame.type in self.answers:
            self.answers[frame.type](agent, body)
            return
        reply = {"id": body.get("id")}
        match frame.type:
            case wire.HELLO:
                agent.send(wire.WELCOME, welcome())
            case wire.BEAT:
                agent.send(wire.PONG, {})
            case wire.PORTS:
                agent.send(wire.REPLY, {**reply, "busy": [], "owners": []})
            case wire.STATS:
                figures = {"cpu": 0.5, "memory_total": 2, "memory_used": 1, "gpus": []}
                agent.send(wire.REPLY, {**reply, **figures, "tasks": {}})
            case wire.GPUS:
                agent.send(wire.REPLY, {**reply, "gpus": [], "why": ""})
            case wire.START:
                said = facts(body["task"], attempt=body["attempt"])
                agent.send(wire.STARTED, said)
            case wire.KILL:
                receipt = {"ids": [body["id"]], "tasks": body.get("tasks"), "signalled": 1}
                receipt["confirmed"] = body.get("tasks") is None
                agent.send(wire.RECEIPT, {**receipt, "survivors": [], "seconds": 0.1})
            case wire.LEAVE:
                agent.send(wire.GONE, {"by": ""})


class Writer(RunWriter):
    """Keeps the records for a test, too."""

    def __init__(
        self, records: list[Line], folder: RunFolder, failed: Callable[[BaseException], None]
    ) -> None:
        super().__init__(folder, failed)
        self._records = records

    def put(self, line: Line) -> None:
        """Takes a record."""
        self._records.append(line)
        super().put(line)


class Bench:
    """A run on the hosts `honest` and `liar`, and what the launcher makes of it."""

    def __init__(self, folder: Path, cluster: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.hosts = {name: Host(name) for name in ("honest", "liar")}
        self.folder = folder / "run"
        self.folder.mkdir()
        self.records: list[Line] = []

        def transport_factory(host: HostPlan, _: object) -> TransportFactory:
            return self.hosts[host.name].open

        monkeypatch.setattr(host_links, "transport_factory", transport_factory)
        monkeypatch.setattr(shutdown, "KILL_PATIENCE", 0.2)
        now = time.time()
        machine = RunStateMachine(loads(cluster, "two.toml", folder), "two-1", now)
        made = RunFolder(self.folder)
        self.shell = RunShell(made, machine, Beginning(ev.Begin(now)), failed)
        self.shell.writer = Writer(self.records, made, partial(failed, "records"))
        self.shell.bulkhead.close()  # no process reads what hosts say

    @property
    def liar(self) -> Host:
        return self.hosts["liar"]

    @property
    def honest(self) -> Host:
        return self.hosts["honest"]

    @property
    def seen(self) -> Snapshot:
        return self.shell.machine.snapshot()

    def task(self, name: str) -> TaskView:
        return self.seen.task(TaskId.parse(name))

    def state(self, host: str) -> tuple[HostState, str]:
        """A host's state and its reason."""
        view = next(view for view in self.seen.hosts if view.name == host)
        return view.state, view.reason

    async def until(self, condition: Callable[[], object], what: str) -> None:
        """Waits for something that the run has no event for."""
        try:
            await until(condition, what)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.seen}") from None

    async def running(self) -> None:
        """All tasks have started, and the liar's logs are open."""
        await self.until(lambda: str(self.seen.state) == "running", "the run runs")

    async def lost(self) -> str:
        """The liar has been cut off; why."""
        await self.until(lambda: self.state("liar")[0] is not HostState.UP, "the liar is lost")
        return self.state("liar")[1]

    async def settle(self, host: str) -> None:
        """Whatever a host has said so far has been read: its next answer to a beat has come."""
        link = self.shell.links[host]
        heard = link.last_heard
        self.hosts[host].agent.send(wire.PONG, {})
        await self.until(lambda: link.last_heard > heard or link.closed, f"{host} is heard")


@asynccontextmanager
async def bench(
    folder: Path, monkeypatch: pytest.MonkeyPatch, cluster: str = CLUSTER
) -> AsyncIterator[Bench]:
    """A run that has been begun; it is killed at the end if it still goes on."""
    made = Bench(folder, cluster, monkeypatch)
    life = asyncio.create_task(made.shell.main())
    try:
        yield made
    finally:
        life.cancel()
        await asyncio.gather(life, return_exceptions=True)


RECEIPT = {
    "ids": [0],
    "tasks": None,
    "signalled": 3,
    "survivors": [],
    "seconds": 0.1,
    "confirmed": True,
}


def untouched(seen: Bench) -> bool:
    """The honest host and its tasks are as they were."""
    tasks = [seen.task("ps:0"), seen.task("worker:0")]
    return seen.state("honest")[0] is HostState.UP and all(
        task.state is TaskState.READY and task.exit_code is None and task.attempt == 1
        for task in tasks
    )
