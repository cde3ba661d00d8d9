"""The cockpit around the panes: search, filter, merged log, errors, choosing, other screens."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

from launcher.ids import TaskId
from launcher.run.states import HostState, RunPhase, TaskState
from tests.support.fakes import ScriptedRun
from tests.support.patience import PATIENCE
from tests.support.screens import run_screen, showing, shows, until, visible
from tui.pane_layout import Arrangement
from tui.screens.help import HelpScreen
from tui.screens.hosts_screen import HostsScreen
from tui.screens.metrics_screen import MetricsScreen
from tui.screens.run_screen import RunScreen
from tui.widgets.pane_area import PaneArea, PaneGrid

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
