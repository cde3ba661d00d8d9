"""Nodes of a run, from the request to the release: the job, and the run as a pure machine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from launcher.process import slurm_allocation
from launcher.process.slurm_allocation import Allocation
from launcher.run import events as ev
from launcher.run.events import LeaseEnd
from launcher.run.instructions import (
    CheckHosts,
    ConnectHosts,
    End,
    KillHost,
    ReleaseAllocation,
    ReleaseHost,
    SetTimer,
)
from launcher.run.shutdown import KILL_PATIENCE
from launcher.run.states import HostState, Outcome, RunPhase
from launcher.slurm.job import JobState, SlurmJob
from launcher.slurm.limits import LimitsVerdict, SlurmFinding
from launcher.slurm.login import NoAnswerError, SlurmError
from tests.support.patience import PATIENCE
from tests.support.queue_driver import NODES, QueueDriver

# The job of a run, from the request to the release, in a Slurm that the tests write.

RUNNING = JobState("RUNNING", nodes=("sl1", "sl2"))
PENDING = JobState("PENDING", "Resources")


class FakeJob(SlurmJob):
    """A job that answers as told; `asked` is what it was asked."""

    def __init__(self, *states: JobState, found: Sequence[str] = ("",)) -> None:
        self.answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.connecting, self.let_in = asyncio.Event(), asyncio.Event()
        self.let_in.set()
        self.under_way = asyncio.Event()
        self.asked: list[str] = []
        self._states = list(states)
        self._found = list(found)

    async def connect(self) -> None:
        self.connecting.set()
        await self.let_in.wait()

    async def request(self) -> str:
        self.under_way.set()
        return await self.answer

    async def find(self) -> str:
        self.asked.append("find")
        return self._found.pop(0) if len(self._found) > 1 else self._found[0]

    async def poll(self, job: str) -> JobState:
        self.asked.append(f"look {job}")
        return self._states.pop(0) if len(self._states) > 1 else self._states[0]

    async def cautions(self) -> tuple[SlurmFinding, ...]:
        self.asked.append("cautions")
        return (
            SlurmFinding(LimitsVerdict.WARNING, "x", "short", "KillWait is short", "write less"),
        )

    async def examine(self) -> AsyncIterator[SlurmFinding]:
        yield SlurmFinding(LimitsVerdict.PASSED, "", "accepted", "accepted")

    def reach(self, job: str, node: str) -> tuple[str, ...]:
        return ("srun", node)

    async def release(self, job: str) -> None:
        self.asked.append(f"release {job}")

    def cancel_command(self, job: str) -> str:
        return f"scancel {job or '--name=x'}"

    async def words(self, job: str, nodes: Sequence[str]) -> dict[str, ev.EngineWord]:
        return {node: ev.EngineWord(True, "Slurm agrees") for node in nodes}


class Shell:
    """A run in the queue with its allocation, and what that has told it."""

    def __init__(self, engine: FakeJob, *, attached: bool = False) -> None:
        self.driver = QueueDriver()
        self.told: list[ev.Event] = []
        self._news = asyncio.Event()
        self.data = self.driver.run.data
        core: Any = self
        self.allocation = Allocation(core, engine, attached=attached)
        self.supervising = asyncio.create_task(self.allocation.supervise())

    def note(self, text: str) -> None:
        self.feed(ev.NoteAdded(time.time(), text))

    def feed(self, event: ev.Event) -> None:
        self.told.append(event)
        self._news.set()
        self.driver.run.handle(event)

    async def kill(self) -> ev.AllocationReleased:
        """What a kill in the queue leads to."""
        self.driver.run.handle(ev.KillAll(time.time()))
        await self.allocation.release()
        return self.released

    async def until(self, kind: type[ev.Event]) -> None:
        """Waits for an event."""
        while not any(isinstance(event, kind) for event in self.told):
            self._news.clear()
            await self._news.wait()

    @property
    def released(self) -> ev.AllocationReleased:
        assert isinstance(self.told[-1], ev.AllocationReleased)
        return self.told[-1]

    @property
    def ended(self) -> ev.AllocationEnded:
        (found,) = [event for event in self.told if isinstance(event, ev.AllocationEnded)]
        return found


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is waited for long."""
    monkeypatch.setattr(slurm_allocation, "FIRST_PACE", 0.01)
    monkeypatch.setattr(slurm_allocation, "_WORD_PACE", 0.01)
    monkeypatch.setattr(slurm_allocation, "_FIND_SECONDS", 0.05)


async def test_a_kill_waits_for_the_answer_to_a_request() -> None:
    """A request that is given up may be carried out all the same."""
    engine = FakeJob(PENDING)
    shell = Shell(engine)
    await engine.under_way.wait()
    killing = asyncio.create_task(shell.kill())
    done, _ = await asyncio.wait([killing], timeout=0.1)
    assert not done
    engine.answer.set_result("7")
    assert (await killing).text == "Slurm 7 was cancelled in the queue: nothing had started"
    assert engine.asked == ["release 7"]
    assert shell.driver.seen.outcome is Outcome.KILLED


async def test_a_second_kill_gives_the_answer_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The job may have come all the same; if not, it is said what to do when it does."""
    for seconds, found, asked, said in (
        (PATIENCE, ["", "7"], ["find", "find", "release 7"], "Slurm 7 was cancelled in the queue"),
        (0.05, [""], None, "if it starts after all: scancel --name=x"),
    ):
        monkeypatch.setattr(slurm_allocation, "_FIND_SECONDS", seconds)
        engine = FakeJob(PENDING, found=found)
        shell = Shell(engine)
        await engine.under_way.wait()
        killing = asyncio.create_task(shell.kill())
        shell.allocation.force()
        assert said in (await killing).text
        assert asked is None or engine.asked == asked


async def test_a_kill_during_the_login_does_not_wait() -> None:
    """Nothing was asked for yet; somebody may have to type a password."""
    engine = FakeJob(PENDING)
    engine.let_in.clear()
    shell = Shell(engine)
    await engine.connecting.wait()
    assert (await shell.kill()).text == "" and engine.asked == []


@pytest.mark.parametrize("late", ["", "7"])
async def test_a_request_that_was_refused_is_looked_for_once(late: str) -> None:
    """sbatch fails, too, when Slurm took the request and only the answer did not come in time."""
    engine = FakeJob(PENDING, found=[late])
    shell = Shell(engine)
    engine.answer.set_exception(SlurmError("invalid partition: x", "correct it"))
    await shell.supervising
    assert shell.ended.reason == "Slurm: invalid partition: x; correct it"
    await shell.allocation.release()
    assert engine.asked == (["find", "release 7"] if late else ["find"])
    assert bool(shell.released.text) == bool(late)


async def test_a_request_that_got_no_answer_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its job may come a moment later."""
    monkeypatch.setattr(slurm_allocation, "_FIND_SECONDS", PATIENCE)
    engine = FakeJob(PENDING, found=["", "", "7"])
    shell = Shell(engine)
    engine.answer.set_exception(NoAnswerError("sbatch did not answer within 60 s"))
    await shell.supervising
    assert "did not answer" in shell.ended.reason
    await shell.allocation.release()
    assert engine.asked == ["find", "find", "find", "release 7"]


async def test_fewer_nodes_than_the_file_has() -> None:
    """One has failed before the job started."""
    engine = FakeJob(JobState("RUNNING", nodes=("sl1",)))
    shell = Shell(engine)
    engine.answer.set_result("7")
    await shell.supervising
    assert shell.ended.reason == "Slurm 7 has 1 nodes only: there is none for node1"
    await shell.allocation.release()
    assert engine.asked[-1] == "release 7"


async def test_a_job_that_is_over_before_it_was_seen_to_run() -> None:
    """What to change is said, and that it had not been waiting."""
    engine = FakeJob(JobState("FAILED", "NonZeroExitCode", advice="write python", over=True))
    shell = Shell(engine)
    engine.answer.set_result("7")
    await shell.supervising
    assert shell.ended.reason == "Slurm 7 has ended: FAILED (NonZeroExitCode); write python"
    await shell.allocation.release()
    assert shell.released.text == "Slurm 7 is released"
    assert shell.released.state == ""


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (PENDING, "Slurm 7 was put back into the queue: PENDING (Resources)"),
        (
            JobState("REQUEUED", "somebody did it", over=True),
            "Slurm 7 has ended: REQUEUED (somebody did it)",
        ),
    ],
)
async def test_a_run_ends_when_its_job_is_put_back(state: JobState, reason: str) -> None:
    """The nodes are gone; that the job is then cancelled is our doing, and not the reason."""
    engine = FakeJob(RUNNING, state)
    shell = Shell(engine)
    engine.answer.set_result("7")
    shell.allocation.poll_soon()
    await shell.supervising
    assert shell.ended.reason == reason
    await shell.allocation.release()
    assert shell.released.reason == "" and engine.asked[-1] == "release 7"


async def test_a_job_that_is_completing_is_asked_again_why() -> None:
    """Slurm says it only when it has ended."""
    ended = JobState("TIMEOUT", "TimeLimit", over=True)
    engine = FakeJob(RUNNING, JobState("COMPLETING", over=True), ended)
    shell = Shell(engine)
    engine.answer.set_result("7")
    shell.allocation.poll_soon()
    await shell.supervising
    await shell.allocation.release()
    assert shell.released.reason == "Slurm 7 has ended: TIMEOUT (TimeLimit)"


async def test_a_run_that_is_taken_up_asks_for_no_new_nodes() -> None:
    """Its launcher died before it knew the job; where there is none, that is said."""
    engine = FakeJob(PENDING)
    shell = Shell(engine, attached=True)
    await shell.supervising
    assert "there is no job of this run" in shell.ended.reason
    await shell.allocation.release()
    assert not engine.under_way.is_set() and shell.released.text == ""


async def test_what_a_check_would_warn_of_is_a_note_of_the_run() -> None:
    """Once, and nodes that are there do not wait for it; not again for who takes the run up."""
    for states in ((RUNNING,), (PENDING, RUNNING)):
        engine = FakeJob(*states)
        engine.answer.set_result("7")
        shell = Shell(engine)
        await shell.until(ev.NoteAdded)
        await shell.until(ev.Allocated)
        assert engine.asked[:2] == ["look 7", "cautions"] and engine.asked.count("cautions") == 1
        order = [type(event) for event in shell.told if not isinstance(event, ev.Queued)]
        assert order == [ev.Allocated, ev.NoteAdded][:: 1 if states[0] is RUNNING else -1]
    notes = [event.text for event in shell.told if isinstance(event, ev.NoteAdded)]
    assert notes == ["Slurm: KillWait is short; write less"]
    again = Shell(FakeJob(RUNNING, found=("7",)), attached=True)
    await again.until(ev.Allocated)
    assert not any(isinstance(event, ev.NoteAdded) for event in again.told)


async def test_a_job_that_is_not_the_runs_stays() -> None:
    """The texts speak of the run's part of it."""
    engine = FakeJob(RUNNING, JobState("ENDED", "no agent is left in it", over=True))
    engine.owns_job = False
    engine.answer.set_result("7")
    shell = Shell(engine)
    await shell.until(ev.Allocated)
    text = "this run's part of Slurm 7 is released; Slurm 7 is yours and stays"
    assert (await shell.kill()).text == text


# The run as a pure machine, where an engine gives the hosts.

AGREES = ev.EngineWord(True, "Slurm agrees")
SILENT = ev.EngineWord(False, "Slurm cannot confirm it: the node is down*")


def test_a_run_waits_in_the_queue_until_it_has_nodes() -> None:
    """The nodes are its hosts then, by their own names to the other tasks."""
    driver = QueueDriver()
    assert driver.phase() is RunPhase.QUEUED
    assert driver.queue(reason="Resources", expected=2000.0) == []
    allocation = driver.seen.allocation
    assert allocation is not None
    assert (allocation.title, allocation.reason) == ("Slurm 7", "Resources")
    assert driver.feed(ev.Allocated, NODES) == [ConnectHosts()]
    assert driver.phase() is RunPhase.CONNECTING
    assert [host.via for host in driver.run.data.plan.hosts] == [n.via for n in NODES.values()]
    assert driver.task("worker:1").address == "sl2:2222"
    assert driver.up("node0", "node1") == [CheckHosts(ports=True)]


def test_advice_is_noted_once() -> None:
    """The queue is looked at again and again."""
    driver = QueueDriver()
    for _ in range(3):
        driver.queue(reason="PartitionNodeLimit", advice="write a smaller nodes")
    assert driver.seen.notes == ("Slurm 7: write a smaller nodes",)


def test_a_kill_in_the_queue_ends_when_the_request_is_cancelled() -> None:
    """Nothing had started: the receipt has no host."""
    driver = QueueDriver()
    driver.queue()
    assert driver.feed(ev.KillAll) == [ReleaseAllocation()]
    assert driver.phase() is RunPhase.KILLING
    assert driver.feed(ev.Allocated, NODES) == []  # it came too late
    assert driver.released() == [End(Outcome.KILLED, 130)]
    assert driver.seen.receipt is not None and driver.seen.receipt.clean


def test_a_refused_request_is_a_failed_preflight() -> None:
    """Its words are the reason."""
    driver = QueueDriver()
    said = "Slurm: sbatch: error: invalid partition specified: x"
    assert driver.feed(ev.AllocationEnded, said, "REFUSED") == [ReleaseAllocation()]
    assert driver.released() == [End(Outcome.PREFLIGHT, 3)]
    assert driver.seen.notes == (said,)


def test_the_receipt_has_the_engines_word_beside_the_agents() -> None:
    """The hosts are released first: what is left of logs and results is there."""
    driver = QueueDriver()
    driver.begin()
    driver.feed(ev.KillAll)
    assert driver.confirm("node0") == []
    assert driver.confirm("node1") == [*map(ReleaseHost, NODES), ReleaseAllocation()]
    assert driver.confirm("node1") == []  # the second press has its receipt, too
    allocation = driver.seen.allocation
    assert allocation is not None and allocation.releasing
    assert driver.released(node0=AGREES, node1=SILENT) == [End(Outcome.KILLED, 130)]
    receipt = driver.seen.receipt
    assert receipt is not None and receipt.clean
    assert [host.engine for host in receipt.hosts] == [AGREES.text, SILENT.text]


def test_results_that_are_missing_make_a_success_none() -> None:
    """They are asked for before the nodes are given back, and the run ends after that."""
    driver = QueueDriver()
    driver.begin()
    driver.ready("worker:0", "worker:1")
    driver.exited("worker:0")
    driver.exited("worker:1")
    driver.confirm("node0", "node1")
    driver.feed(ev.ResultsMissing, "node0", "its disk is full", ("/scratch/run",))
    assert driver.released() == [End(Outcome.SUCCESS, 1)]


def test_only_a_word_that_counts_stands_for_an_agents() -> None:
    """A node that is down may have anything on it."""
    for word, code in ((AGREES, 130), (SILENT, 4)):
        driver = QueueDriver()
        driver.begin()
        driver.lost("node1")
        driver.feed(ev.KillAll)
        driver.confirm("node0")
        driver.ended()
        assert driver.released(node0=AGREES, node1=word) == [End(Outcome.KILLED, code)]
        receipt = driver.seen.receipt
        assert receipt is not None
        assert [(h.confirmed, h.by_engine) for h in receipt.hosts] == [
            (True, False),
            (word.gone, word.gone),
        ]


def test_a_node_without_an_agent_is_not_waited_for() -> None:
    """An engine starts an agent only once; nothing acts there when the lease ends."""
    driver = QueueDriver()
    driver.begin()
    driver.feed(ev.HostLost, "node0", "silence", driver.now + 60)
    said = driver.feed(ev.HostLost, "node0", "its agent is gone", driver.now + 60, True)
    assert said == [SetTimer(LeaseEnd("node0"), 5 + KILL_PATIENCE)]
    killed = driver.feed(ev.TimerFired, LeaseEnd("node0"))
    assert killed == driver.shut_down("node1")
    assert driver.failure.task.index == 0
    assert ReleaseAllocation() in driver.confirm("node1")
    assert driver.released(node0=SILENT, node1=AGREES) == [End(Outcome.FAILED, 4)]
    receipt = driver.seen.receipt
    assert receipt is not None and receipt.hosts[0].unreachable_until is None


def test_an_end_from_outside_ends_the_run() -> None:
    """What the agents said before they went is their receipt."""
    driver = QueueDriver()
    driver.begin()
    for host in NODES:
        driver.confirm(host)  # nobody has asked: TERM came from Slurm
        driver.lost(host)
    assert driver.phase() is not RunPhase.KILLING
    assert ReleaseAllocation() in driver.ended()
    assert driver.ended() == []
    released = driver.feed(
        ev.AllocationReleased,
        "Slurm 7 is released",
        {"node0": AGREES, "node1": SILENT},
        "TIMEOUT",
        "Slurm 7 has ended: TIMEOUT (TimeLimit)",
    )
    assert released == [End(Outcome.FAILED, 1)]
    receipt, allocation = driver.seen.receipt, driver.seen.allocation
    assert receipt is not None and receipt.clean
    assert not any(host.by_engine for host in receipt.hosts)
    assert allocation is not None and allocation.ended == "Slurm 7 has ended: TIMEOUT (TimeLimit)"


def test_an_agent_that_is_back_has_said_nothing_yet() -> None:
    """Its earlier receipt was for what had lived then."""
    driver = QueueDriver()
    driver.begin()
    driver.confirm("node0")
    driver.lost("node0")
    driver.up("node0")
    driver.lost("node0")
    driver.lost("node1")
    driver.ended()
    driver.released(node0=SILENT, node1=SILENT)
    receipt = driver.seen.receipt
    assert receipt is not None and not receipt.hosts[0].confirmed


def test_a_run_that_was_seen_in_the_queue_after_its_launchers_death_ends_at_once() -> None:
    """Its record has no end, so its hosts count as contacted; Slurm says once that it waits, before
    somebody kills it. The kill waited 75 s for hosts that there were not."""
    driver = QueueDriver()
    driver.queue()
    driver.feed(ev.Attached, False)
    driver.queue()
    assert driver.feed(ev.KillAll) == [ReleaseAllocation()]


def test_a_kill_by_who_has_no_record_of_the_run_finds_its_nodes_first() -> None:
    """Any host may hold something of it, until the engine has said which nodes they are."""
    driver = QueueDriver()
    driver.feed(ev.Attached, False)
    driver.feed(ev.KillAll)
    assert driver.phase() is RunPhase.KILLING and driver.run.data.awaits_nodes
    driver.queue("")
    assert ConnectHosts() in driver.feed(ev.Allocated, NODES)
    assert driver.phase() is RunPhase.KILLING and driver.run.data.nodes == NODES
    assert any(isinstance(told, KillHost) for told in driver.up("node0"))
    driver.up("node1")
    assert ReleaseAllocation() in driver.confirm("node0", "node1")


def test_a_kill_by_who_has_no_record_of_a_run_that_is_in_the_queue() -> None:
    """Nothing has started: no host is waited for."""
    driver = QueueDriver()
    driver.feed(ev.Attached, False)
    driver.feed(ev.KillAll)
    assert driver.queue("") == []
    assert driver.queue() == [ReleaseAllocation()]
    driver.released()
    assert driver.seen.exit_code == 130


def test_a_launcher_takes_a_run_up_in_the_queue_and_on_its_nodes() -> None:
    """The stream has the job and the nodes."""
    driver = QueueDriver()
    driver.queue()
    driver.feed(ev.Attached)
    assert driver.phase() is RunPhase.QUEUED
    driver.feed(ev.Allocated, NODES)
    driver.up("node0", "node1")
    driver.feed(ev.Attached)
    assert driver.phase() is RunPhase.CONNECTING
    assert {host.state for host in driver.seen.hosts} == {HostState.CONNECTING}
    assert driver.run.data.nodes == NODES
