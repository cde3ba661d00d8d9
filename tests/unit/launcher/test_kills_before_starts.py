"""Instructions for thousands of tasks: a kill waits for no start, and the loop is not held."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from launcher.hosts.frames import Kill, Release, Request, Start
from launcher.plan.run_plan import Plan
from launcher.run import events as ev
from launcher.run import instructions as do
from launcher.run.events import ReadyTimeout, ShutdownTimeout
from launcher.session.run_shell import Executor
from tests.support.patience import PATIENCE
from tests.support.shells import FakeShell

HOSTS = 20


class Link:
    """A link that keeps what is sent, where it fits into a frame."""

    def __init__(self, host: str, sent: list[tuple[str, Request]]) -> None:
        self._host, self._sent = host, sent

    def send(self, request: Request) -> bool:
        request.encode()
        self._sent.append((self._host, request))
        return True


class Scene:
    """An executor of a run of two tasks on each of some hosts, and what it has sent."""

    def __init__(self, table: str = "") -> None:
        names = [f"h{number}" for number in range(HOSTS)]
        tables = "".join(f'[hosts.{name}]\nssh = "{name}"\n' for name in names)
        places = ", ".join(f'"{name}:{port}"' for name in names for port in (1, 2))
        text = f'{tables}[jobs.w]\ntasks = [{places}]\n[run]\ncommand = ["true"]\n{table}'
        self.sent: list[tuple[str, Request]] = []
        shell: Any = FakeShell(text, Path("/"), {n: Link(n, self.sent) for n in names})
        self.work: list[asyncio.Task[None]] = shell.work
        self.fed: list[ev.Event] = shell.fed
        self.plan: Plan = shell.data.plan
        self.executor = Executor(shell)

    def start_all(self) -> None:
        for task in self.plan.tasks:
            self.executor.carry_out(do.StartTask(task, 1, gated=False))

    async def begun(self) -> None:
        """The first host has been told to start its tasks."""
        async with asyncio.timeout(PATIENCE):
            while not self.sent:  # noqa: ASYNC110
                await asyncio.sleep(0)

    async def end(self) -> None:
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*self.work)

    def kinds(self, host: str) -> list[type[Request]]:
        return [type(request) for to, request in self.sent if to == host]


async def test_a_kill_of_everything_comes_before_starts_that_wait() -> None:
    """The kill is sent at once, and no host that has not been told to start a task is told
    later."""
    scene = Scene()
    scene.start_all()
    await scene.begun()
    for host in scene.plan.hosts:
        scene.executor.carry_out(do.KillHost(host.name, None, 1.0))
    sent = list(scene.sent)
    await scene.end()
    assert (
        scene.sent == sent
        and [k for _, k in sent if isinstance(k, Kill)] == [Kill(0, None, 1.0)] * HOSTS
    )
    assert scene.kinds("h0") == [Start, Start, Kill] and scene.kinds("h19") == [Kill]


async def test_a_start_that_fits_into_no_frame_is_that_tasks_error() -> None:
    """The error is known before the host is told; the run goes on, and so do the other tasks."""
    env = ", ".join(f'LONG{n} = "{chr(0xFC) * 65_000}"' for n in range(12))  # each is 6 bytes
    scene = Scene(f'[jobs.x]\ntasks = ["h0:3"]\nenv = {{ {env} }}\n')
    scene.start_all()
    await scene.end()
    (error,) = [each for each in scene.fed if isinstance(each, ev.TaskStarted)]
    assert (str(error.task), error.attempt, error.pid) == ("x:0", 1, 0)
    assert "START of 4" in error.error and "at most 4194304" in error.error
    assert scene.kinds("h0") == scene.kinds("h19") == [Start, Start]


async def test_a_kill_of_one_task_comes_behind_its_start() -> None:
    """The host is told at once what waits for it, in its order; the other hosts follow."""
    scene = Scene()
    scene.start_all()
    task = scene.plan.on_host("h19")[1]
    scene.executor.carry_out(do.ReleaseTask(task, 1))
    scene.executor.carry_out(do.KillHost("h19", (task.id,), 0.0))
    assert scene.kinds("h19") == [Start, Start, Release, Kill] and len(scene.sent) == 4
    await scene.end()
    starts = [request.task for _, request in scene.sent if isinstance(request, Start)]
    assert len(starts) == len(set(starts)) == 2 * HOSTS


async def test_the_loop_is_free_between_the_hosts() -> None:
    """What else is due has its turn while starts are sent."""
    scene = Scene()
    scene.start_all()
    turns = 0
    while not scene.work[0].done():
        turns += 1
        await asyncio.sleep(0)
    assert turns > HOSTS


async def test_a_time_limit_of_a_task_that_does_not_start_any_more_is_no_event() -> None:
    """Thousands end at the same time, and each event would be stored."""
    scene = Scene()
    ended = asyncio.Event()
    for task in scene.plan.tasks:
        scene.executor.carry_out(do.SetTimer(ReadyTimeout(task.id, 1), 0.01))
    scene.executor.carry_out(do.SetTimer(ShutdownTimeout(), 0.02))
    asyncio.get_running_loop().call_later(0.03, ended.set)
    await ended.wait()
    assert [event.timer for event in scene.fed if isinstance(event, ev.TimerFired)] == [
        ShutdownTimeout()
    ]
