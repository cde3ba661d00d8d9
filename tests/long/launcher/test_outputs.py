"""Output and exits of many tasks, as the launcher's loop hears them."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from launcher.hosts.frames import TaskFacts
from launcher.ids import TaskId
from launcher.run import events as ev
from launcher.run.machine import RunStateMachine
from launcher.session import output as module
from launcher.session.output import OutputNews, Outputs
from launcher.store.logs import LogFile, LogStore
from tests.support.patience import PATIENCE
from tests.support.shells import FakeShell

FIRST, SECOND = TaskId("w", 0), TaskId("w", 1)


class Scene:
    """The outputs of a run whose tasks are all on one host, a remote one or, for the logs, this
    machine (`local`), and what they tell."""

    def __init__(self, folder: Path, tasks: int, local: bool) -> None:
        places = ", ".join(f'"h:{2222 + number}"' for number in range(tasks))
        text = f'[hosts.h]\nssh = "h"\n[jobs.w]\ntasks = [{places}]\n'
        text += '[run]\ncommand = ["x"]\n[start.ready]\nw = "started"\n'
        link = SimpleNamespace(settings=SimpleNamespace(local=local))
        shell: Any = FakeShell(text, folder, {"h": link})
        self.run: RunStateMachine = shell.machine
        for event in (ev.Begin(1.0), ev.HostUp(1.0, "h", (), ""), ev.HostsChecked(1.0, {})):
            self.run.handle(event)
        self.run.handle(ev.Staged(1.0, "h"))
        for task in self.run.data.plan.tasks:
            self.run.handle(ev.TaskStarted(2.0, task.id, 1, 100, 0))
        self.fed: list[ev.Event] = shell.fed
        self.work: list[asyncio.Task[None]] = shell.work
        self.troubles: list[str] = []
        shell.disk = SimpleNamespace(complain=self.troubles.append)
        shell.hangs = SimpleNamespace(begin=lambda reason, task: None)
        self.outputs = Outputs(shell, LogStore(folder))
        self.outputs.begin()


@contextmanager
def a_scene(folder: Path, tasks: int, *, local: bool = False) -> Iterator[Scene]:
    scene = Scene(folder, tasks, local)
    try:
        yield scene
    finally:
        scene.outputs.monitor.close()


def exited(task: TaskId, size: int) -> TaskFacts:
    """The agent's word of a task that has written so much and exited 0."""
    return TaskFacts(
        task=task,
        attempt=1,
        pid=100,
        error="",
        ended=True,
        status=0,
        signal=None,
        listening=False,
        size=size,
        began_at=0,
        eof=True,
        lost=0,
        cut=0,
    )


async def test_exits_that_wait_for_output_are_not_looked_through_for_each_piece(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only those are looked at whose output has come, and they are told then."""
    with a_scene(tmp_path, 500) as scene:
        outputs = scene.outputs
        for task in scene.run.data.plan.tasks:
            outputs.exited(exited(task.id, 4), at_once=False)
        looks = 0
        size = outputs.monitor.size

        def counted(task: TaskId) -> int:
            nonlocal looks
            looks += 1
            return size(task)

        monkeypatch.setattr(outputs.monitor, "size", counted)
        for number in range(20):
            outputs.monitor.store(TaskId("w", number), 0, b"end\n", lambda _: None)
        async with asyncio.timeout(PATIENCE):
            while len(scene.fed) < 20:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        told = {event.task.index for event in scene.fed if isinstance(event, ev.TaskExited)}
        assert told == set(range(20)) and looks <= 2 * 20


async def test_silence_is_time_in_which_something_could_be_heard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lid that was shut, a clock that is set and a loop that stood still are no silence; a task
    that hangs is told all the same, as one of many that are watched together."""
    monkeypatch.setattr(module, "_SILENCE_PACE", 0.05)
    with a_scene(tmp_path, 3) as scene:
        outputs = scene.outputs
        outputs.watch_silence(FIRST, 1.0)
        outputs.watch_silence(SECOND, 1.0)
        (watch,) = scene.work
        await asyncio.sleep(0.1)
        real = time.time
        monkeypatch.setattr(time, "time", lambda: real() + 100)
        time.sleep(1.5)  # noqa: ASYNC251
        await asyncio.sleep(0.1)
        assert scene.fed == []
        monkeypatch.setattr(time, "time", lambda: real() - 100)
        async with asyncio.timeout(PATIENCE):
            while not any(isinstance(event, ev.OutputStalled) for event in scene.fed):
                outputs._handle(OutputNews(went_on={FIRST: time.time()}))
                await asyncio.sleep(0.01)
        told = [event for event in scene.fed if isinstance(event, ev.OutputStalled)]
        assert [event.task for event in told] == [SECOND] and told[0].seconds >= 1.0
        scene.run.handle(ev.TaskExited(9.0, FIRST, 1, 0, None))
        async with asyncio.timeout(PATIENCE):
            await watch  # an end is no silence, and nothing is left to be watched
        assert [event for event in scene.fed if isinstance(event, ev.OutputStalled)] == told
        outputs.watch_silence(TaskId("w", 2), 1.0)
        assert len(scene.work) == 2
        scene.work[1].cancel()


@pytest.mark.parametrize("how", ["removed", "moved", "cut"])
async def test_a_log_of_this_machine_that_is_gone_does_not_hide_the_end(
    tmp_path: Path, how: str
) -> None:
    """Somebody makes room on the disk while the task runs: its exit is told at once, and nobody
    waits for the rest of its output."""
    with a_scene(tmp_path, 1, local=True) as scene:
        outputs, log = scene.outputs, tmp_path / "w-0.log"
        log.write_bytes(b"x\n" * 100)
        outputs.monitor.grown(FIRST, 200)
        await until(lambda: outputs.monitor.size(FIRST) == 200)
        match how:
            case "removed":
                log.unlink()
            case "moved":
                log.rename(tmp_path / "elsewhere")
            case _:
                os.truncate(log, 10)
        facts = exited(FIRST, 260)
        outputs.exited(facts, at_once=False)
        outputs.ended(facts)
        await until(lambda: scene.fed)
        (told,) = scene.fed
        assert isinstance(told, ev.TaskExited) and (told.task, told.status) == (FIRST, 0)
        (view,) = scene.run.snapshot().tasks
        assert outputs.is_whole(view) and outputs.is_cut(view)
        assert any("w-0.log" in text for text in scene.troubles)


async def test_a_log_of_this_machine_that_is_slow_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exit is told with the lines that the disk gives late."""
    with a_scene(tmp_path, 1, local=True) as scene:
        (tmp_path / "w-0.log").write_bytes(b"x\n" * 130)
        go, grown = threading.Event(), LogFile.grown

        def slow(log: LogFile, size: int) -> None:
            go.wait(PATIENCE)
            grown(log, size)

        monkeypatch.setattr(LogFile, "grown", slow)
        scene.outputs.exited(exited(FIRST, 260), at_once=False)
        await asyncio.sleep(0.3)
        assert scene.fed == []
        go.set()
        await until(lambda: scene.fed)
        assert not scene.outputs.is_cut(scene.run.snapshot().tasks[0]) and not scene.troubles


async def until(condition: Callable[[], object]) -> None:
    """Waits for what comes from the monitor's thread."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
