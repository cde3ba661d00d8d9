"""A run's state machine under test: events in, instructions out, a second after each other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from launcher.cluster.read import loads
from launcher.ids import TaskId
from launcher.plan.facts import HostFacts
from launcher.run import events as ev
from launcher.run.events import Event, ReadyTimeout, ShutdownTimeout, Timer
from launcher.run.instructions import End, Instruction, KillHost, ReleaseHost, SetTimer, StartTask
from launcher.run.machine import RunStateMachine
from launcher.run.shutdown import KILL_PATIENCE
from launcher.run.snapshot import Failure, HostReceipt, Snapshot, TaskView
from launcher.run.states import Outcome, RunPhase, TaskState

CLUSTER = """
name = "t"
[hosts.a]
ssh = "a"
[hosts.b]
ssh = "b"
[jobs.ps]
tasks = ["a:2222"]
[jobs.worker]
tasks = ["a:2223", "b:2222", "b:2223"]
[run]
command = ["x"]
grace = 5
lease = 60
"""


FACTS = {"a": HostFacts(home="/h"), "b": HostFacts(home="/h")}


def name(text: str) -> TaskId:
    return TaskId.parse(text)


class RunDriver:
    """A run that is told what happens, a second after each other."""

    def __init__(self, settings: str = "", jobs: str = "", text: str = CLUSTER) -> None:
        cluster = loads(text + settings + jobs, "cluster.toml", Path("/srv"))
        self.now = 1000.0
        self.run = RunStateMachine(cluster, "r", self.now)

    def feed(self, kind: type[Event], *words: Any, **fields: Any) -> list[Instruction]:
        """Lets something happen; returns what the run wants done."""
        self.now += 1
        out = self.run.handle(kind(self.now, *words, **fields))
        self.run.validate()
        return out

    def start(self, *tasks: str, attempt: int = 1) -> list[Instruction]:
        """The instructions that start an attempt of each."""
        out: list[Instruction] = []
        for task in map(name, tasks):
            out.append(StartTask(self.run.data.plan.task(task), attempt))
            out.append(SetTimer(ReadyTimeout(task, attempt), self.run.data.plan.start_timeout))
        return out

    def shut_down(self, *hosts: str) -> list[Instruction]:
        """The instructions that end everything, with the grace."""
        kills = [KillHost(host, None, 5.0, final=True) for host in hosts or ("a", "b")]
        return [*kills, SetTimer(ShutdownTimeout(), 5.0 + KILL_PATIENCE)]

    def end(
        self, outcome: Outcome, code: int, hosts: Sequence[str] = ("a", "b")
    ) -> list[Instruction]:
        """The instructions at the end of a run whose hosts have confirmed."""
        return [*map(ReleaseHost, hosts), End(outcome, code)]

    @property
    def seen(self) -> Snapshot:
        return self.run.snapshot()

    @property
    def failure(self) -> Failure:
        assert self.seen.first_failure is not None
        return self.seen.first_failure

    def phase(self) -> RunPhase:
        return self.seen.state

    def task(self, task: str) -> TaskView:
        return self.seen.task(name(task))

    def state(self, task: str) -> TaskState:
        return self.task(task).state

    def up(self, *hosts: str, tasks: Sequence[ev.HeldTask] = (), agent_exit: str = "") -> Any:
        return [i for host in hosts for i in self.feed(ev.HostUp, host, tuple(tasks), agent_exit)]

    def lost(self, host: str, lease: float = 60.0) -> list[Instruction]:
        return self.feed(ev.HostLost, host, "silence", self.now + 1 + lease)

    def checked(self) -> None:
        """All hosts up and checked."""
        self.feed(ev.Begin)
        self.up("a", "b")
        self.feed(ev.HostsChecked, FACTS)

    def staged(self) -> list[Instruction]:
        """All hosts up, checked and staged; the first stage starts."""
        self.checked()
        return [i for host in ("a", "b") for i in self.feed(ev.Staged, host)]

    def begun(self, *tasks: str, attempt: int = 1) -> list[Instruction]:
        return [
            i
            for n, t in enumerate(tasks, 100)
            for i in self.feed(ev.TaskStarted, name(t), attempt, n)
        ]

    def ready(self, *tasks: str, attempt: int = 1) -> list[Instruction]:
        """Tasks start and become ready, one after the other."""
        out = []
        for task in tasks:
            self.begun(task, attempt=attempt)
            out += self.feed(ev.TaskReady, name(task), attempt)
        return out

    def running(self) -> None:
        """The whole cluster is ready."""
        self.staged()
        self.ready("ps:0", "worker:0", "worker:1", "worker:2")

    def exited(
        self,
        task: str,
        status: int | None = 0,
        signal: str | None = None,
        attempt: int = 1,
        **fields: Any,
    ) -> list[Instruction]:
        return self.feed(ev.TaskExited, name(task), attempt, status, signal, **fields)

    def receipt(self, host: str, tasks: Sequence[str] | None = None, **fields: Any) -> Any:
        named = None if tasks is None else tuple(name(t) for t in tasks)
        receipt = HostReceipt(host, **{"confirmed": tasks is None, **fields})
        return self.feed(ev.ReceiptReceived, receipt, named)

    def confirmed(self) -> Any:
        """Both hosts confirm that nothing is left, one after the other."""
        return self.receipt("a") + self.receipt("b")

    def fired(self, timer: Timer) -> list[Instruction]:
        return self.feed(ev.TimerFired, timer)


def staged(settings: str = "", jobs: str = "", text: str = CLUSTER) -> RunDriver:
    """A run whose hosts are ready for its first stage."""
    driver = RunDriver(settings, jobs, text)
    driver.staged()
    return driver


def running(settings: str = "", jobs: str = "") -> RunDriver:
    """A run whose whole cluster is ready."""
    driver = RunDriver(settings, jobs)
    driver.running()
    return driver


def kill(host: str, task: str, grace: float) -> Instruction:
    return KillHost(host, (name(task),), grace)


def starts(out: Sequence[Instruction]) -> list[tuple[str, int]]:
    return [(str(i.task.id), i.attempt) for i in out if isinstance(i, StartTask)]


def kills(out: Sequence[Instruction]) -> list[tuple[str, list[str] | None, float]]:
    return [
        (i.host, None if i.tasks is None else [str(t) for t in i.tasks], i.grace)
        for i in out
        if isinstance(i, KillHost)
    ]


def timers(out: Sequence[Instruction]) -> dict[Timer, float]:
    return {i.timer: i.seconds for i in out if isinstance(i, SetTimer)}


def ends(out: Sequence[Instruction]) -> list[tuple[Outcome, int]]:
    return [(i.outcome, i.exit_code) for i in out if isinstance(i, End)]


def held(task: str, attempt: int = 1) -> ev.HeldTask:
    return ev.HeldTask(name(task), attempt)
