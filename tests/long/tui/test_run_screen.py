"""The screen of a run: panes, stages, metrics, the queue of Slurm, thousands of tasks."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.text import Text
from textual.app import App, ComposeResult
from textual.pilot import Pilot

from launcher.ids import TaskId
from launcher.run.snapshot import (
    AllocationView,
    Failure,
    HostReceipt,
    HostView,
    Receipt,
    Snapshot,
    Survivor,
    TaskView,
)
from launcher.run.states import HostState, Outcome, RunPhase, TaskState
from tests.support import patience
from tests.support.fakes import ScriptedRun
from tests.support.patience import PATIENCE
from tests.support.screens import (
    focused_task,
    run_screen,
    screen_text,
    showing,
    shows,
    until,
    visible,
)
from tui import curves
from tui.app import TfmuxApp
from tui.config import Config
from tui.curves import band, curve
from tui.format import StatusColor
from tui.pane_layout import Arrangement, PaneLayout, listed
from tui.screens import metrics_screen
from tui.screens.dialogs import LeaveDialog, ReceiptScreen
from tui.screens.help import HelpScreen
from tui.screens.hosts_screen import HostsScreen
from tui.screens.metrics_screen import MetricsScreen
from tui.screens.run_screen import RunScreen
from tui.widgets.header import HeaderForm, stage_parts
from tui.widgets.pane import Pane
from tui.widgets.pane_area import PaneArea, PaneGrid
from tui.widgets.plot import Drawn, Scene, plot
from tui.widgets.table import Table
from tui.widgets.task_list import SUMMARY_ROWS, StatusStrip, TaskClicked

# The run screen, driven by its keys.


async def test_focus_by_keys_and_mouse(run: ScriptedRun) -> None:
    """Tab, Shift-Tab, digits, arrows, a click on a pane and one in the strip."""
    async with showing(run, (200, 50)) as (app, pilot):
        await until(pilot, lambda: isinstance(app.focused, Pane))
        assert focused_task(app) == "worker:0", "the chief: a ps has nothing to say for hours"

        async def focus_on(task: str) -> None:
            await until(pilot, lambda: focused_task(app) == task)

        for keys, task in [
            (["shift+tab"], "ps:0"),
            (["tab"], "worker:0"),
            (["shift+tab", "shift+tab"], "worker:2"),
            (["1"], "ps:0"),
            (["down"], "worker:0"),
            (["right"], "worker:1"),
            (["down"], "worker:2"),
            (["up", "left"], "worker:0"),
            (["up"], "ps:0"),
        ]:
            await pilot.press(*keys)
            await focus_on(task)
        await pilot.click(offset=(150, 40))
        await focus_on("worker:2")
        await pilot.press("z")
        await until(pilot, lambda: app.screen.query_one(StatusStrip).region.height == 1)
        await pilot.click("StatusStrip", offset=(12, 0))
        await focus_on("worker:0")


async def test_kill_all_inside_a_dialog(run: ScriptedRun) -> None:
    """F9 kills without a question even while a dialog is open; a second press goes through
    too; the receipt is shown when it is there."""
    async with showing(run, (120, 40)) as (app, pilot):
        await pilot.press("q")
        await until(pilot, lambda: isinstance(app.screen, LeaveDialog))
        await pilot.press("f9")
        await until(pilot, lambda: run.asked == ["kill_all"])
        await shows(pilot, "killing all: TERM sent, KILL in")
        await pilot.press("f9")
        await until(pilot, lambda: run.asked == ["kill_all", "kill_all force"])
        run.end(Outcome.KILLED, 130)
        await until(pilot, lambda: isinstance(app.screen, ReceiptScreen))
        await shows(pilot, "no process is left")
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, RunScreen))
        await pilot.press("q")
    assert app.return_value == 130


async def test_ctrl_c_twice_kills_and_leaves(run: ScriptedRun) -> None:
    """The second Ctrl-C kills all; the app leaves by itself once the receipt is clean."""
    async with showing(run, (120, 40)) as (app, pilot):
        await pilot.press("ctrl+c")
        await until(pilot, lambda: isinstance(app.screen, LeaveDialog))
        await pilot.press("ctrl+c")
        await until(pilot, lambda: run.asked == ["kill_all"])
        run.end(Outcome.KILLED, 130)
        await until(pilot, lambda: app.return_value is not None)
    assert app.return_value == 130


async def test_ctrl_c_copies_selected_lines(run: ScriptedRun) -> None:
    """Once; with nothing selected it asks about leaving."""
    async with showing(run, (120, 40)) as (app, pilot):
        await until(pilot, lambda: isinstance(app.focused, Pane))
        run.write("worker:0", b"one\ntwo\n")
        await shows(pilot, "two")
        await pilot.press("v", "k", "ctrl+c")
        await until(pilot, lambda: app.clipboard == "one\ntwo\n")
        assert not isinstance(app.screen, LeaveDialog)
        await pilot.press("ctrl+c")
        await until(pilot, lambda: isinstance(app.screen, LeaveDialog))


async def test_an_unclean_receipt_stays(run: ScriptedRun) -> None:
    """With a survivor or an unreachable host the app does not leave by itself, and names both."""
    run.all_tasks(state=TaskState.RUNNING)
    async with showing(run, (120, 40)) as (app, pilot):
        await pilot.press("ctrl+q", "k")
        await until(pilot, lambda: run.asked == ["kill_all"])
        hosts = (
            HostReceipt("tf1", 2, (Survivor(4121, "python -m trainer", "D"),), confirmed=True),
            HostReceipt("tf2", unreachable_until=time.time() + 60),
        )
        run.end(Outcome.KILLED, 4, receipt=Receipt(hosts))
        await shows(pilot, "tf1: pid 4121 (D) python -m trainer")
        await shows(pilot, "unreachable; its agent ends the tasks at")
        await pilot.pause(2)
        assert app.return_value is None
        await pilot.press("x")
    assert app.return_value == 4


async def test_a_receipt_shows_its_proof_and_its_keys_on_a_low_terminal(run: ScriptedRun) -> None:
    """Given a failure with many last lines, when its receipt is shown at 80×24, then the last three
    of them, what the hosts have confirmed and the keys are in sight."""
    run.all_tasks(state=TaskState.FAILED, exit_code=1, ended=1004.1)
    async with showing(run, (80, 24)) as (app, pilot):
        await pilot.press("f9")
        await until(pilot, lambda: "kill_all" in run.asked)
        tail = tuple(f"line {number} of a long story" for number in range(30))
        run.end(
            Outcome.KILLED,
            130,
            failure=Failure(TaskId("worker", 1), "tf3", "exit 1", 1000.0, (), tail),
        )
        await shows(pilot, "no process is left, 4 hosts confirmed")
        await shows(pilot, "Esc back   l launch again   e edit   y copy report   q leave")
        assert all(visible(app, f"line {number} of a long story") for number in (27, 28, 29))
        assert not visible(app, "line 26 of a long story")
        await pilot.press("escape", "question_mark")
        await shows(pilot, "Esc back")


# The cockpit around the panes: search, filter, merged log, errors, choosing, other screens.

STEP = (
    b"After %d training steps (%d global steps), loss on training batch is %.4f."
    b"  (0.010 sec/batch)\n"
)


async def test_search_through_the_whole_log(run: ScriptedRun) -> None:
    """A hit far above the end is found and shown with its count; n and N walk; Escape ends."""
    lines = [b"needle %d\n" % i if i % 30_000 == 5 else b"hay %d\n" % i for i in range(100_000)]
    run.write("worker:0", b"".join(lines))
    async with showing(run, (120, 40)) as (app, pilot):
        await shows(pilot, "hay 99999")
        await pilot.press("slash", *"needle", "enter")
        await shows(pilot, "needle 90005")
        await shows(pilot, "/needle 4 of 4")
        await pilot.press("N")
        await shows(pilot, "needle 60005")
        await shows(pilot, "/needle 3 of 4")
        await pilot.press("n", "n")
        await shows(pilot, "needle 5 ")
        await pilot.press("escape")
        await until(pilot, lambda: not visible(app, "/needle"))


async def test_threads_that_read_logs_end_with_the_screen(run: ScriptedRun) -> None:
    """Search, filter and the walk over errors keep up with logs that grow, and no longer than
    somebody looks at them."""
    run.write("worker:0", b"needle\nhay\n")
    async with showing(run, (120, 40)) as (_, pilot):
        await shows(pilot, "hay")
        await pilot.press("ampersand", *"needle", "enter", "e")
        await pilot.press("slash", *"needle", "enter")
        await shows(pilot, "/needle 1 of 1")
        readers = [t for t in threading.enumerate() if t.name in ("finder", "filter")]
        assert {"finder", "filter"} == {thread.name for thread in readers}
    for thread in readers:
        thread.join(PATIENCE)
    assert not any(thread.is_alive() for thread in readers)


async def test_layouts_in_turn(run: ScriptedRun) -> None:
    """Space steps from the rows by role to the even grid, list + detail, merged, and back."""
    async with showing(run, (200, 50)) as (app, pilot):
        await until(pilot, lambda: len(app.screen.query_one(PaneGrid).panes) == 4)

        def seen() -> tuple[Arrangement, int]:
            panes = app.screen.query_one(PaneGrid).panes
            return run_screen(app).area.pane_layout.effective, len(panes)

        await until(pilot, lambda: seen() == (Arrangement.ROLES, 4))
        for next_one in (
            (Arrangement.GRID, 4),
            (Arrangement.LIST, 1),
            (Arrangement.MERGED, 1),
            (Arrangement.ROLES, 4),
        ):
            await pilot.press("space")
            await until(pilot, partial(lambda wanted: seen() == wanted, next_one))


async def test_a_large_run_opens_as_a_full_page(tmp_path: Path) -> None:
    """64 tasks: the first page is full and has whoever failed, whatever page is theirs; one more
    takes one place there, and no other pane moves."""
    large = ScriptedRun(tmp_path, workers=63, hosts=4)
    large.all_tasks(state=TaskState.RUNNING)
    large.task("worker:40", state=TaskState.FAILED, exit_code=1)
    async with showing(large, (200, 50)) as (app, pilot):
        panes = app.screen.query_one(PaneGrid)

        def tasks() -> list[str]:
            return [str(pane.view.task) for pane in panes.panes if pane.view]

        await until(pilot, lambda: len(tasks()) == 16)
        before = tasks()
        assert before[0] == "ps:0" and {"worker:0", "worker:40"} <= set(before)
        calm = [task for task in before if task not in ("worker:0", "worker:40")]
        await pilot.press("apostrophe", *calm[-1], "enter")  # the focused one stays too
        await until(
            pilot, lambda: str(app.screen.query_one(PaneArea).pane_layout.focused) == calm[-1]
        )
        large.task("worker:8", state=TaskState.FAILED, exit_code=1)
        await until(pilot, lambda: "worker:8" in tasks())
        changed = [before[i] for i, task in enumerate(tasks()) if task != before[i]]
        assert changed == [calm[-2]]
        screen = app.screen
        assert isinstance(screen, RunScreen)
        pages = screen.area.pane_layout.pages()
        assert len({task for page in pages for task in page}) == 64 and len(pages) == 5


async def test_metrics_hosts_help_and_palette(run: ScriptedRun) -> None:
    """Each opens over the run, F9 works in all of them, and Escape leads back."""
    run.change(state=RunPhase.RUNNING, total_steps=100)
    for i in range(10):
        run.write("worker:0", STEP % (i, i * 10, 2.0 - i / 10), now=time.time() - 10 + i)
    hosts = run.snapshot().hosts
    first = replace(
        hosts[0],
        state=HostState.UP,
        cpu=0.5,
        memory_used=4_000_000_000,
        memory_total=8_000_000_000,
        usage={TaskId("ps", 0): (1.2, 500_000_000)},
    )
    run.change(hosts=(first, *hosts[1:]))
    async with showing(run, (120, 40)) as (app, pilot):
        await pilot.press("M")
        await until(pilot, lambda: isinstance(app.screen, MetricsScreen))
        await shows(pilot, "Global steps a second")
        await shows(pilot, "1.100")
        await pilot.press("f9", "H")
        await until(pilot, lambda: isinstance(app.screen, HostsScreen))
        await shows(pilot, "50 % of 8.0 GB")
        await shows(pilot, "120 %  500 MB")
        await pilot.press("f9", "question_mark")
        await until(pilot, lambda: isinstance(app.screen, HelpScreen))
        await pilot.press("f9", "escape", "escape")
        await until(pilot, lambda: isinstance(app.screen, RunScreen))
        await pilot.press("ctrl+p")
        await shows(pilot, "Kill all, detach, or stay")
        await pilot.press("f9")
        await until(pilot, lambda: run.asked == ["kill_all", *["kill_all force"] * 3])


# Stage line: the start order as a picture, at every width.

COLOURS = dict.fromkeys(StatusColor, "red")
PENDING, STARTING, READY = TaskState.PENDING, TaskState.STARTING, TaskState.READY


def tasks(job: str, stage: int, *states: TaskState, chief: bool = False) -> tuple[TaskView, ...]:
    return tuple(
        TaskView(TaskId(job, i), "h", "h:1", state, is_chief=chief and i == 0, stage=stage)
        for i, state in enumerate(states)
    )


def line(form: HeaderForm, *members: TaskView, state: RunPhase = RunPhase.STARTING) -> str:
    snapshot = Snapshot("run", "name", state, 0.0, tasks=members, waiting_since=100.0)
    return "".join(part.text for part in stage_parts(snapshot, 103.5, form, COLOURS))


def test_each_stage_fills_as_its_tasks_become_ready() -> None:
    """The example of the design: what is up, what starts and for how long, what waits."""
    ps = tasks("ps", 0, READY, READY)
    chief = tasks("chief", 1, STARTING)
    workers = tasks("worker", 2, PENDING, PENDING, PENDING)
    text = line(HeaderForm.FULL, *ps, *chief, *workers)
    assert text == "ps ██ 2/2 ▸ chief ▒ starting 3 s ▸ workers ░░░ waiting"
    assert line(HeaderForm.NARROW, *ps, *chief, *workers) == "ps ✓ ▸ chief ▸ workers 0/3"
    chief, workers = tasks("chief", 1, READY), tasks("worker", 2, READY, STARTING, PENDING)
    text = line(HeaderForm.FULL, *ps, *chief, *workers)
    assert text == "ps ██ 2/2 ▸ chief █ ✓ ▸ workers █▒░ 1/3 starting 3 s"


def test_a_worker_that_is_chief_is_a_stage_of_its_own() -> None:
    """Each task is counted once, by its name where others of its job start later; what starts
    beside the workers is shown beside them."""
    first, *others = tasks("worker", 2, READY, READY, chief=True)
    members = (
        *tasks("ps", 0, READY),
        replace(first, stage=1),
        *others,
        replace(tasks("tensorboard", 2, READY)[0], in_cluster=False),
    )
    assert line(HeaderForm.NARROW, *members) == "ps ✓ ▸ worker:0 ✓ ▸ worker:1 ✓  tensorboard ✓"


def test_states_are_seen_without_colours() -> None:
    """A failed task has a glyph and a count; of many tasks eight cells show the shares."""
    workers = tasks("worker", 0, READY, TaskState.FAILED, PENDING)
    assert line(HeaderForm.FULL, *workers) == "workers █✗░ 1/3 starting 3 s !1"
    assert line(HeaderForm.NARROW, *workers) == "workers 1/3 !1"
    many = tasks("worker", 0, *[READY] * 32, *[STARTING] * 16, *[PENDING] * 16)
    assert line(HeaderForm.FULL, *many) == "workers ████▒▒░░ 32/64 starting 3 s"


async def test_the_header_has_the_line_at_every_width(run: ScriptedRun) -> None:
    """80 columns have its narrow form and what is waited for; more columns have the whole one."""
    run.task("ps:0", state=READY)
    run.task("worker:0", state=STARTING)
    run.change(waiting="worker:0 on tf2:2222", waiting_since=time.time())
    async with showing(run, (80, 24)) as (app, pilot):
        expected = "ps ✓ ▸ worker:0 ▸ worker:1–2 0/2  waiting for worker:0 on tf2:2222 — "
        await until(pilot, lambda: expected in screen_text(app)[0])
        await pilot.resize_terminal(200, 50)
        await until(pilot, lambda: "▸ worker:0 ▒ starting" in screen_text(app)[0])
        assert "▸ worker:1–2 ░░ waiting  starting: waiting for worker:0" in screen_text(app)[0]
        run.all_tasks(state=READY)
        run.change(state=RunPhase.RUNNING)
        await until(pilot, lambda: " running " in screen_text(app)[0])
        assert "▸" not in screen_text(app)[0] and "mnist-async" in screen_text(app)[0]


# A run on Slurm on the screen: in the queue, with its nodes, and cancelled.

IN_QUEUE = AllocationView("Slurm", "8123", "PENDING", "Resources", expected=time.time() + 43_200)
AT = time.strftime("%H:%M", time.localtime(IN_QUEUE.expected))
STATUS = f"Slurm 8123 PENDING (Resources), expected {AT}, waited 1:0"
"""For nine minutes."""


@pytest.fixture
def queued(run: ScriptedRun) -> ScriptedRun:
    """A run of four nodes that waits for them."""
    hosts = tuple(replace(host, state=HostState.CONNECTING) for host in run.snapshot().hosts)
    since = time.time() - 3611
    run.change(state=RunPhase.QUEUED, allocation=IN_QUEUE, hosts=hosts, waiting_since=since)
    return run


@asynccontextmanager
async def opened(run: ScriptedRun, size: tuple[int, int]) -> AsyncIterator[Pilot[Any]]:
    """The app on the run."""
    app = TfmuxApp(run)
    async with app.run_test(size=size, notifications=True) as pilot:
        await shows(pilot, "Slurm 8123")
        yield pilot


def text(pilot: Pilot[Any]) -> str:
    """The whole screen."""
    return "\n".join(screen_text(pilot.app))


@pytest.mark.parametrize("size", [(200, 50), (80, 24)], ids=["large", "small"])
async def test_header_and_every_pane_say_how_the_request_stands(
    queued: ScriptedRun, size: tuple[int, int]
) -> None:
    """In one row of the header, and in each pane, in as many rows as it needs; a log that begins
    takes their place."""
    async with opened(queued, size) as pilot:
        assert STATUS in text(pilot).splitlines()[0]
        await until(pilot, lambda: text(pilot).count("Slurm 8123 PENDING (Resources)") == 5)
        queued.change(state=RunPhase.RUNNING, allocation=replace(IN_QUEUE, state="RUNNING"))
        queued.write("ps:0", b"ps:0 listens\n")
        await shows(pilot, "ps:0 listens")
        await until(pilot, lambda: "PENDING" not in text(pilot))


async def test_what_can_never_come_true_stays_on_the_screen(queued: ScriptedRun) -> None:
    """With what to change."""
    advice = "the partition has fewer nodes, or allows fewer: write a smaller nodes"
    reason = "PartitionNodeLimit"
    queued.change(allocation=replace(IN_QUEUE, reason=reason, advice=advice, expected=None))
    async with opened(queued, (200, 50)) as pilot:
        await until(pilot, lambda: text(pilot).count(advice) == 5)
    async with opened(queued, (80, 24)) as pilot:
        await until(pilot, lambda: text(pilot).count("the partition has fewer nodes") == 4)


async def test_the_hosts_screen_has_the_job(queued: ScriptedRun) -> None:
    """Nodes that nobody has given are not being connected to."""
    async with opened(queued, (120, 40)) as pilot:
        await pilot.press("H")
        await shows(pilot, "tf1   queued")
        assert text(pilot).count(STATUS) == 2
        assert "connecting" not in text(pilot)
        hosts = tuple(replace(host, state=HostState.UP) for host in queued.snapshot().hosts)
        running = replace(IN_QUEUE, state="RUNNING", reason="", expected=None)
        queued.change(state=RunPhase.RUNNING, allocation=running, hosts=hosts)
        await shows(pilot, "Slurm 8123 RUNNING")
        await shows(pilot, "tf1   up")


async def test_leaving_the_queue_is_asked_for_and_has_a_receipt(queued: ScriptedRun) -> None:
    """The dialog says that nothing has started, and so does the receipt."""
    async with opened(queued, (80, 24)) as pilot:
        await pilot.press("q")
        await shows(pilot, "The run is in the queue: nothing has started")
        await pilot.press("escape", "f9")
        await until(pilot, lambda: "kill_all" in queued.asked)
        releasing = replace(IN_QUEUE, releasing=True)
        queued.change(state=RunPhase.KILLING, allocation=releasing, waiting="Slurm 8123 to end")
        await shows(pilot, "cancelling Slurm 8123: nothing has started")
        said = "Slurm 8123 was cancelled in the queue: nothing had started"
        queued.change(allocation=replace(releasing, released=said))
        queued.end(Outcome.KILLED, 130, receipt=Receipt(()))
        await shows(pilot, said)
        await shows(pilot, "Esc back   l launch again")
        await pilot.press("escape")
        ended = r" ■ killed  after \d+:\d\d  nothing was started"
        await until(pilot, lambda: bool(re.search(ended, text(pilot).splitlines()[0])))
        await pilot.press("H")
        await shows(pilot, "never connected")


# Thousands of tasks on a screen: those that went wrong are found.

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


# The metrics screen on thousands of tasks.

LOSS = b"After %d training steps (%d global steps), loss on training batch is %.4f.\n"


async def test_curves_and_rows_are_made_of_what_is_in_sight(tmp_path: Path) -> None:
    """Given 300 tasks, then their band is computed once for the same points, and the rows in sight
    have values; all can be scrolled to. Each second all were computed: with 8,000 the screen stood
    still."""
    run = ScriptedRun(tmp_path, workers=300)
    run.change(state=RunPhase.RUNNING)
    for number in range(300):
        for i in range(3):
            text = LOSS % (i, 10 * i, number)
            run.write(f"worker:{number}", text, now=time.time() - 10 + 3 * i)
    computed = 0

    def counted(*args: object) -> curves.Curve:
        nonlocal computed
        computed += 1
        return curves.rates(*args)  # type: ignore[arg-type]

    app = TfmuxApp(run, config=Config())
    with patch.object(metrics_screen, "rates", counted):
        async with app.run_test(size=(120, 40)) as pilot:
            await pilot.press("M")
            await until(pilot, lambda: isinstance(app.screen, MetricsScreen))
            await shows(pilot, "Loss, smoothing 0.6, median and range of 300 tasks")
            await shows(pilot, "Values at ")
            await shows(pilot, "worker:6")
            table = app.screen.query_one(Table)
            computed = 0
            before = table.scroll_offset.y
            await pilot.press("end")
            await until(pilot, lambda: table.scroll_offset.y > before)
            await shows(pilot, "worker:299")
            await shows(pilot, "step")
            assert 7 <= computed < 150
    run.logs.close()


# Curves of the metrics screen: round ticks, ends, curves that cross, plots without colours.

VALUES = st.floats(allow_nan=True, allow_infinity=True)


@given(
    st.lists(st.lists(VALUES, max_size=40), max_size=4),
    st.integers(0, 60),
    st.integers(0, 20),
    st.booleans(),
    st.booleans(),
)
def test_any_values_are_drawn_in_the_room_there_is(
    values: list[list[float]], width: int, height: int, colourless: bool, steps: bool
) -> None:
    """NaN, infinite, huge, constant, none: no row is wider than the plot."""
    drawn = []
    for number, of in enumerate(values):
        drawn.append(Drawn(number, curve(map(float, range(len(of))), of, 0.0)))
    scene = Scene(drawn, (0.0, 40.0), 7.0, 12.0, band([one.curve for one in drawn], 9), steps)
    text = plot(scene, width, height, colourless)
    if any(one.curve[0] for one in drawn) and height > 2 and width > 20:
        assert len(text.plain.split("\n")) == height
        assert max(map(cell_len, text.plain.split("\n"))) <= width
