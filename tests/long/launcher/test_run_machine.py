"""Any events in any order: what holds of each run, and no start behind an end or in a cut."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from launcher.agent import wire
from launcher.cluster.read import loads
from launcher.hosts.transport import Transport
from launcher.ids import TaskId
from launcher.plan.facts import HostFacts
from launcher.printable import printable
from launcher.run import events as ev
from launcher.run import instructions as do
from launcher.run.gpus import GpuSample
from launcher.run.machine import RunStateMachine
from launcher.run.snapshot import AllocatedNode, HostReceipt, Metric, RunView, Survivor
from launcher.run.states import AT_WORK, HostState, Purpose, RunPhase, TaskState
from launcher.run.views import Views
from launcher.store.stream import Summary, encode, parse
from tests.support.agent_frames import Body, facts, welcome
from tests.support.budgets import examples, variants
from tests.support.scripted import CLUSTER, Agent, Bench, Host, bench
from tests.support.short_programs import Talker

# Any sequence of events: the run never contradicts itself, and its stream gives it back.

SOURCED = """
name = "t"
{source}
[jobs.ps]
tasks = ["node0:2222"]
[jobs.chief]
tasks = ["node0:2224"]
[jobs.worker]
tasks = ["node1:2222", "node1:auto"]
[jobs.board]
tasks = ["node1:6006"]
in_cluster = false
command = ["y"]
[start]
warm = {warm}
[start.ready]
worker = {{ after = 1.0 }}
[run]
command = ["python3", "x"]
on_failure = "{on_failure}"
on_disconnect = "{on_disconnect}"
success = "{success}"
max_restarts = 2
"""
NODES = {name: AllocatedNode(f"sl-{name}", ("srun", name)) for name in ("node0", "node1")}
HOSTS = st.sampled_from(list(NODES))
TASKS = st.sampled_from(
    [TaskId("ps", 0), TaskId("chief", 0), TaskId("worker", 0), TaskId("worker", 1)]
)
RARELY = st.integers(0, 9).map(lambda number: number == 9)
ATTEMPTS = st.integers(0, 3)
STATUS = st.sampled_from([(0, None), (1, None), (None, "TERM"), (None, None)])
TEXT = st.sampled_from(["", "no route", printable("\x1b[2J\n\ud800")])
RECEIPTS = st.one_of(
    st.builds(HostReceipt, HOSTS, confirmed=st.booleans()),
    st.builds(HostReceipt, HOSTS, survivors=st.just((Survivor(7, "stuck", "D"),))),
)
HELD = st.lists(st.builds(ev.HeldTask, TASKS, ATTEMPTS, st.booleans()), max_size=4).map(tuple)
TIMERS = st.one_of(
    st.builds(ev.ReadyTimeout, TASKS, ATTEMPTS),
    st.builds(ev.ReadyDelay, TASKS, ATTEMPTS),
    st.builds(ev.RestartDelay, TASKS, ATTEMPTS),
    st.builds(ev.RestartTimeout, ATTEMPTS),
    st.builds(ev.LeaseEnd, HOSTS),
    st.just(ev.ShutdownTimeout()),
)


class RunMachine(RuleBasedStateMachine):
    """A run whose hosts mostly do what they are told, and sometimes anything."""

    source = "\n".join(f"[hosts.{name}]\nssh = '{name}'" for name in NODES)
    """Tables of the cluster file that say which hosts there are."""

    @initialize(
        on_failure=st.sampled_from(["stop", "keep", "restart", "restart-all", "restart-all"]),
        on_disconnect=st.sampled_from(["stop", "keep"]),
        success=st.sampled_from(["chief", "all"]),
        warm=st.sampled_from(["false", '["tensorflow"]']),
        running=st.integers(0, 5).map(bool),
    )
    def begin(
        self, on_failure: str, on_disconnect: str, success: str, warm: str, running: bool
    ) -> None:
        text = SOURCED.format(
            source=self.source,
            on_failure=on_failure,
            on_disconnect=on_disconnect,
            success=success,
            warm=warm,
        )
        self.cluster = loads(text, "t.toml", Path("/srv"))
        self.now = 1000.0
        self.run = RunStateMachine(self.cluster, "r", self.now)
        self.kept = Views(RunView("r", "r", RunPhase.CONNECTING, 0.0))
        """The run as its stream tells it."""
        self.open: list[do.Instruction] = []
        """Instructions that nobody has answered."""
        self.timers: list[ev.Timer] = []
        self.unproven: set[str] = set()
        """Hosts that have not proven that nothing is left of the attempt that is being ended."""
        self.feed(ev.Begin(self.now))
        if running:
            self.start_all()

    def start_all(self) -> None:
        """Brings the run so far that its tasks run."""
        for host in NODES:
            self.comes_up(host)
        while self.open:
            self.answer(0, ok=True)

    def feed(self, event: ev.Event) -> None:
        if isinstance(event, ev.TimerFired) and event.timer in self.timers:
            self.timers.remove(event.timer)
        if isinstance(event, ev.ReceiptReceived):
            self.note_proof(event)
        due = self.run.data.run.restart_due
        instructions = self.run.handle(event)
        if self.run.data.run.restart_due and not due:
            self.unproven = set(NODES)
        for instruction in instructions:
            if isinstance(instruction, do.StartTask) and instruction.task.role.in_cluster:
                assert not self.unproven, "an attempt is started beside the one before it"
            if isinstance(instruction, do.SetTimer):
                if instruction.timer not in self.timers:
                    self.timers.append(instruction.timer)
            else:
                self.open.append(instruction)
        for record in self.run.data.pop_changed(self.now):
            line = parse(encode(record))
            assert not isinstance(line, Summary | Metric | GpuSample)
            self.kept.take(line)

    def note_proof(self, event: ev.ReceiptReceived) -> None:
        """A host has looked while all its tasks were being ended for the next attempt."""
        receipt = event.receipt
        own = {t for t in self.run.data.tasks if self.run.data.tasks[t].host == receipt.host}
        of_all = event.tasks is None or set(event.tasks) >= {t for t in own if t.job != "board"}
        gone = not receipt.survivors and not receipt.doubt
        if of_all and gone and (receipt.confirmed or event.tasks is not None):
            self.unproven.discard(receipt.host)

    def later(self) -> float:
        self.now += 0.5
        return self.now

    @invariant()
    def is_consistent(self) -> None:
        if hasattr(self, "run"):
            self.run.validate()

    @invariant()
    def is_told_by_its_stream(self) -> None:
        """Whoever folds the records has the same views, but for who is waited for."""
        if not hasattr(self, "run"):
            return
        views, kept = self.run.data, self.kept
        assert (kept.tasks, kept.hosts, kept.facts) == (views.tasks, views.hosts, views.facts)
        assert kept.notes == views.notes
        assert kept.receipt == views.receipt or views.receipt is None
        assert replace(kept.run, waiting="") == replace(views.run, waiting="")

    @invariant()
    def waits_for_no_start_without_end(self) -> None:
        """A task that is starting where it can be seen has a time limit."""
        if not hasattr(self, "run") or self.run.data.phase not in AT_WORK:
            return
        for view in self.run.snapshot().tasks:
            seen = self.run.data.hosts[view.host].state is HostState.UP
            if seen and view.state is TaskState.STARTING:
                assert ev.ReadyTimeout(view.id, view.attempt) in self.timers, view

    # --- hosts that do what they are told -------------------------------------------------

    @rule(host=HOSTS)
    def comes_up(self, host: str) -> None:
        views = [view for view in self.run.snapshot().tasks if view.host == host and view.attempt]
        warming = TaskState.WARMING
        held = tuple(ev.HeldTask(v.id, v.attempt, v.state is warming) for v in views)
        self.feed(ev.HostUp(self.later(), host, held))

    @precondition(lambda self: self.run.data.phase is RunPhase.CONNECTING)
    @rule()
    def begins(self) -> None:
        """Its first tasks start, or those go on that an earlier launcher has started."""
        for host in self.run.data.plan.hosts:
            self.comes_up(host.name)
        while self.open and self.run.data.phase in (RunPhase.CONNECTING, RunPhase.STAGING):
            self.answer(0, ok=True)

    @precondition(lambda self: self.run.data.phase is RunPhase.RESTARTING)
    @rule(proven=st.integers(0, 3).map(bool))
    def ends_all_tasks(self, proven: bool) -> None:
        """The tasks of an attempt end, the hosts prove it or cannot, and then ports are picked."""
        while self.open and self.run.data.phase is RunPhase.RESTARTING:
            self.answer(0, proven or not isinstance(self.open[0], do.KillHost))

    @rule(host=HOSTS)
    def is_cut_off_for_long(self, host: str) -> None:
        """All that is starting had to be ready meanwhile."""
        self.feed(ev.HostLost(self.later(), host, "no route", self.now + 600))
        for timer in [timer for timer in self.timers if isinstance(timer, ev.ReadyTimeout)]:
            self.feed(ev.TimerFired(self.later(), timer))
        self.comes_up(host)

    @precondition(lambda self: bool(getattr(self, "open", None)))
    @rule(data=st.data(), ok=st.integers(0, 9).map(lambda number: number > 0))
    def answers(self, data: st.DataObject, ok: bool) -> None:
        self.answer(data.draw(st.integers(0, len(self.open) - 1)), ok)

    def answer(self, at: int, ok: bool) -> None:
        now = self.later()
        match self.open.pop(at):
            case do.CheckHosts():
                port = {TaskId("worker", 1): 4711}
                facts = {"node0": HostFacts(home="/h"), "node1": HostFacts(home="/h", ports=port)}
                self.feed(ev.HostsChecked(now, facts))
            case do.PickPorts(tasks):
                ports = {TaskId("worker", 1): 5000 + self.run.data.run.attempt}
                picked = {task: port for task, port in ports.items() if task in tasks}
                refused = ev.HostRefused(now, "node1", "port 2222 is in use")
                self.feed(ev.PortsPicked(now, picked) if ok else refused)
            case do.StageHost(host):
                self.feed(ev.Staged(now, host) if ok else ev.HostRefused(now, host, "disk full"))
            case do.StartTask(task, attempt):
                error = "" if ok else "no such file"
                self.feed(ev.TaskStarted(now, task.id, attempt, 7, 0, error))
                if ok:
                    self.feed(ev.TaskReady(now, task.id, attempt))
            case do.ReleaseTask(task, attempt):
                self.feed(ev.TaskReady(now, task.id, attempt))
            case do.KillHost(host, tasks):
                for view in self.run.snapshot().tasks:
                    if view.host == host and (tasks is None or view.id in tasks) and view.attempt:
                        self.feed(ev.TaskExited(now, view.id, view.attempt, None, "TERM"))
                survivors = () if ok else (Survivor(7, "stuck", "D"),)
                receipt = HostReceipt(host, 1, survivors, confirmed=ok)
                self.feed(ev.ReceiptReceived(now, receipt, tasks))
            case do.WatchSilence(watched):
                self.feed(ev.OutputStalled(now, watched, 60.0))
            case do.ReleaseAllocation():
                self.release({host: ev.EngineWord(ok, "Slurm's word") for host in NODES})
            case _:
                pass

    def release(self, words: dict[str, ev.EngineWord]) -> None:
        self.feed(ev.AllocationReleased(self.later(), "released", words, "TIMEOUT", "it is over"))

    @precondition(lambda self: bool(getattr(self, "timers", None)))
    @rule(data=st.data())
    def fires(self, data: st.DataObject) -> None:
        at = data.draw(st.integers(0, len(self.timers) - 1))
        self.feed(ev.TimerFired(self.later(), self.timers.pop(at)))

    @rule(task=TASKS, status=STATUS, misses=st.booleans())
    def exits(self, task: TaskId, status: tuple[int | None, str | None], misses: bool) -> None:
        attempt = self.run.data.tasks[task].attempt
        told = ev.TaskExited(self.later(), task, attempt, *status, tail=("last",))
        self.feed(replace(told, misses_peer=misses))

    @rule(task=TASKS, total=st.sampled_from([None, 500]))
    def trains(self, task: TaskId, total: int | None) -> None:
        self.feed(ev.MetricsSeen(self.later(), task, total))

    # --- people and launchers -------------------------------------------------------------

    @rule(task=TASKS, hard=st.booleans())
    def is_restarted(self, task: TaskId, hard: bool) -> None:
        self.feed(ev.Restart(self.later(), task, hard))

    @rule(task=TASKS, name=st.sampled_from(["TERM", "KILL"]))
    def is_signalled(self, task: TaskId, name: str) -> None:
        self.feed(ev.SignalTask(self.later(), task, name))

    @rule(rarely=RARELY, by_person=st.booleans(), force=st.booleans())
    def kill_all(self, rarely: bool, by_person: bool, force: bool) -> None:
        if rarely:
            self.feed(ev.KillAll(self.later(), by_person, force))

    @rule(rarely=RARELY, complete=st.booleans())
    def is_attached(self, rarely: bool, complete: bool) -> None:
        if not rarely and self.run.data.phase is not RunPhase.ENDED:
            return
        self.open.clear()
        self.timers.clear()
        self.run = RunStateMachine(self.cluster, "r", past=self.kept)
        if self.run.data.run.restart_due:
            self.unproven = set(NODES)
        self.feed(ev.Attached(self.later(), complete))

    # --- anything -------------------------------------------------------------------------

    @rule(host=HOSTS, reason=TEXT, lease=st.floats(0, 2000), gone=st.booleans())
    def is_lost(self, host: str, reason: str, lease: float, gone: bool) -> None:
        self.feed(ev.HostLost(self.later(), host, reason, lease, agent_gone=gone))

    @rule(host=HOSTS, held=HELD, text=TEXT)
    def comes_up_with(self, host: str, held: tuple[ev.HeldTask, ...], text: str) -> None:
        self.feed(ev.HostUp(self.later(), host, held, text))

    @rule(rarely=RARELY, host=HOSTS)
    def is_refused(self, rarely: bool, host: str) -> None:
        if rarely:
            self.feed(ev.HostRefused(self.later(), host, "no login"))

    @rule(rarely=RARELY, host=HOSTS, purpose=st.sampled_from(Purpose))
    def is_taken_over(self, rarely: bool, host: str, purpose: Purpose) -> None:
        if rarely:
            self.feed(ev.Superseded(self.later(), host, "elsewhere:7", purpose))

    @rule(task=TASKS, attempt=ATTEMPTS, error=TEXT, holder=TEXT)
    def starts(self, task: TaskId, attempt: int, error: str, holder: str) -> None:
        self.feed(ev.TaskStarted(self.later(), task, attempt, 7, 0, error, holder))

    @rule(task=TASKS, attempt=ATTEMPTS, status=STATUS)
    def ends(self, task: TaskId, attempt: int, status: tuple[int | None, str | None]) -> None:
        self.feed(ev.TaskReady(self.later(), task, attempt))
        self.feed(ev.TaskExited(self.later(), task, attempt, *status))

    @rule(receipt=RECEIPTS, tasks=st.none() | st.lists(TASKS, max_size=2).map(tuple))
    def confirms(self, receipt: HostReceipt, tasks: tuple[TaskId, ...] | None) -> None:
        self.feed(ev.ReceiptReceived(self.later(), receipt, tasks))

    @rule(task=TASKS)
    def is_silent(self, task: TaskId) -> None:
        self.feed(ev.OutputStalled(self.later(), task, 60.0))

    @rule(timer=TIMERS)
    def times_out(self, timer: ev.Timer) -> None:
        self.feed(ev.TimerFired(self.later(), timer))

    @rule(host=HOSTS, text=TEXT)
    def says(self, host: str, text: str) -> None:
        self.feed(ev.NoteAdded(self.later(), text))
        self.feed(ev.ResultsMissing(self.later(), host, text, ("/a",)))

    @rule(port=st.integers(1, 65535))
    def has_ports(self, port: int) -> None:
        self.feed(ev.PortsPicked(self.later(), {TaskId("worker", 1): port}))

    @rule(host=HOSTS)
    def has_files(self, host: str) -> None:
        self.feed(ev.Staged(self.later(), host))

    @rule(rarely=RARELY)
    def launcher_fails(self, rarely: bool) -> None:
        if rarely:
            self.feed(ev.LauncherFailed(self.later(), "boom"))


class EngineMachine(RunMachine):
    """A run whose hosts an engine gives, and takes away."""

    source = '[slurm]\nnodes = 2\ntime = "10"'

    def start_all(self) -> None:
        self.feed(ev.Allocated(self.later(), NODES))
        super().start_all()

    @rule(state=st.sampled_from(["", "PENDING", "RUNNING"]), text=TEXT, at=st.none() | st.just(2e3))
    def is_queued(self, state: str, text: str, at: float | None) -> None:
        self.feed(ev.Queued(self.later(), "8123", state, text, at, text))

    @rule()
    def is_given(self) -> None:
        self.feed(ev.Allocated(self.later(), NODES))

    @rule(rarely=RARELY, reason=TEXT)
    def is_taken_away(self, rarely: bool, reason: str) -> None:
        if rarely:
            self.feed(ev.AllocationEnded(self.later(), reason, "TIMEOUT"))

    @rule(words=st.dictionaries(HOSTS, st.builds(ev.EngineWord, st.booleans(), TEXT)))
    def is_released(self, words: dict[str, ev.EngineWord]) -> None:
        self.release(words)


@pytest.mark.parametrize("machine", [RunMachine, EngineMachine])
def test_any_sequence_of_events(machine: type[RunMachine]) -> None:
    """After each event the state is consistent; its stream gives the same views."""
    run_state_machine_as_test(
        machine,
        settings=examples(50, stateful_step_count=40, suppress_health_check=list(HealthCheck)),
    )


# Cuts while files are brought and tasks are started: the run goes on when the host is back.


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


# All sequences of events of a small run: when its end is decided, nothing is started.

SMALL = """
name = "t"
[hosts.h]
ssh = "h"
[jobs.a]
tasks = ["h:2222"]
[jobs.b]
tasks = ["h:2223", "h:2224"]
[start]
order = [["a"], ["b"]]
{warm}
[run]
command = ["python3", "x"]
framework = "none"
success = "all"
on_failure = "{on_failure}"
max_restarts = 1
"""
A, B, C = TaskId("a", 0), TaskId("b", 0), TaskId("b", 1)
SMALL_TASKS = (A, B, C)
DEPTH = 3
"""Events that follow each other, and one more."""
STARTS = (do.StartTask, do.ReleaseTask, do.StageHost, do.PickPorts)
VICTIM = ("ConnectionResetError: [Errno 104] Connection reset by peer",)


def small_run(on_failure: str, *, warm: bool) -> RunStateMachine:
    """A run of three tasks in two stages on one host, whose first stage has been told to start."""
    text = SMALL.format(on_failure=on_failure, warm='warm = ["json"]' if warm else "warm = false")
    run = RunStateMachine(loads(text, "cluster.toml", Path("/srv")), "r", 1.0)
    for event in (
        ev.Begin(1.0),
        ev.HostUp(1.0, "h"),
        ev.HostsChecked(1.0, {"h": HostFacts(home="/h")}),
        ev.Staged(1.0, "h"),
    ):
        run.handle(event)
    return run


def events(run: RunStateMachine) -> Iterator[ev.Event]:
    """All that may happen next: to the host, to each task, by a person and by timers."""
    views = [run.data.tasks[task] for task in SMALL_TASKS]
    held = [ev.HeldTask(v.id, v.attempt, v.warming) for v in views if v.attempt]
    yield ev.HostUp(1.0, "h")
    yield ev.HostUp(1.0, "h", tuple(held))
    if held:
        yield ev.HostUp(1.0, "h", tuple(held[1:]))
    yield ev.HostLost(1.0, "h", "silence", 60.0)
    yield ev.TimerFired(1.0, ev.LeaseEnd("h"))
    yield ev.KillAll(1.0)
    yield ev.ReceiptReceived(1.0, HostReceipt("h", confirmed=True), None)
    yield ev.PortsPicked(1.0, {})
    for purpose in Purpose:
        yield ev.Superseded(1.0, "h", "elsewhere", purpose)
    for view in views:
        task, attempt = view.id, view.attempt
        if not attempt:
            continue
        yield ev.TaskStarted(1.0, task, attempt, 7)
        yield ev.TaskStarted(1.0, task, attempt, 0, error="no such file")
        yield ev.TaskReady(1.0, task, attempt)
        yield ev.TaskExited(1.0, task, attempt, 0, None)
        yield ev.TaskExited(1.0, task, attempt, 1, None)
        yield ev.TaskExited(1.0, task, attempt, 1, None, tail=VICTIM)
        yield ev.Restart(1.0, task, hard=True)
        yield ev.ReceiptReceived(1.0, HostReceipt("h"), (task,))
        yield ev.TimerFired(1.0, ev.RestartDelay(task, attempt))
        yield ev.TimerFired(1.0, ev.LookTimeout(task))


def branch(run: RunStateMachine) -> RunStateMachine:
    """A copy of a run, to which something else may happen."""
    data = copy.copy(run.data)
    for name, value in vars(data).items():
        if isinstance(value, dict | set | list):
            setattr(data, name, copy.copy(value))
    data.host_records = {host: replace(one) for host, one in data.host_records.items()}
    return RunStateMachine(data.cluster, "r", past=data)


def key(run: RunStateMachine) -> str:
    """What decides about all that follows."""
    data = run.data
    tasks = [
        (v.state, v.attempt, v.pid, v.intent, v.kill_grace, v.restart_due, v.state_before_loss)
        for v in data.tasks.values()
    ]
    record = data.host_records["h"]
    return repr(
        (
            (data.run.state, data.run.stage, data.run.attempt, data.run.cause),
            (data.run.restart_due, data.hosts["h"].state, data.ending, data.looked_for, tasks),
            (record.receipt is None, record.last_word is None, record.agent_gone),
        )
    )


def told_to_end(out: list[do.Instruction]) -> bool:
    """The run's end is among these instructions, or they say that it has ended."""
    kills = [one for one in out if isinstance(one, do.KillHost) and one.final]
    return bool(kills) or any(isinstance(one, do.End) for one in out)


@variants("warm", [False, True], ids=["cold", "warm"], test=1)
@pytest.mark.parametrize("on_failure", ["stop", "keep", "restart", "restart-all"])
def test_no_order_starts_anything_when_the_end_is_decided(on_failure: str, warm: bool) -> None:
    """In each state that any sequence of events leads to, no step that ends the run has a start
    among its instructions, in whatever order, and no later step has one."""
    first = small_run(on_failure, warm=warm)
    todo: list[tuple[RunStateMachine, bool, tuple[ev.Event, ...]]] = [(first, False, ())]
    seen = {(key(first), False)}
    restarts = 0
    for run, over, path in todo:
        for event in events(run):
            following = branch(run)
            out = following.handle(event)
            ends = over or told_to_end(out)
            started = [one for one in out if isinstance(one, STARTS)]
            assert not (ends and started), (*path, event, out)
            restarts += sum(isinstance(one, do.PickPorts) for one in out)
            place = key(following), ends
            if place not in seen and len(path) < DEPTH:
                seen.add(place)
                todo.append((following, ends, (*path, event)))
    assert len(seen) > 100
    assert bool(restarts) == (on_failure == "restart-all"), "an attempt that ends is no end"
