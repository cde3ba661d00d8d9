"""Output and exits of many tasks, as the launcher's loop hears them."""

from __future__ import annotations

import asyncio
import os
import threading
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
from launcher.session.output import Outputs
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
