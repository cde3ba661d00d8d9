"""Remarks that are hidden: which lines they are, the cost of passing over them, and how the screen
tells of them."""

from __future__ import annotations

import re
import time
from pathlib import Path

from launcher.ids import TaskId
from launcher.run.snapshot import AttemptStart
from launcher.run.states import TaskState
from launcher.store.logs import LogFile, LogStore
from tests.support.fakes import ScriptedRun, append
from tests.support.remarks import ABSL, CLEANUP, CUDA, ONEDNN, REMARKS
from tests.support.screens import screen_text, showing, shows, until
from tui.log.document import Document
from tui.log.log_views import LogView, LogViews
from tui.log.viewport import Viewport
from tui.screens.run_screen import RunScreen
from tui.widgets.pane import Pane

TASK = TaskId("worker", 0)


def view_of(log: LogFile) -> LogView:
    document = Document(TASK, log)
    document.refresh()
    return LogView(TASK, document)


def shown(view: LogView) -> list[int]:
    return [number for number in range(view.lines.count) if not view.hides(number)]


def test_remarks_are_hidden_and_counted(log: LogFile) -> None:
    """Nothing else is; a filter and the option show them."""
    append(log, "begin", ABSL, ONEDNN, CUDA, "ready", CLEANUP, "end")
    view = view_of(log)
    assert shown(view) == [0, 4, 6]
    assert view.hidden_text(0, 7) == "4 routine messages of TensorFlow hidden"
    assert view.hidden_text(4, 6) == "1 routine message of TensorFlow hidden"
    assert view.hidden_text(6, 7) == ""
    view.filtered = True
    assert shown(view) == list(range(7)) and view.hidden_text(0, 7) == ""


def test_an_open_line_is_shown(log: LogFile) -> None:
    """A line without newline may still become an error."""
    append(log, ABSL, CUDA, end="")
    view = view_of(log)
    assert shown(view) == [1]
    append(log, " ERROR", CUDA)
    view.lines.refresh()
    assert shown(view) == [1]


def test_an_empty_line_behind_a_remark_is_hidden_with_it(log: LogFile) -> None:
    """TensorBoard prints its remarks so; another empty line is shown."""
    first, *note = REMARKS["TensorBoard"][:4]
    append(log, "", first, "", *note, "", "TensorBoard 2.21.0 at http://…", CUDA, "", "", CUDA)
    view = view_of(log)
    assert shown(view) == [0, 7, 10]
    assert view.hidden_text(0, 12) == "6 routine messages of TensorBoard and TensorFlow hidden"


def test_the_last_hit_is_shown(log: LogFile) -> None:
    """Where the cursor is, whatever the line says."""
    append(log, ABSL, ONEDNN, "ready", CUDA, "go")
    view = view_of(log)
    view.cursor = 1
    assert shown(view) == [1, 2, 4]
    view.cursor = None
    assert shown(view) == [2, 4]


def test_a_late_line_in_a_merged_log_is_never_hidden(tmp_path: Path) -> None:
    """What comes late into the middle of a merged log gets the number of a line that was known."""
    logs = LogStore(tmp_path)
    run = ScriptedRun(tmp_path, ps=1, workers=1)
    ps, worker = logs.open(TaskId("ps", 0)), logs.open(TASK)
    for at in (1.0, 3.0):
        ps.append(ps.size, f"{ONEDNN}\n".encode(), at)
    ps.append(ps.size, b"first\nlast\n", 4.0)
    view = LogViews(logs, run.snapshot()).of(None)
    view.lines.refresh()
    assert shown(view) == [2, 3]
    worker.append(0, b"ERROR disk full\n", 2.0)
    view.lines.refresh()
    assert shown(view) == [1, 3, 4]
    assert view.lines.line(1).data == b"ERROR disk full"
    logs.close()
    run.logs.close()


# the place in a log with hidden lines


def hiding(*pairs: tuple[int, int]) -> Viewport:
    """A viewport in which some lines are hidden: each pair from, and up to."""
    return Viewport(rows_of=lambda line: int(not any(a <= line < b for a, b in pairs)))


def test_hidden_lines_take_no_row() -> None:
    port = hiding((3, 90), (95, 98))
    port.update(100, 5)
    assert [line for line, _ in port.rows()] == [92, 93, 94, 98, 99]
    port.scroll(-4)
    assert [line for line, _ in port.rows()] == [1, 2, 90, 91, 92]
    port.home()
    assert [line for line, _ in port.rows()] == [0, 1, 2, 90, 91]
    port.scroll(5)
    assert port.following


def test_nothing_is_left_where_all_is_in_sight() -> None:
    """To the beginning, when only hidden lines stand before the first row."""
    port = hiding((0, 14))
    port.update(17, 5)
    port.home()
    assert port.following and [line for line, _ in port.rows()] == [14, 15, 16]


def test_the_place_stays_when_lines_are_hidden_below_it() -> None:
    """A paused view goes on with the next line that is shown."""
    port = Viewport()
    port.update(100, 5)
    port.scroll(-50)
    port.update(100, 5, hiding((10, 60)).rows_of)
    assert port.rows()[:2] == [(60, 0), (61, 0)]


def test_a_selection_moves_over_hidden_lines() -> None:
    """From line to line that is shown, and the view follows the selection without end."""
    port = hiding((3, 90))
    port.update(200, 5)
    port.home()
    assert port.shown_from(2, 1) == 90
    assert port.shown_from(90, -1) == 2
    assert (port.shown_from(5, 200), port.shown_from(5, -200)) == (199, 0)
    for line in (150, 91, 0, 199):
        port.pause()
        port.reveal(line)
        assert line in [row[0] for row in port.rows()]


async def test_an_attempt_that_begins_with_remarks_has_its_separator(run: ScriptedRun) -> None:
    """The separator stands where the attempt begins, though the first lines are hidden."""
    async with showing(run, (200, 50)) as (app, pilot):
        await shows(pilot, "worker:0")
        run.write("worker:0", f"{ABSL}\nfirst\n".encode())
        start = run.logs.open(TASK).size
        run.write("worker:0", f"{ONEDNN}\n{CUDA}\nsecond\n".encode())
        run.task("worker:0", attempts=(AttemptStart(1, 0, 1.0), AttemptStart(2, start, 2.0)))
        await shows(pilot, "attempt 2")
        text = "\n".join(screen_text(app))
        assert re.findall("first|attempt 2|second|oneDNN", text) == ["first", "attempt 2", "second"]


async def test_a_filter_shows_what_it_lets_through(run: ScriptedRun) -> None:
    """Remarks too."""
    async with showing(run, (200, 50)) as (app, pilot):
        await until(pilot, lambda: isinstance(app.focused, Pane))
        run.write("worker:0", f"{ABSL}\n{ONEDNN}\n{CUDA}\nlistens\n".encode())
        await shows(pilot, "3 routine messages of TensorFlow hidden")
        await pilot.press("ampersand", *"cuda", "enter")
        await shows(pilot, "Could not find cuda drivers")
        await pilot.press("ampersand", *["backspace"] * 4, "enter")
        await shows(pilot, "3 routine messages of TensorFlow hidden")


async def test_copying_and_counting_know_all_lines(run: ScriptedRun) -> None:
    """`y` copies the lines in sight with those that are hidden between them, and what has come
    since pausing is counted in lines."""
    async with showing(run, (200, 50)) as (app, pilot):
        await until(pilot, lambda: isinstance(app.focused, Pane))
        run.write("worker:0", f"begins\n{ABSL}\n{ONEDNN}\n{CUDA}\nlistens\n".encode())
        await shows(pilot, "3 routine messages of TensorFlow hidden")
        await pilot.press("y")
        await until(pilot, lambda: app.clipboard != "")
        assert app.clipboard.splitlines() == ["begins", ABSL, ONEDNN, CUDA, "listens"]
        screen = app.screen
        assert isinstance(screen, RunScreen) and screen.area.pane
        screen.area.pane.move(Viewport.pause)
        run.write("worker:0", f"{CLEANUP}\n".encode() * 5)
        await shows(pilot, "↓ 5 new")


async def test_a_line_that_comes_late_stands_in_its_place(run: ScriptedRun) -> None:
    """In the merged log, where the lines behind it get other numbers."""
    async with showing(run, (200, 50)) as (app, pilot):
        await pilot.press("m")
        run.write("ps:0", b"first\n", 10.0)
        run.write("ps:0", b"third\nfourth\nfifth\n", 12.0)
        await shows(pilot, "fifth")
        run.write("worker:0", b"second\n", 11.0)
        await shows(pilot, "second")
        words = [word for row in screen_text(app) for word in row.split()]
        order = ["first", "second", "third", "fourth", "fifth"]
        assert [word for word in words if word in order] == order


async def test_a_pane_whose_lines_are_hidden_says_what_its_task_does(run: ScriptedRun) -> None:
    """Given a task that waits and has printed routine messages alone, then its pane says what it
    waits for; its first own line takes the place of that."""
    run.task("ps:0", state=TaskState.READY, attempt=1, stage=0)
    run.task("worker:0", state=TaskState.WARMING, attempt=1, started=time.time() - 6, stage=1)
    first = AttemptStart(1, 0, time.time())
    run.task("worker:0", attempts=(first,))
    run.write("worker:0", f"{ABSL}\n{ONEDNN}\n".encode())
    async with showing(run, (80, 24)) as (app, pilot):
        await shows(pilot, "imports its modules")
        run.task("worker:0", state=TaskState.RUNNING)
        await shows(pilot, "no other output yet")
        run.write("worker:0", b"step 1\n")
        await shows(pilot, "step 1")
        await until(pilot, lambda: not any("no other output" in row for row in screen_text(app)))
