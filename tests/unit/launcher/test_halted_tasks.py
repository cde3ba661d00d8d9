"""Tasks that are stopped or wait in the kernel: what the agent reports, and what is made of it."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

from launcher.agent.processes import Process
from launcher.agent.stats import StatsSampler
from launcher.hosts.frames import Stats, StatsAnswer
from launcher.ids import TaskId
from launcher.run.states import Halt, TaskState
from launcher.session.host_links import HostStats
from tests.support.run_driver import RunDriver


def process(pid: int, state: str, ticks: int) -> Process:
    return Process(pid, 1, pid, pid, state, 100, ticks, 4096, 1)


def test_an_agent_reports_processes_that_get_no_further() -> None:
    """Given a stopped process, one that sleeps, and two in D of which one has got on since the last
    look, then the stopped task and the one that has not got on are reported."""
    sampler = StatsSampler()
    sampler.sample({n: (process(n, "D", 5), f"worker:{n}") for n in range(4)})
    found = sampler.sample(
        {
            0: (process(0, "T", 5), "worker:0"),
            1: (process(1, "S", 5), "worker:1"),
            2: (process(2, "D", 5), "worker:2"),
            3: (process(3, "D", 6), "worker:3"),
            4: (process(4, "T", 6), "not a task"),
        }
    )
    assert found["halted"] == {"worker:0": "T", "worker:2": "D"}


class Link:
    """A connected host whose agent answers with what a test has put down."""

    connected = True

    def __init__(self) -> None:
        self.halted: dict[TaskId, Any] = {}

    async def ask(self, question: Stats) -> StatsAnswer:
        seen = {TaskId("ps", 0): (0.1, 10), TaskId("worker", 1): (0.1, 10)}
        return StatsAnswer(
            memory_total=2, memory_used=1, gpus=(), tasks=seen, halted=dict(self.halted)
        )


async def test_a_run_names_a_task_in_the_kernel_at_the_second_look() -> None:
    """Given a host that reports a task in D once, then nothing is said; twice in a row, then the
    task waits in the kernel, since the first look. A stopped one is named at once, and a host has
    no say in a task of another one."""
    data, link = RunDriver().run.data, Link()
    ps, other = TaskId("ps", 0), TaskId("worker", 1)
    for task in (ps, other):
        data.add(replace(data.tasks[task], state=TaskState.RUNNING, attempt=1, started=1.0))
    bulkhead = SimpleNamespace(around=nullcontext)
    stats = HostStats(cast(Any, SimpleNamespace(data=data, links={"a": link}, bulkhead=bulkhead)))

    async def look(halted: dict[TaskId, str]) -> tuple[Halt, float | None]:
        link.halted = halted
        await stats._ask("a")
        return data.tasks[ps].halted, data.tasks[ps].halted_since

    assert await look({ps: "D"}) == (Halt.NONE, None)
    assert await look({}) == (Halt.NONE, None)
    assert await look({ps: "D"}) == (Halt.NONE, None)
    halt, since = await look({ps: "D"})
    assert halt is Halt.WAITING and since is not None
    assert await look({ps: "D"}) == (halt, since)
    assert await look({}) == (Halt.NONE, None)
    assert (await look({ps: "T", other: "T"}))[0] is Halt.STOPPED
    assert data.tasks[other].halted is Halt.NONE
    data.update_task(ps, state=TaskState.EXITED, exit_code=0, ended=2.0)
    assert data.tasks[ps].halted is Halt.NONE
