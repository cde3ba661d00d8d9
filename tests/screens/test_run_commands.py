"""Parts of the run screen: its prompt, its clock, its monitor; and lines that are saved."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from textual.app import App, ComposeResult

from launcher.ids import TaskId
from launcher.run.snapshot import Failure
from launcher.run.states import TaskState
from launcher.store.logs import LogFile
from tests.support import patience
from tests.support.fakes import ScriptedRun
from tests.support.screens import showing, shows, until
from tui.app import TfmuxApp
from tui.config import Config
from tui.screens.run_screen import FrameClock, RunScreen
from tui.task_monitor import TaskMonitor
from tui.widgets.pane import Pane
from tui.widgets.prompt import Prompt


async def test_the_first_failure_is_shown_though_a_filter_hides_it(run: ScriptedRun) -> None:
    """The end of its log is in sight; without a failure, and for an unknown name, that is said."""
    run.write("worker:1", b"fine\nValueError: x\n")
    async with showing(run, (120, 40)) as (app, pilot):
        await shows(pilot, "ValueError: x")
        screen = app.screen
        assert isinstance(screen, RunScreen)
        view = screen.area.views.of(TaskId("worker", 1))
        await pilot.press("exclamation_mark", "apostrophe", *"nobody", "enter")
        told = [note.message for note in app._notifications]
        none = "no task has failed, and none has stalled"
        assert told == [none, "no task is called 'nobody'"]
        await pilot.press("3", "ampersand", *"fine", "enter")
        await until(pilot, lambda: view.lines.count == 1)
        run.end(failure=Failure(TaskId("worker", 1), "tf3", "exit 1", 1000.0, (), ()))
        await pilot.press("1", "exclamation_mark")
        await until(pilot, lambda: view.lines.count == 2)
        await shows(pilot, "ValueError: x")
        assert screen.area.pane_layout.focused == view.task
        await pilot.press("r", "exclamation_mark")
        assert run.asked == []


async def test_lines_are_selected_and_saved(run: ScriptedRun, tmp_path: Path) -> None:
    """The scroll keys move the end of the selection; a file that is there is not replaced, and a
    name that no file can have is told."""
    run.write("worker:0", b"".join(b"line %d\n" % i for i in range(9)))
    app = TfmuxApp(run, config=Config())
    file = tmp_path / "saved.txt"

    async def save(name: str) -> str:
        count = len(app._notifications)
        await until(pilot, lambda: isinstance(app.focused, Pane))
        saving = asyncio.ensure_future(pilot.press("ctrl+s"))
        prompt = app.screen.query_one(Prompt)
        await until(pilot, lambda: prompt._answer is not None and prompt.display)
        await saving
        prompt._close(name)
        await until(pilot, lambda: len(app._notifications) > count)
        return [note.message for note in app._notifications][-1]

    async with app.run_test(size=(120, 40)) as pilot:
        await shows(pilot, "line 8")
        await pilot.press("v", "g")
        assert await save(str(file)) == f"9 lines saved to {file}"
        assert file.read_text().split("\n")[::8] == ["line 0", "line 8"]
        assert (await save(str(file))).startswith("not saved: ")
        missing = "not saved: ~nosuchuser/log.txt: there is no such user"
        assert await save("~nosuchuser/log.txt") == missing
        assert "File name too long" in await save("x" * 300)
        assert await save("\0") == "not saved: embedded null byte"
        await pilot.press("escape")
        pane = app.focused
        assert isinstance(pane, Pane) and pane.view and pane.view.selection is None


async def test_a_prompt_is_awaited() -> None:
    """Enter answers, Escape and a second question answer with nothing; the last answer to the
    same question is offered again."""

    class PromptApp(App[None]):
        def compose(self) -> ComposeResult:
            yield Prompt()

    app = PromptApp()
    async with app.run_test() as pilot:
        prompt = app.query_one(Prompt)

        async def answer(question: str, *keys: str) -> str | None:
            asked = asyncio.ensure_future(prompt.ask(question))
            await asyncio.sleep(0)
            assert prompt.display
            await pilot.press(*keys)
            return await asked

        assert await answer("/", *"one", "enter") == "one"
        assert not prompt.display
        assert await answer("name", "enter") == ""
        assert await answer("/", "enter") == "one"
        assert await answer("/", *"two", "escape") is None
        first = asyncio.ensure_future(prompt.ask("/"))
        await asyncio.sleep(0)
        second = asyncio.ensure_future(prompt.ask("name", "x"))
        assert await first is None
        await pilot.press("enter")
        assert await second == "x"


async def test_the_clock_waits_for_news_in_quiet_hours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then there is one frame for what is new, and a few for what a person does."""
    monkeypatch.setattr("tui.screens.run_screen.FRAME", 0.0)
    frames: list[bool] = []
    waits: list[int] = []
    news: set[int] = set()

    def frame() -> bool:
        frames.append(len(frames) in news)
        return frames[-1]

    def rest() -> float:
        waits.append(len(frames))
        return 3600.0

    clock = FrameClock(frame, rest, lambda: True)
    running = asyncio.create_task(clock.run())
    await patience.until(lambda: waits, "rests")
    assert waits == [1]
    clock.hear()
    await patience.until(lambda: len(waits) == 2, "rests after a frame")
    assert waits == [1, 2]
    clock.wake()
    await patience.until(lambda: len(waits) == 3, "rests after some frames")
    assert waits[2] == 2 + 10
    news.add(len(frames))
    clock.hear()
    await patience.until(lambda: len(waits) == 4, "rests after news")
    assert waits[3] == 12 + 2
    running.cancel()


def test_the_clock_rests_after_a_painting(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a frame that took long logs are left alone."""
    clock = FrameClock(lambda: False, lambda: 1.0, lambda: True)
    now = 100.0
    monkeypatch.setattr("tui.screens.run_screen.time.monotonic", lambda: now)
    states = [clock.resting]
    clock.rest_after(now - 0.05)
    states.append(clock.resting)
    now += 0.16
    states.append(clock.resting)
    assert states == [False, True, False]
    clock.rest_after(now)
    assert clock.resting, "lines that scroll by are painted at most ten times a second"
    now += 0.11
    assert not clock.resting


def test_the_monitor_finds_alerts(run: ScriptedRun) -> None:
    """The newest complaint of a live task."""
    for i in range(10):
        run.write(
            "worker:1",
            b"After %d training steps (%d global steps), loss on training batch is 0.5.\n" % (i, i),
            now=1000.0 + i,
        )
    run.task("worker:0", state=TaskState.READY, last_output=1099.0)
    run.write("worker:0", b"UnknownError: Could not start gRPC server\n", now=1099.0)
    monitor = TaskMonitor(run)
    monitor.update(run.snapshot(), [TaskId("worker", 1)], {}, 1100.0)
    assert monitor.alert == "! worker:0: port in use"
    assert monitor.sparklines.keys() == {TaskId("worker", 1)}


def test_alerts_of_a_thousand_logs_come_little_by_little(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each second a few logs are read, in turn: the screen has its keys to answer meanwhile."""
    run = ScriptedRun(tmp_path, workers=300)
    read: list[str] = []
    for task in run.snapshot().tasks:
        run.task(str(task.id), state=TaskState.RUNNING, last_output=1099.0)
        run.write(str(task.id), b"working\n", now=1099.0)
    run.write("worker:299", b"UnknownError: Could not start gRPC server\n", now=1099.0)
    reading = LogFile.read

    def counted(file: LogFile, *where: int) -> bytes:
        read.append(file.path.stem)
        return reading(file, *where)

    monkeypatch.setattr(LogFile, "read", counted)
    monitor = TaskMonitor(run)
    counts = []
    while not monitor.alert:
        before = len(read)
        monitor.update(run.snapshot(), [], {}, 1100.0)
        counts.append(len(read) - before)
    assert counts == [64, 64, 64, 64, 45] and len(set(read)) == 301
    assert monitor.alert == "! worker:299: port in use"
    for _ in range(5):
        monitor.update(run.snapshot(), [], {}, 1100.0)
    assert len(read) == 301, "a log that has not grown is not read again"
