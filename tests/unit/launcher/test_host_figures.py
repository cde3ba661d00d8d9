"""Figures of hosts and tasks: silence, halts, and what the kernel has killed."""

from __future__ import annotations

import asyncio
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from launcher.agent.kernel_log import killed_for_memory, own_lines
from launcher.agent.processes import Process, oom_kills
from launcher.agent.stats import StatsSampler
from launcher.errors import AgentError
from launcher.hosts.frames import Stats, StatsAnswer
from launcher.ids import TaskId
from launcher.process import host_links
from launcher.process.gpu_watch import GpuWatch
from launcher.process.host_links import HostStats
from launcher.run.gauges import Gauges
from launcher.run.snapshot import HostView, RunView
from launcher.run.states import Halt, HostState, RunPhase, TaskState
from launcher.run.views import Views
from tests.support.patience import PATIENCE
from tests.support.run_driver import RunDriver

# Figures of hosts: what is shown of those that are silent, and of those that do not answer.


def a_link(last_heard: float, answer: Any) -> Any:
    """A connected link whose agent answers all questions alike."""
    return SimpleNamespace(connected=True, last_heard=last_heard, ask=answer)


def views_of(*hosts: str) -> Views:
    """Hosts that are up, and of which nothing is new."""
    views = Views(RunView("r", "r", RunPhase.RUNNING, 0.0))
    for host in hosts:
        views.take(HostView(host, host, HostState.UP))
    return views


def stats_of(views: Views, links: dict[str, Any]) -> HostStats:
    """The figures of hosts that are reached over these links."""
    bulkhead = SimpleNamespace(around=nullcontext)
    data: Any = views
    core: Any = SimpleNamespace(
        data=views, gauges=Gauges(data), links=links, publish=lambda: None, bulkhead=bulkhead
    )
    return HostStats(core, GpuWatch(core, lambda sample: None), lambda task: None)


async def never(question: object) -> object:
    """No answer in the time for which a link waits."""
    await asyncio.sleep(PATIENCE)
    raise AgentError("far", "the agent did not answer")


def test_a_silent_host_has_not_changed() -> None:
    """The second of two states carries nothing of a silent host: its silence is shown in whole
    seconds."""
    links = {f"h{number}": a_link(time.monotonic() - number / 7, never) for number in range(500)}
    views = views_of(*links)
    stats = stats_of(views, links)
    stats.note_heard()
    assert len(views.pop_touched()) == 500 and not views.pop_changed(1.0)
    stats.note_heard()
    assert not views.pop_touched()
    for number, view in enumerate(views.hosts.values()):
        assert view.last_heard is not None and view.last_heard == int(view.last_heard)
        assert -0.1 < time.time() - number / 7 - view.last_heard < PATIENCE
    links["h0"].last_heard += 1.0
    stats.note_heard()
    assert views.pop_touched() == [views.hosts["h0"]]


def test_a_host_that_was_never_heard_has_no_time() -> None:
    views = views_of("h")
    stats_of(views, {"h": a_link(0.0, never)}).note_heard()
    assert views.hosts["h"].last_heard is None


async def test_a_host_that_does_not_answer_delays_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are asked again and again meanwhile, and it is asked once."""
    monkeypatch.setattr(host_links, "STATS_SECONDS", 0.01)
    monkeypatch.setattr(host_links, "_ANSWER_SECONDS", 0.05)
    asked = {"quick": 0, "slow": 0}
    often = asyncio.Event()

    async def quick(question: object) -> object:
        asked["quick"] += 1
        if asked["quick"] == 5:
            often.set()
        return StatsAnswer(cpu=0.5, memory_total=2, memory_used=1, gpus=(), tasks={})

    async def slow(question: object) -> object:
        asked["slow"] += 1
        return await never(question)

    links = {"quick": a_link(1.0, quick), "slow": a_link(1.0, slow)}
    polling = asyncio.create_task(stats_of(views_of(*links), links).poll())
    async with asyncio.timeout(PATIENCE / 2):
        await often.wait()
    assert asked["slow"] == 1
    polling.cancel()


# Tasks that are stopped or wait in the kernel: what the agent reports, and what is made of it.


def process(pid: int, state: str, ticks: int) -> Process:
    return Process(pid, 1, pid, pid, state, 100, ticks, 4096, 1)


def test_an_agent_reports_processes_that_get_no_further() -> None:
    """Given a stopped process, one that sleeps, and two in D of which one has got on since the last
    look, then the stopped task and the one that has not got on are reported."""
    sampler = StatsSampler()
    sampler.sample({n: (process(n, "D", 5), f"worker:{n}") for n in range(4)}, {})
    found = sampler.sample(
        {
            0: (process(0, "T", 5), "worker:0"),
            1: (process(1, "S", 5), "worker:1"),
            2: (process(2, "D", 5), "worker:2"),
            3: (process(3, "D", 6), "worker:3"),
            4: (process(4, "T", 6), "not a task"),
        },
        {},
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
    machine, link = RunDriver().run, Link()
    data = machine.data
    ps, other = TaskId("ps", 0), TaskId("worker", 1)
    for task in (ps, other):
        data.add(replace(data.tasks[task], state=TaskState.RUNNING, attempt=1, started=1.0))
    bulkhead = SimpleNamespace(around=nullcontext)
    core: Any = SimpleNamespace(
        data=data,
        gauges=machine.gauges,
        links={"a": link},
        bulkhead=bulkhead,
        feed=machine.handle,
    )
    stats = HostStats(core, GpuWatch(core, lambda sample: None), lambda task: None)

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


# The kernel's count of processes that it has killed for want of memory.

EVENTS = "low 0\nhigh 4\nmax 9\noom 3\noom_kill {}\noom_group_kill 0\n"
SECOND = "0::/user.slice/user-0.slice/session-3.scope\n"
FIRST = "9:cpu,cpuacct:/x\n4:memory:/docker/77\n1:name=systemd:/y\n"


@pytest.mark.parametrize(
    ("own", "files", "count"),
    [
        (SECOND, {"user.slice/user-0.slice/session-3.scope/memory.events": EVENTS.format(2)}, 2),
        (SECOND, {"user.slice/memory.events": EVENTS.format(5)}, 5),
        (SECOND, {"memory.events": EVENTS.format(6)}, 6),
        (FIRST, {"memory/docker/77/memory.oom_control": "under_oom 0\noom_kill 3\n"}, 3),
        (FIRST, {"memory/docker/77/memory.oom_control": "under_oom 0\n"}, 8),
        (SECOND, {}, 8),
        ("", {}, 8),
        ("nonsense\n::\n", {"memory.events": "oom_kill many\n"}, 8),
    ],
)
def test_the_nearest_count_is_taken(
    tmp_path: Path, own: str, files: dict[str, str], count: int
) -> None:
    """Given what a host's kernel shows of control groups, then the count is that of the nearest one
    that has any, else the host's."""
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(own)
    (tmp_path / "proc/vmstat").write_text("pgfault 7\noom_kill 8\nswap_ra 0\n")
    for name, text in files.items():
        (tmp_path / "groups" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "groups" / name).write_text(text)
    assert oom_kills(str(tmp_path / "proc"), str(tmp_path / "groups")) == count


def test_a_host_that_says_nothing_counts_none(tmp_path: Path) -> None:
    assert oom_kills(str(tmp_path), str(tmp_path)) == 0
    assert oom_kills() >= 0


KILLED = (
    b"<3>[28420.063241] Memory cgroup out of memory: Killed process 11192 (python3) total-vm:8kB"
)
GLOBAL = b"<3>[  99.000001] Out of memory: Killed process 77 (py thon) total-vm:8kB, UID:0"


@pytest.mark.parametrize(
    ("log", "victims"),
    [
        (b"", set()),
        (b"<6>[ 1.0] usb 1-1: new device\n" + KILLED + b"\n" + GLOBAL + b"\n", {11192, 77}),
        (KILLED.replace(b"<3>", b"<11>"), set()),
        (KILLED.replace(b"11192", b"9" * 5000), set()),
        (KILLED.replace(b"11192", b"-1"), set()),
        (KILLED[25:], set()),
        (b"<3>[1.0] Killed process 5 (x)", set()),
        (b"\xff<\x00>Killed process " * 9999, set()),
    ],
)
def test_the_kernels_log_names_whom_it_has_killed(
    tmp_path: Path, log: bytes, victims: set[int]
) -> None:
    """Given lines of the kernel's log, then its own lines about want of memory count, and neither
    those that programs have written into it nor torn ones."""
    (tmp_path / "self/ns").mkdir(parents=True)
    (tmp_path / "self/ns/pid").symlink_to("pid:[4026531836]")
    assert killed_for_memory(str(tmp_path), lambda: own_lines(log)) == victims


def test_the_log_of_a_container_counts_for_nothing(tmp_path: Path) -> None:
    """Given a namespace of processes that is not the kernel's first one, then its log is not read:
    its numbers are those of other processes."""
    (tmp_path / "self/ns").mkdir(parents=True)
    (tmp_path / "self/ns/pid").symlink_to("pid:[4026532999]")
    for proc in (tmp_path, tmp_path / "no"):
        assert killed_for_memory(str(proc), lambda: own_lines(KILLED)) == set()
