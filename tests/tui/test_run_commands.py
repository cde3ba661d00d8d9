"""Parts of the run screen, each alone: no run screen, and questions answered by the test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from textual.app import App, ComposeResult
from textual.notifications import SeverityLevel
from textual.pilot import Pilot

from launcher.ids import TaskId
from launcher.run.states import TaskState
from launcher.store.logs import LogFile
from tests.tui.fakes import ScriptedRun
from tui.log.log_views import LogViews
from tui.pane_layout import Arrangement, PaneLayout
from tui.screens.run.chrome import Chrome
from tui.screens.run.error_commands import ErrorCommands
from tui.screens.run.frame_clock import FrameClock
from tui.screens.run.interaction import Interaction
from tui.screens.run.line_commands import LineCommands
from tui.screens.run.pane_area import PaneArea
from tui.screens.run.pane_commands import PaneCommands
from tui.screens.run.search_commands import SearchCommands
from tui.screens.run.task_commands import TaskCommands
from tui.screens.run.task_monitor import TaskMonitor
from tui.widgets.prompt import Prompt


class Answers(Interaction):
    """An interaction that answers from a list and keeps what was said."""

    def __init__(self, *answers: str | bool | None) -> None:
        self.answers = list(answers)
        self.said: list[str] = []
        self.copied = ""
        self.browser = False

    def notify(
        self,
        message: str,
        *,
        severity: SeverityLevel = "information",
        timeout: float | None = None,
    ) -> None:
        self.said.append(message)

    async def ask(self, question: str, text: str | None = None) -> str | None:
        answer = self.answers.pop(0)
        assert not isinstance(answer, bool)
        return answer

    async def confirm(self, question: str, why: str) -> bool:
        self.said.append(f"{question} {why}")
        return self.answers.pop(0) is True

    def copy(self, text: str) -> None:
        self.copied = text

    def open_url(self, url: str) -> bool:
        return self.browser

    def key(self, command: str) -> str:
        return f"<{command}>"


class AreaApp(App[None]):
    """A pane area and nothing else."""

    CSS = "LogPane { width: 1fr; }"

    def __init__(self, run: ScriptedRun) -> None:
        super().__init__()
        self.run_control = run
        layout = PaneLayout()
        layout.update(run.snapshot())
        views = LogViews(run.logs, run.snapshot())
        self.changes = 0
        self.area = PaneArea(layout, views, lambda pane: self.set_focus(pane), self._changed)

    def _changed(self) -> None:
        self.changes += 1

    def compose(self) -> ComposeResult:
        yield self.area


@asynccontextmanager
async def area_of(run: ScriptedRun) -> AsyncIterator[tuple[Pilot[None], AreaApp]]:
    app = AreaApp(run)
    async with app.run_test(size=(120, 40)) as pilot:
        app.area.place()
        await pilot.pause()
        yield pilot, app
        app.area.views.close()


async def test_a_ps_is_restarted_after_a_yes_only(run: ScriptedRun) -> None:
    """Workers depend on it; a worker restarts without a question."""
    run.all_tasks(state=TaskState.RUNNING)
    layout = PaneLayout()
    layout.update(run.snapshot())
    answers = Answers(False, True)
    commands = TaskCommands(run, layout, answers)
    await commands.restart(hard=False)
    assert run.asked == []
    assert answers.said == ["restart ps:0? The ps serves workers that still run."]
    await commands.signal("KILL")
    layout.focus(TaskId("worker", 2))
    await commands.restart(hard=True)
    assert run.asked == ["signal ps:0 KILL", "restart worker:2 hard"]
    run.end()
    await commands.restart(hard=True)
    assert answers.said[-1] == "the run is over" and len(run.asked) == 2


async def test_a_page_without_a_browser_is_copied(run: ScriptedRun) -> None:
    """The only page there is, whichever task has the focus."""
    run.task("worker:0", url="http://127.0.0.1:6006/")
    layout = PaneLayout()
    layout.update(run.snapshot())
    answers = Answers()
    TaskCommands(run, layout, answers).open_page()
    assert answers.copied == "http://127.0.0.1:6006/"


async def test_panes_by_name_and_arrangement(run: ScriptedRun) -> None:
    """A short name focuses a task, a wrong one is said; the merged log takes the whole area."""
    async with area_of(run) as (_, app):
        answers = Answers("w2", "nobody", None)
        search = SearchCommands(app.area, answers)
        commands = PaneCommands(app.area, search, answers)
        await commands.ask_name()
        assert app.area.pane_layout.focused == TaskId("worker", 2)
        await commands.ask_name()
        await commands.ask_name()
        assert answers.said == ["no task is called 'nobody'"]
        assert app.area.pane_layout.focused == TaskId("worker", 2)
        changes = app.changes
        commands.toggle_merged()
        assert app.area.pane_layout.effective is Arrangement.MERGED
        assert app.area.pane is not None and app.area.pane.view is not None
        assert app.area.pane.view.task is None and app.changes > changes
        assert commands.toggle_task()
        assert app.area.views.off == {TaskId("worker", 2)}


async def test_search_and_filter_of_the_focused_pane(run: ScriptedRun) -> None:
    """A hit is marked in the view; a filter shows the lines that hit; no answer changes nothing."""
    run.write("ps:0", b"hay\nneedle\nhay\n")
    async with area_of(run) as (pilot, app):
        search = SearchCommands(app.area, Answers("needle", None, "hay", ""))
        await search.ask_query()
        view = app.area.views.of(TaskId("ps", 0))
        while view.cursor is None:
            await pilot.pause(0.01)
            search.follow()
        assert view.cursor == 1
        assert search.stop() and not search.stop()
        await search.ask_filter()
        assert app.area.views.filter_of(view.task) == ""
        await search.ask_filter()
        while view.lines.count < 2:
            await pilot.pause(0.01)
            app.area.poll()
        assert search.note(view) == "&hay 2 lines"
        await search.ask_filter()
        assert view.lines.count == 3
        search.close()


async def test_the_first_failure_is_shown_though_a_filter_hides_it(run: ScriptedRun) -> None:
    """Its last line has the cursor; without a failure that is said."""
    run.write("worker:1", b"fine\nValueError: x\n")
    async with area_of(run) as (pilot, app):
        answers = Answers()
        search = SearchCommands(app.area, answers)
        errors = ErrorCommands(run, app.area, search, answers)
        errors.first_failure()
        assert answers.said == ["no task has failed"]
        view = app.area.views.of(TaskId("worker", 1))
        search.filter_lines(view, "fine")
        while view.lines.count < 1:
            await pilot.pause(0.01)
            view.lines.refresh()
        errors.step(1)
        while view.cursor is None:
            await pilot.pause(0.01)
            errors.follow()
        assert view.cursor == 1 and app.area.pane_layout.focused == view.task
        assert answers.said[-1] == "error 1 of 1"
        errors.close()
        search.close()


async def test_lines_are_selected_copied_and_saved(run: ScriptedRun, tmp_path: Path) -> None:
    """The scroll commands move the end of the selection; a file that is there is not replaced."""
    run.write("ps:0", b"".join(b"line %d\n" % i for i in range(9)))
    async with area_of(run) as (_, app):
        file = str(tmp_path / "saved.txt")
        answers = Answers(file, file, None, "~nosuchuser/log.txt", "x" * 300, "\0")
        lines = LineCommands(lambda: app.area.pane, run.logs, answers)
        lines.toggle_selection()
        lines.scroll(-1)
        lines.copy()
        assert answers.copied == "line 7\nline 8\n"
        assert not lines.leave_selection()
        lines.toggle_selection()
        lines.go_home()
        await lines.save("run-1")
        assert (tmp_path / "saved.txt").read_text().split("\n")[::8] == ["line 0", "line 8"]
        await lines.save("run-1")
        await lines.save("run-1")
        assert answers.said[-1].startswith("not saved: ")
        await lines.save("run-1")
        assert answers.said[-1] == "not saved: ~nosuchuser/log.txt: there is no such user"
        await lines.save("run-1")
        assert "File name too long" in answers.said[-1]
        await lines.save("run-1")
        assert answers.said[-1] == "not saved: embedded null byte"
        assert lines.leave_selection()
        lines.show_keys()
        assert answers.said[-1] == "<log.copy> copies, <log.save> saves, <back> leaves"


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


async def test_the_clock_slows_down_and_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames without news come less often; after a frame that took long logs are left alone."""
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr("tui.screens.run.frame_clock.asyncio.sleep", sleep)
    news = iter([True] * 3 + [False] * 40 + [True])
    clock = FrameClock(lambda: next(news), lambda: len(waits) < 44)
    await clock.run()
    assert waits[:5] == [1 / 30] * 5 and waits[42] == 1 / 10 and waits[43] == 1 / 30
    now = 100.0
    monkeypatch.setattr("tui.screens.run.frame_clock.time.monotonic", lambda: now)
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


def test_the_monitor_finds_stalls_and_alerts(run: ScriptedRun) -> None:
    """A task whose step is overdue, and the newest complaint of a live one."""
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
    assert monitor.stalled == {TaskId("worker", 1): pytest.approx(91.0)}
    assert monitor.alert == "! worker:0: port in use"
    assert monitor.sparklines.keys() == {TaskId("worker", 1)}


def test_a_clock_that_is_set_stalls_nobody(run: ScriptedRun) -> None:
    """A wall clock that jumps by an hour, forwards or backwards, says nothing of a task's steps."""
    line = b"After %d training steps (%d global steps), loss on training batch is 0.5.\n"
    for i in range(10):
        run.write("worker:1", line % (i, i), now=1000.0 + i)
    run.write("worker:2", line % (1, 1), now=1009.0)
    monitor = TaskMonitor(run)
    stalled = []
    for now in (1010.0, 1010.0 + 3600, 1010.0 - 3600):
        monitor.update(run.snapshot(), [], {}, now)
        stalled.append(dict(monitor.stalled))
    assert stalled == [{}, {}, {}]


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


class ChromeApp(AreaApp):
    """A pane area with its chrome."""

    CSS = """
    RunHeader, StatusStrip, KeyFooter { height: 1; }
    PaneArea { height: 1fr; }
    PaneGrid { width: 1fr; height: 1fr; }
    OutcomePanel { height: auto; }
    """

    def __init__(self, run: ScriptedRun) -> None:
        super().__init__(run)
        self.monitor = TaskMonitor(run)
        self.chrome = Chrome(run.snapshot(), self.area, self.monitor, lambda view: "a note")

    def compose(self) -> ComposeResult:
        yield self.chrome.header
        yield self.chrome.strip
        yield self.area
        yield self.chrome.outcome
        yield self.chrome.footer


async def test_the_chrome_follows_layout_and_outcome(run: ScriptedRun) -> None:
    """Titles name the tasks in sight; how the run ended is hidden once."""
    app = ChromeApp(run)
    async with app.run_test(size=(120, 40)) as pilot:
        while len(app.area.grid.panes) < 4:
            await pilot.pause(0.01)
            app.area.place_resized()
        app.chrome.show_panes()
        titles = [pane._title.parts[0].text for pane in app.area.grid.panes]
        assert titles == ["ps:0", "worker:0", "worker:1", "worker:2"]
        app.area.pane_layout.arrangement = Arrangement.MERGED
        app.area.refocus()
        app.chrome.show_panes()
        title = app.area.grid.panes[0]._title.parts[0].text
        assert title == "all logs, 4 of 4 tasks, by time of receipt"
        assert not app.chrome.hide_outcome()
        run.end()
        app.chrome.outcome.show(run.snapshot())
        await pilot.pause()
        assert app.chrome.outcome.region.height > 0
        assert app.chrome.hide_outcome() and not app.chrome.hide_outcome()
        app.area.views.close()
