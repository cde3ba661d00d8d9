"""Folds of remarks: the lines that they show and hide, and the cost of finding them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from launcher.ids import TaskId
from launcher.run.snapshot import Attempt
from launcher.run.states import RunPhase, TaskState
from launcher.store.logs import LogFile, LogStore
from tests.tui.conftest import screen_text, shows, until
from tests.tui.fakes import ScriptedRun
from tests.tui.remarks import ABSL, CLEANUP, CUDA, ONEDNN, REMARKS
from tui.app import TfmuxApp
from tui.log import folds
from tui.log.document import Document, Line
from tui.log.folds import BLOCK
from tui.log.log_views import LogViews
from tui.log.remarks import remark_source
from tui.log.view import LogView
from tui.log.viewport import Item, Viewport
from tui.screens.run import RunScreen
from tui.widgets.log_pane import LogPane

TASK = TaskId("worker", 0)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[LogFile]:
    """An empty log."""
    file = LogFile(tmp_path / "worker-0.log")
    yield file
    file.close()


def append(log: LogFile, *lines: str, end: str = "\n") -> None:
    log.append(log.size, ("\n".join(lines) + end).encode(), 1.0)


def view_of(log: LogFile) -> LogView:
    document = Document(TASK, log)
    document.refresh()
    return LogView(TASK, document)


def fold_at(view: LogView, number: int) -> tuple[int, int, str] | None:
    fold = view.fold_at(number)
    return None if fold is None else (fold.first, fold.end, fold.text)


def test_consecutive_remarks_are_one_fold(log: LogFile) -> None:
    """Found from each of their lines; other lines are in none."""
    append(log, "begin", ABSL, ONEDNN, CUDA, "ready", CLEANUP, "end")
    view = view_of(log)
    assert [fold_at(view, n) for n in range(7)] == [
        None,
        *[(1, 4, "+ 3 remarks of TensorFlow")] * 3,
        None,
        (5, 6, "+ 1 remark of TensorFlow"),
        None,
    ]


def test_a_fold_grows(log: LogFile) -> None:
    """With what is written behind it; a line without newline may still become an error."""
    append(log, ABSL, ONEDNN)
    view = view_of(log)
    assert fold_at(view, 0) == (0, 2, "+ 2 remarks of TensorFlow")
    append(log, CUDA, end="")
    view.lines.refresh()
    assert fold_at(view, 0) == (0, 2, "+ 2 remarks of TensorFlow")
    assert view.fold_at(2) is None
    append(log, " ERROR", CUDA)
    view.lines.refresh()
    assert fold_at(view, 0) == (0, 2, "+ 2 remarks of TensorFlow")
    assert view.fold_at(2) is None
    assert fold_at(view, 3) == (3, 4, "+ 1 remark of TensorFlow")


def test_an_empty_line_between_remarks_is_folded_with_them(log: LogFile) -> None:
    """One, and only between remarks: TensorBoard prints its remarks so."""
    first, *note = REMARKS["TensorBoard"][:4]
    append(log, "", first, "", *note, "", "TensorBoard 2.21.0 at http://…", CUDA, "", "", CUDA)
    view = view_of(log)
    expected = [None, *[(1, 6, "+ 4 remarks of TensorBoard")] * 5, None, None]
    one = "+ 1 remark of TensorFlow"
    assert [fold_at(view, n) for n in range(12)] == [
        *expected,
        (8, 9, one),
        None,
        None,
        (11, 12, one),
    ]


def test_an_empty_line_waits_for_the_line_behind_it(log: LogFile) -> None:
    """It is shown until a remark has come there whole."""
    append(log, CUDA, "", CUDA[:20], end="")
    view = view_of(log)
    assert fold_at(view, 0) == (0, 1, "+ 1 remark of TensorFlow")
    assert view.fold_at(1) is None
    append(log, CUDA[20:], "go", "on")
    view.lines.refresh()
    assert [fold_at(view, n) for n in range(3)] == [(0, 3, "+ 2 remarks of TensorFlow")] * 3


def test_the_last_hit_is_shown(log: LogFile) -> None:
    """Where the cursor is nothing is folded; elsewhere everything."""
    append(log, ABSL, ONEDNN, "ready", CUDA, "go")
    view = view_of(log)
    view.cursor = 1
    assert [fold_at(view, n) for n in (0, 1)] == [None, None]
    assert fold_at(view, 3) == (3, 4, "+ 1 remark of TensorFlow")
    view.cursor = None
    assert fold_at(view, 0) == (0, 2, "+ 2 remarks of TensorFlow")


def test_a_selection_takes_a_fold_whole(log: LogFile) -> None:
    """From its first line to its last, whichever of them was meant."""
    append(log, "begin", ABSL, ONEDNN, CUDA, "ready")
    view = view_of(log)
    view.selection = (2, 2)
    assert list(view.selected_lines) == [1, 2, 3]
    view.selection = (4, 1)
    assert list(view.selected_lines) == [1, 2, 3, 4]


def test_a_separator_ends_a_fold(tmp_path: Path) -> None:
    """Remarks of two attempts are two folds: where the second begins stays in sight."""
    run = ScriptedRun(tmp_path, ps=0, workers=1)
    run.write("worker:0", f"{ABSL}\n{ONEDNN}\n".encode())
    start = run.logs.open(TASK).size
    run.write("worker:0", f"{ABSL}\n{ONEDNN}\n{CUDA}\nready\n".encode())
    views = LogViews(run.logs, run.snapshot())
    view = views.of(TASK)
    view.lines.refresh()
    assert fold_at(view, 0) == (0, 5, "+ 5 remarks of TensorFlow")
    run.task("worker:0", attempts=(Attempt(1, 0, 1.0), Attempt(2, start, 2.0)))
    views.update(run.snapshot())
    assert fold_at(view, 0) == (0, 2, "+ 2 remarks of TensorFlow")
    assert fold_at(view, 4) == (2, 5, "+ 3 remarks of TensorFlow")
    assert view.separators(2)
    run.logs.close()


def test_merged_logs_fold_over_tasks_and_forget_nothing(tmp_path: Path) -> None:
    """What comes late into the middle of a merged log is never hidden by a fold that was found
    before it came."""
    logs = LogStore(tmp_path)
    run = ScriptedRun(tmp_path, ps=1, workers=1)
    ps, worker = logs.open(TaskId("ps", 0)), logs.open(TASK)
    for at in (1.0, 3.0):
        ps.append(ps.size, f"{ONEDNN}\n".encode(), at)
    ps.append(ps.size, b"first\nlast\n", 4.0)
    views = LogViews(logs, run.snapshot())
    view = views.of(None)
    view.lines.refresh()
    assert fold_at(view, 0) == (0, 2, "+ 2 remarks of TensorFlow")
    worker.append(0, f"{CUDA}\n".encode(), 2.0)
    view.lines.refresh()
    assert fold_at(view, 1) == (0, 3, "+ 3 remarks of TensorFlow")
    fold = view.fold_at(0)
    assert fold and fold.task is None
    worker.append(worker.size, b"ERROR disk full\n", 2.1)
    view.lines.refresh()
    assert fold_at(view, 0) == (0, 2, "+ 2 remarks of TensorFlow")
    assert view.fold_at(2) is None and view.lines.line(2).data == b"ERROR disk full"
    fold = view.fold_at(3)
    assert fold and fold.task == TaskId("ps", 0)
    logs.close()
    run.logs.close()


@pytest.mark.large
def test_whatever_comes_whenever_folds_are_as_if_found_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Logs that grow piece by piece, late ones into the middle: no fold outlives its lines, none
    hides another line, and neighbours agree."""
    monkeypatch.setattr(folds, "BLOCK", 8)
    rng = random.Random(5)
    run = ScriptedRun(tmp_path, ps=1, workers=2)
    tasks = [task.id for task in run.snapshot().tasks]
    times = dict.fromkeys(tasks, 0.0)
    views = LogViews(run.logs, run.snapshot())
    for _ in range(200):
        task = rng.choice(tasks)
        times[task] += rng.choice([0.1, 0.3, 1.0])
        log = run.logs.open(task)
        lines = rng.choices([ABSL, CUDA, "", "trains"], [4, 4, 2, 1], k=rng.randrange(1, 4))
        text = "\n".join(lines) + rng.choice(["\n", "\n", ""])
        log.append(log.size, text.encode(), times[task])
        for which in (None, task):
            view = views.of(which)
            view.lines.refresh()
            anew = LogView(which, view.lines)
            first = max(0, view.lines.count - 60)
            for number in rng.sample(range(first, view.lines.count), view.lines.count - first):
                fold = view.fold_at(number)
                assert fold == anew.fold_at(number)
                if fold is None:
                    continue
                assert fold.first <= number < fold.end
                data = view.lines.line(number).data
                assert remark_source(data) or data == b""
                assert view.fold_at(fold.first) == view.fold_at(fold.end - 1) == fold
    run.logs.close()


class Counting(Document):
    """A document that counts the lines which are asked for."""

    asked = 0

    def line(self, number: int) -> Line:
        self.asked += 1
        return super().line(number)


@pytest.mark.large
def test_a_million_remarks_are_not_looked_through(log: LogFile) -> None:
    """A page looks at its own lines and one block a row, wherever in the log it is."""
    append(log, *[CUDA] * 100_000)
    for _ in range(9):
        log.append(log.size, f"{CUDA}\n".encode() * 100_000, 1.0)
    document = Counting(TASK, log)
    document.refresh()
    view = LogView(TASK, document)

    def item_at(number: int) -> Item:
        fold = view.fold_at(number)
        return Item(fold.first, fold.end) if fold else Item(number, number + 1)

    port = Viewport()
    port.update(document.count, 20, item_at)
    assert document.count == 1_000_000
    assert len(port.rows()) == 20
    assert document.asked <= 21 * (BLOCK + 2)
    document.asked = 0
    port.rows()
    assert document.asked <= 2 * BLOCK  # only the fold at the end, which may still grow
    port.show(500_000)
    port.rows()
    assert document.asked <= 60 * BLOCK


# the place in a log with folds


def folded(*pairs: tuple[int, int]) -> Viewport:
    """A viewport in which some lines are folded: each pair from, and up to."""

    def item_at(line: int) -> Item:
        first, end = next((p for p in pairs if p[0] <= line < p[1]), (line, line + 1))
        return Item(first, end)

    return Viewport(item_at=item_at)


def test_a_fold_is_one_row() -> None:
    """Up, down and at the end; its first line stands for it."""
    port = folded((3, 90), (95, 98))
    port.update(100, 5)
    assert port.rows() == [(93, 0), (94, 0), (95, 0), (98, 0), (99, 0)]
    port.scroll(-4)
    assert port.rows() == [(3, 0), (90, 0), (91, 0), (92, 0), (93, 0)]
    port.scroll(-1)
    assert port.rows()[0] == (2, 0)
    port.home()
    assert port.rows() == [(0, 0), (1, 0), (2, 0), (3, 0), (90, 0)]
    port.scroll(7)
    assert port.following


def test_the_top_is_never_inside_a_fold() -> None:
    """Lines that become one fold under a paused view are shown as that."""
    port = Viewport()
    port.update(100, 5)
    port.scroll(-50)
    port.update(100, 5, folded((10, 60)).item_at)
    assert port.rows()[:2] == [(10, 0), (60, 0)]


def test_a_selection_moves_over_folds() -> None:
    """A fold is one step, and the view follows the selection without end."""
    port = folded((3, 90))
    port.update(200, 5)
    port.home()
    assert port.items_from(2, 1) == 3
    assert port.items_from(3, 1) == 90
    assert port.items_from(90, -1) == 89
    assert port.items_from(89, -1) == 2
    assert (port.items_from(5, 200), port.items_from(5, -200)) == (199, 0)
    for line in (150, 40, 0, 199):
        port.pause()
        port.reveal(line)
        first = port.item_at(line).first
        assert first in [row[0] for row in port.rows()]


# on the screen


@pytest.mark.large
async def test_the_pane_shows_the_training(run: ScriptedRun) -> None:
    """Remarks are one dim line; the key shows them, and folds them again."""
    app = TfmuxApp(run)
    async with app.run_test(size=(200, 50)) as pilot:
        run.all_tasks(state=TaskState.RUNNING)
        run.change(state=RunPhase.RUNNING)
        run.write("worker:0", f"{ABSL}\n{ONEDNN}\n{CUDA}\nlistens\n".encode())
        await shows(pilot, "+ 3 remarks of TensorFlow")
        text = "\n".join(screen_text(app))
        assert "oneDNN" not in text and "f unfold" in text
        await pilot.press("f")
        await shows(pilot, "oneDNN custom operations")
        await shows(pilot, "f fold")
        assert "remarks of" not in "\n".join(screen_text(app)).replace("TensorFlow's remarks", "")
        await pilot.press("f")
        await shows(pilot, "+ 3 remarks of TensorFlow")
        await pilot.press("m")
        await shows(pilot, "worker:0 + 3 remarks of TensorFlow")


@pytest.mark.large
async def test_search_finds_inside_a_fold(run: ScriptedRun) -> None:
    """The fold with the hit is opened, and closed again when the search is left."""
    app = TfmuxApp(run)
    async with app.run_test(size=(200, 50)) as pilot:
        await until(pilot, lambda: isinstance(app.focused, LogPane))
        run.write("ps:0", f"{ABSL}\n{ONEDNN}\n{CUDA}\nlistens\n{CLEANUP}\nend\n".encode())
        await shows(pilot, "+ 3 remarks of TensorFlow")
        await pilot.press("slash", *"cuda drivers", "enter")
        await shows(pilot, "1 of 1")
        await shows(pilot, "Could not find cuda drivers")
        assert any("+ 1 remark of TensorFlow" in row for row in screen_text(app))
        await pilot.press("escape")
        await shows(pilot, "+ 3 remarks of TensorFlow")


async def test_a_filter_folds_nothing(run: ScriptedRun) -> None:
    """It shows each line that it lets through."""
    app = TfmuxApp(run)
    async with app.run_test(size=(200, 50)) as pilot:
        await until(pilot, lambda: isinstance(app.focused, LogPane))
        run.write("ps:0", f"{ABSL}\n{ONEDNN}\n{CUDA}\nlistens\n".encode())
        await shows(pilot, "+ 3 remarks of TensorFlow")
        await pilot.press("ampersand", *"cuda", "enter")
        await shows(pilot, "Could not find cuda drivers")
        await pilot.press("ampersand", *["backspace"] * 4, "enter")
        await shows(pilot, "+ 3 remarks of TensorFlow")


async def test_copying_and_counting_know_all_lines(run: ScriptedRun) -> None:
    """`y` copies the lines of folds in sight, and what has come since pausing is counted in
    lines."""
    app = TfmuxApp(run)
    async with app.run_test(size=(200, 50)) as pilot:
        await until(pilot, lambda: isinstance(app.focused, LogPane))
        run.write("ps:0", f"{ABSL}\n{ONEDNN}\n{CUDA}\nlistens\n".encode())
        await shows(pilot, "+ 3 remarks of TensorFlow")
        await pilot.press("y")
        await until(pilot, lambda: app.clipboard != "")
        assert app.clipboard.splitlines() == [ABSL, ONEDNN, CUDA, "listens"]
        screen = app.screen
        assert isinstance(screen, RunScreen) and screen.area.pane
        screen.area.pane.move(Viewport.pause)
        run.write("ps:0", f"{CLEANUP}\n".encode() * 5)
        await shows(pilot, "↓ 5 new")
        await shows(pilot, "+ 5 remarks of TensorFlow")  # there is room for it


async def test_a_line_that_comes_late_stands_in_its_place(run: ScriptedRun) -> None:
    """In the merged log, where the lines behind it get other numbers."""
    app = TfmuxApp(run)
    async with app.run_test(size=(200, 50)) as pilot:
        await pilot.press("m")
        run.write("ps:0", b"first\n", 10.0)
        run.write("ps:0", b"third\nfourth\nfifth\n", 12.0)
        await shows(pilot, "fifth")
        run.write("worker:0", b"second\n", 11.0)
        await shows(pilot, "second")
        words = [word for row in screen_text(app) for word in row.split()]
        order = ["first", "second", "third", "fourth", "fifth"]
        assert [word for word in words if word in order] == order
