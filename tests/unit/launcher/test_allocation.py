"""The job of a run, from the request to the release, in a Slurm that the tests write."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from launcher.run import events as ev
from launcher.run.states import Outcome
from launcher.session import slurm_allocation
from launcher.session.slurm_allocation import Allocation
from launcher.slurm.job import JobState, SlurmJob
from launcher.slurm.limits import LimitsVerdict, SlurmFinding
from launcher.slurm.login import NoAnswerError, SlurmError
from tests.support.patience import PATIENCE
from tests.support.queue_driver import QueueDriver

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
        self.attached, self.data = attached, self.driver.run.data
        shell: Any = self
        self.allocation = Allocation(shell, engine)
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
