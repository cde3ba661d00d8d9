"""Thousands of tasks on a screen: those that went wrong are found."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rich.text import Text
from textual.app import App, ComposeResult

from launcher.ids import TaskId
from launcher.run.snapshot import HostView, Snapshot, TaskView
from launcher.run.states import HostState, RunPhase, TaskState
from tests.support import patience
from tests.support.fakes import ScriptedRun
from tests.support.screens import screen_text, shows, until
from tui.app import TfmuxApp
from tui.config import Config
from tui.pane_layout import PaneLayout, listed
from tui.screens.run_screen import RunScreen
from tui.widgets.task_list import SUMMARY_ROWS, StatusStrip, TaskClicked

TASKS = tuple(
    TaskView(TaskId("worker", n), f"h{n // 8}", "a:1", TaskState.READY, attempt=1)
    for n in range(8000)
)
RUN = Snapshot("r", "r", RunPhase.RUNNING, 1.0, tasks=TASKS)


def failed(*numbers: int) -> Snapshot:
    """The run with some failed tasks."""
    tasks = list(TASKS)
    for number in numbers:
        tasks[number] = replace(tasks[number], state=TaskState.FAILED, exit_code=1)
    return replace(RUN, tasks=tuple(tasks))


class Strip(App[None]):
    """A status strip alone."""

    clicked: TaskId | None = None

    def compose(self) -> ComposeResult:
        yield StatusStrip()

    def on_task_clicked(self, event: TaskClicked) -> None:
        self.clicked = event.task


async def rows(app: Strip, *wanted: str) -> None:
    """Waits until the first rows of the screen are these."""
    await patience.until(
        lambda: tuple(row.rstrip() for row in screen_text(app)[: len(wanted)]) == wanted,
        f"the rows {wanted}",
    )


async def test_the_strip_counts_tasks_and_names_those_that_failed() -> None:
    """Two rows before and after the first failure; a click on a name focuses the task."""
    app = Strip()
    async with app.run_test(size=(80, 24)) as pilot:
        strip = app.query_one(StatusStrip)
        strip.show(RUN, TASKS[0].id)
        await patience.until(lambda: strip.size.height == SUMMARY_ROWS, "two rows")
        await rows(app, "worker  8,000 ready", "")
        strip.show(failed(4321, 7000), TASKS[0].id)
        await rows(app, "worker  2 failed  7,998 ready", "✗ worker:4321  ✗ worker:7000")
        assert strip.size.height == SUMMARY_ROWS
        await pilot.click(StatusStrip, offset=(17, 1))
        await patience.until(lambda: app.clicked == TaskId("worker", 7000), "the click")
        strip.show(failed(*range(100, 200)), TASKS[0].id)
        await pilot.pause()
        assert isinstance(drawn := strip.render(), Text)
        assert drawn.plain.endswith("…") and strip.size.height == SUMMARY_ROWS


def test_a_list_begins_with_what_failed_and_the_arrows_follow_it() -> None:
    """The order among the others stays; a small run keeps the order of its start."""
    run = failed(4321, 7000)
    assert [task.id.index for task in listed(run.tasks)][:4] == [4321, 7000, 0, 1]
    assert listed(run.tasks[4300:4330]) == run.tasks[4300:4330]
    layout = PaneLayout()
    layout.update(run)
    layout.focus(TaskId("worker", 4321))
    layout.step(1)
    assert layout.focused == TaskId("worker", 7000)
    layout.step(1)
    assert layout.focused == TaskId("worker", 0)


class Compared(TaskId):
    """A task that counts comparisons: a hundred for each task are enough."""

    times = 0

    def __eq__(self, other: object) -> bool:
        Compared.times += 1
        assert Compared.times < 100 * len(TASKS)
        return super().__eq__(other)

    __hash__ = TaskId.__hash__


def test_all_may_fail_at_once() -> None:
    """What is done for each task does not grow with their number: it took minutes."""
    tasks = [replace(task, id=Compared(*task.id)) for task in failed(*range(8000)).tasks]
    calm = [replace(task, state=TaskState.READY, exit_code=None) for task in tasks]
    layout = PaneLayout()
    layout.update(replace(RUN, tasks=tuple(calm)))
    run = replace(RUN, tasks=tuple(tasks))
    for _ in range(5):
        layout.update(run)
        assert layout.pages()
    assert Compared.times


async def test_of_many_hosts_those_in_trouble_come_first(run: ScriptedRun) -> None:
    """A host that is lost, and one with a failed task; the last one can be scrolled to, and a
    click on a title orders them: the lost one, whose load nobody knows, comes last."""
    hosts = [HostView(f"h{n}", f"h{n}", HostState.UP, cpu=n / 1000) for n in range(1000)]
    hosts[900] = replace(hosts[900], state=HostState.LOST, reason="no answer")
    run.change(state=RunPhase.RUNNING, tasks=failed(4321).tasks, hosts=tuple(hosts))
    app = TfmuxApp(run, config=Config())

    def names() -> list[str]:
        """Names of the hosts in sight."""
        rows = [row.strip(" │").split() for row in screen_text(app)]
        return [row[0] for row in rows if row and row[0][0] == "h" and row[0][1:].isdigit()]

    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("H")
        await until(pilot, lambda: names()[:3] == ["h540", "h900", "h0"])
        await shows(pilot, "✗ worker:4321")
        await shows(pilot, "no answer")
        await pilot.press("end")
        await until(pilot, lambda: names()[-1:] == ["h999"])
        await shows(pilot, "Tasks on h999")
        await pilot.press("home")
        await until(pilot, lambda: names()[:1] == ["h540"])
        for first in ("h0", "h999"):
            header = next(row for row in screen_text(app) if "memory" in row)
            y = screen_text(app).index(header)
            await pilot.click(offset=(header.index("cpu"), y))
            await until(pilot, lambda first=first: names()[:1] == [first])  # type: ignore[misc]
            await pilot.press("end")
            await until(pilot, lambda: names()[-1:] == ["h900"])
            await pilot.press("home")


async def test_many_notes_do_not_cover_the_logs(
    run: ScriptedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A note for each of a hundred hosts filled the screen; and since only the last hundred are
    kept, those that came after them were never shown."""
    monkeypatch.setattr("tui.screens.run_screen._NOTE_SECONDS", 600)  # a busy machine takes longer
    app = TfmuxApp(run, config=Config())
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        run.change(notes=tuple(f"lost h{number}" for number in range(100)))
        await shows(pilot, "and 96 other notes")
        assert "lost h3" in "\n".join(screen_text(app))
        assert "lost h4" not in "\n".join(screen_text(app))
        screen = app.screen
        assert isinstance(screen, RunScreen)
        run.change(notes=(*run.snapshot().notes[1:], "the newest"))
        await until(pilot, lambda: bool(screen._notes))  # it waits for room
        screen._noted.clear()  # eight seconds later
        await shows(pilot, "the newest")
