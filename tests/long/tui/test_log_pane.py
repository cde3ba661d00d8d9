"""Panes of logs: lines, searches, hidden remarks, and lines that a program rewrites."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from textual._styles_cache import StylesCache
from textual.app import App, ComposeResult
from textual.geometry import Region
from textual.pilot import Pilot
from textual.strip import Strip

from launcher.ids import TaskId
from launcher.lines import Block
from launcher.run.states import RunPhase, TaskState
from launcher.store import rewritten
from launcher.store.logs import LogFile, LogStore
from tests.support.budgets import budget
from tests.support.fakes import ScriptedRun, append
from tests.support.patience import wait_until
from tests.support.recordings import NAMES, seen, trimmed, written
from tests.support.remarks import ABSL, CLEANUP, CUDA, ONEDNN
from tests.support.screens import run_screen, screen_text, showing, shows, until
from tui.app import TfmuxApp
from tui.curves import sparkline
from tui.log.document import MAX_LINE, Document, Line
from tui.log.finder import Filtered, Finder, Hits
from tui.log.log_views import LogView, LogViews
from tui.log.merged import Merged
from tui.log.query import Query
from tui.log.remarks import remark_source
from tui.log.viewport import MOST_HIDDEN, Viewport
from tui.memory import Memory
from tui.widgets.pane import Pane
from tui.widgets.pane_area import PaneGrid

# Borders of panes: titles, the focus, and what the lower one shows.

STEP = (
    b"After %d training steps (%d global steps), loss on training batch is %.4f."
    b"  (0.010 sec/batch)\n"
)
HOST = "host-漢字漢字漢字漢字[red]"


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 50)])
async def test_borders_have_the_width_of_their_pane(tmp_path: Path, size: tuple[int, int]) -> None:
    """Whatever the title holds, wide characters and what looks like markup too."""
    run = ScriptedRun(tmp_path, workers=3, hosts=4)
    for task in run.snapshot().tasks:
        run.task(str(task.id), host=HOST, state=TaskState.RUNNING, step=12_340)
        run.write(str(task.id), b"x" * 500 + b"\n")
    async with showing(run, size) as (app, pilot):
        await shows(pilot, "x" * 30)
        if size[0] > 80:
            await shows(pilot, HOST)
        panes = list(app.screen.query(Pane))
        await until(pilot, lambda: all(_task(pane) in _upper(pane).text for pane in panes))
        assert all(cell_len(row) == size[0] for row in screen_text(app))
        assert all(_upper(pane).cell_length == pane.region.width for pane in panes)
        assert not any("…" in _upper(pane).text for pane in panes)  # Textual cuts what is too wide
    run.logs.close()


def _task(pane: Pane) -> str:
    assert pane.view
    return str(pane.view.task)


def _upper(pane: Pane) -> Strip:
    """The upper border."""
    return pane.render_lines(Region(0, 0, pane.region.width, 1))[0]


async def test_nothing_is_drawn_before_there_are_panes() -> None:
    """Textual would draw the name of the class."""

    class Empty(App[None]):
        def compose(self) -> ComposeResult:
            yield PaneGrid(Memory())

    app = Empty()
    async with app.run_test(size=(80, 24)):
        assert app.screen.query_one(PaneGrid).size.height
        assert not "".join(screen_text(app)).strip()


def test_a_sparkline_needs_a_few_values() -> None:
    """And has a cell for each as long as there are few."""
    assert sparkline([3.0, 2.0, 1.0]) == ""
    assert sparkline([4.0, 3.0, 2.0, 1.0]) == "█▆▃▁"
    assert sparkline([float(i) for i in range(100)], 8) == "▁▂▃▄▅▆▇█"
    assert sparkline([1.0] * 5 + [float("inf")]) == "▁▁▁▁▁"
    assert sparkline([1.0] * 13 + [1.7e308, -1.7e308, 1.7e308]) == "▁" * 12
    assert sparkline([9e299] * 14 + [-9e299] * 14)[::11] == "█▁"


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 50)])
async def test_the_focused_pane_is_plain_to_see(
    run: ScriptedRun, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without colours too, it alone has heavy lines; they move with the focus."""
    monkeypatch.setenv("NO_COLOR", "1")
    async with showing(run, size) as (app, pilot):
        await until(pilot, lambda: isinstance(app.focused, Pane))
        for name in ("worker:0", "worker:1"):
            await shows(pilot, f"▸{name}")
            text = "\n".join(screen_text(app))
            assert text.count("━") > 10 and text.count("┓") == (size[0] >= 120)
            heavy = [row for row in screen_text(app) if "━━" in row]
            assert f"▸{name} " in heavy[0] and len(heavy) == 1 + (size[0] >= 120)
            await pilot.press("tab")


async def test_small_panes_keep_their_lines(run: ScriptedRun) -> None:
    """At 80×24 a pane has a row for its title and all others for its log."""
    run.write("worker:0", b"".join(b"line %d\n" % i for i in range(100)))
    async with showing(run, (80, 24)) as (app, pilot):
        await shows(pilot, "line 99")
        shown = [row for row in screen_text(app) if row.startswith("line ")]
        pane = app.focused
        assert isinstance(pane, Pane) and len(shown) == pane.outer_size.height - 1


async def test_progress_and_loss_stand_in_the_lower_border(run: ScriptedRun) -> None:
    """The bar only where the number of steps is known; trouble colours the border."""
    async with showing(run, (120, 40)) as (app, pilot):
        run.change(state=RunPhase.RUNNING)
        for i in range(30):
            run.write("worker:1", STEP % (i, i * 10, 2.0 - i / 30))
        await shows(pilot, "▄▃▂▂▁ ─")
        assert not any("29 %" in row for row in screen_text(app))
        run.change(total_steps=1000)
        await shows(pilot, "╰─ ███▋░░░░░░░░  29 %  ")
        pane = app.screen.query(Pane)[2]
        calm = pane.render_lines(pane.region.reset_offset)[1]
        run.task("worker:1", state=TaskState.FAILED, exit_code=1)
        await shows(pilot, "worker:1 @tf3  exit 1")
        assert pane.render_lines(pane.region.reset_offset)[1] != calm


async def second_tick(app: TfmuxApp, pilot: Pilot[int]) -> None:
    """Waits until what the first frames have led to has been drawn."""
    screen = run_screen(app)
    for _ in range(2):
        last = screen._second
        await until(pilot, lambda last=last: screen._second != last)  # type: ignore[misc]


def drawn_rows(pane: Pane, monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """The rows of a pane that are drawn from now on."""
    drawn: set[int] = set()
    render = StylesCache.render_line

    def spy(cache: StylesCache, styles: Any, y: int, *rest: Any) -> Strip:
        if cache is pane._styles_cache:
            drawn.add(y)
        return render(cache, styles, y, *rest)

    monkeypatch.setattr(StylesCache, "render_line", spy)
    return drawn


async def test_unchanged_lines_are_not_drawn_again(
    run: ScriptedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step in the title costs the two rows of the border, not the pane."""
    run.change(state=RunPhase.RUNNING, total_steps=1000)
    run.task("worker:1", state=TaskState.RUNNING)
    async with showing(run, (120, 40)) as (app, pilot):
        await shows(pilot, "worker:1 @tf3  running")
        pane = app.screen.query(Pane)[2]
        await second_tick(app, pilot)
        drawn = drawn_rows(pane, monkeypatch)
        run.task("worker:1", step=120)
        await shows(pilot, "step 120")
        await shows(pilot, "12 %")
        assert drawn == {0, pane.outer_size.height - 1}


async def test_an_empty_pane_draws_the_text_that_tells_the_time_and_no_more(
    run: ScriptedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a task without output, when the text says how long it runs, then its row is drawn,
    perhaps the border, and not the pane: a screen of quiet tasks costs nothing."""
    run.change(state=RunPhase.RUNNING)
    run.task("worker:1", state=TaskState.RUNNING)
    async with showing(run, (120, 40)) as (app, pilot):
        await shows(pilot, "running: no output yet")
        pane = app.screen.query(Pane)[2]
        await second_tick(app, pilot)
        drawn = drawn_rows(pane, monkeypatch)
        run.task("worker:1", started=time.time() - 1000)
        await shows(pilot, " min: no output yet")
        assert drawn - {0, pane.outer_size.height - 1} == {1}


async def test_a_pane_is_not_drawn_because_another_one_is(
    run: ScriptedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Textual paints all panes when one has changed: the lines of the others are kept."""
    run.change(state=RunPhase.RUNNING)
    async with showing(run, (120, 40)) as (app, pilot):
        await shows(pilot, "▸worker:0")
        await second_tick(app, pilot)
        drawn: set[str] = set()
        painted: set[str] = set()
        make, lines = Pane._make_page, Pane.render_lines

        def spy(self: Pane) -> object:
            drawn.add(f"{self.view and self.view.task}")
            return make(self)

        def spy_on_all(self: Pane, crop: Region) -> list[Strip]:
            painted.add(f"{self.view and self.view.task}")
            return lines(self, crop)

        monkeypatch.setattr(Pane, "_make_page", spy)
        monkeypatch.setattr(Pane, "render_lines", spy_on_all)
        run.write("worker:1", b"a line of worker 1\n")
        await shows(pilot, "a line of worker 1")
        assert drawn == {"worker:1"} and painted >= {"ps:0", "worker:0", "worker:1"}


# Search, filter and the merged log, against a plain reading of the same bytes.


def test_a_thousand_logs_are_searched_by_one_thread(tmp_path: Path) -> None:
    """Search and filter of the merged log of many tasks: a thread for each log, and for each hit a
    look through the list of all tasks, stopped the screen with 8,000."""
    store = LogStore(tmp_path)
    tasks = [TaskId("worker", number) for number in range(1000)]
    for number, task in enumerate(tasks):
        store.open(task).append(0, b"hay\nneedle %d\nhay\n" % number, 1000.0 + number)
    lines = Merged({task: Document(task, store.open(task)) for task in tasks})
    lines.refresh()
    before = threading.active_count()
    search = Finder(lines, Query("needle"), lines.count)
    assert threading.active_count() <= before + 1
    try:
        wait_until(lambda: search.done, "all is counted")
        assert (search.count, search.share) == (1000, 1.0)
        assert search.follow() == 2998
        assert search.neighbour(2998, forward=False) == 2995
        assert search.neighbour(2998, forward=True) == 1
        search.step(-1)
        assert search.follow() == 2995 and search.place() == (999, 1000)
    finally:
        search.close()
        store.close()


# Remarks that are hidden: which lines they are, the cost of passing over them, and how the screen
# tells of them.

TASK = TaskId("worker", 0)


def test_whatever_comes_whenever_only_remarks_are_hidden(tmp_path: Path) -> None:
    """Logs that grow piece by piece, late ones into the middle."""
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
            lines_now = [view.lines.line(n) for n in range(view.lines.count)]
            remarks = [not one.open and bool(remark_source(one.data)) for one in lines_now]
            for n, one in enumerate(lines_now):
                empty = not one.data and not one.open and n > 0 and remarks[n - 1]
                assert view.hides(n) == (remarks[n] or empty)
    run.logs.close()


class Counting(Document):
    """A document that counts the lines which are asked for."""

    asked = 0

    def line(self, number: int) -> Line:
        self.asked += 1
        return super().line(number)


def test_a_million_remarks_are_not_looked_through(log: LogFile) -> None:
    """A page passes over so many and no more, wherever in the log it is, and each key goes on."""
    for _ in range(10):
        log.append(log.size, f"{CUDA}\n".encode() * 100_000, 1.0)
    document = Counting(TASK, log)
    document.refresh()
    view = LogView(TASK, document)
    port = Viewport()
    port.update(document.count, 20, lambda number: int(not view.hides(number)))
    assert document.count == 1_000_000
    assert port.rows() == [] and document.asked <= 2 * MOST_HIDDEN
    moves: list[Callable[[], None]] = [
        lambda: port.show(500_000),
        lambda: port.scroll(-1),
        lambda: port.page(-1),
    ]
    for move in moves:
        before, document.asked = port.top, 0
        move()
        assert port.rows() == [] and not port.following
        assert document.asked <= 8 * MOST_HIDDEN and port.top < before
    top = port.top
    port.scroll(1)
    assert port.top > top
    port.home()
    assert port.top == 0
    append(log, "trains")
    document.refresh()
    port.update(document.count, 20)
    port.follow()
    assert port.rows() == [(1_000_000, 0)]


# on the screen


async def test_the_pane_shows_the_training(run: ScriptedRun) -> None:
    """Its lower border tells of the remarks, and the key shows them, and hides them again."""
    async with showing(run, (200, 50)) as (app, pilot):
        run.all_tasks(state=TaskState.RUNNING)
        run.change(state=RunPhase.RUNNING)
        run.write("worker:0", f"{ABSL}\n{ONEDNN}\n{CUDA}\nlistens\n".encode())
        await shows(pilot, "3 routine messages of TensorFlow hidden")
        text = "\n".join(screen_text(app))
        assert "oneDNN" not in text and "listens" in text
        await pilot.press("f")
        await shows(pilot, "oneDNN custom operations")
        await until(pilot, lambda: "routine messages of" not in "\n".join(screen_text(app)))
        await pilot.press("f")
        await shows(pilot, "3 routine messages of TensorFlow hidden")
        await pilot.press("m")
        await shows(pilot, "worker:0 listens")
        assert "oneDNN" not in "\n".join(screen_text(app))


async def test_search_finds_hidden_lines(run: ScriptedRun) -> None:
    """The line with the hit is shown, and hidden again when the search is left."""
    async with showing(run, (200, 50)) as (app, pilot):
        await until(pilot, lambda: isinstance(app.focused, Pane))
        run.write("worker:0", f"{ABSL}\n{ONEDNN}\n{CUDA}\nlistens\n{CLEANUP}\nend\n".encode())
        await shows(pilot, "4 routine messages of TensorFlow hidden")
        await pilot.press("slash", *"cuda drivers", "enter")
        await shows(pilot, "1 of 1")
        await shows(pilot, "Could not find cuda drivers")
        await shows(pilot, "3 routine messages of TensorFlow hidden")
        await pilot.press("escape")
        await shows(pilot, "4 routine messages of TensorFlow hidden")


# Logs of programs that rewrite lines above, as panes, searches and filters have them.


def text_of(rng: random.Random) -> bytes:
    """What a program may write: plain lines, bars, and movements between them."""
    parts = []
    for _ in range(rng.randrange(1, 12)):
        kind = rng.randrange(5)
        if kind == 0:
            parts += [b"plain %d\n" % n for n in range(rng.randrange(80))]
        elif kind == 1:
            bars = rng.randrange(1, 6)
            for step in range(rng.randrange(1, 60)):
                parts += [b"\x1b[2K\rbar %d: \x1b[32m%d\x1b[0m\n" % (n, step) for n in range(bars)]
                parts.append(b"\x1b[%dA" % bars)
            parts.append(b"\n" * bars)
        elif kind == 2:
            parts += [b"\r%d %%" % n for n in range(rng.randrange(40))]
        elif kind == 3:
            moves = (b"\x1b[A", b"\x1b[3F", b"\x1b[40A", b"\x1b[B", b"\n", b"\x1b[K", b"x", b"\r")
            parts += rng.choices(moves, k=rng.randrange(30))
        else:
            parts += [b"long " + b"y" * rng.randrange(1500) + b"\n"] * rng.randrange(40)
    return b"".join(parts)


def reference(data: bytes) -> list[str]:
    """The lines, read in one go from the beginning."""
    block = Block()
    block.feed(data)
    return level([row.text() for row in (*block.settled, *block.rows)])


def level(lines: list[str]) -> list[str]:
    """Lines without empty last ones: one counts when there are bytes of it, seen or not."""
    while lines and not lines[-1]:
        lines.pop()
    return lines


def shown(document: Document) -> list[str]:
    """The lines that a document has."""
    document.refresh()
    texts = []
    for number in range(document.count):
        line = document.line(number)
        block = Block(lines=1)
        block.feed(line.data)
        texts.append(block.rows[0].text())
    return level(texts)


def counted(file: LogFile) -> LogFile:
    """A log of which all has been counted: one look takes a tenth of a second at most."""
    while file.size < file.path.stat().st_size:
        file.refresh()
    return file


def found_by(file: LogFile, text: str) -> tuple[list[int], list[int]]:
    """The lines that a search finds, and those that a filter lets through."""
    hits, filtered = Hits(file, Query(text)), Filtered(Document(TASK, file), text)
    for scan in (hits.scan(), filtered.scan()):
        while next(scan):
            pass
    filtered.refresh()
    return list(hits.lines), [filtered.origin(n)[1] for n in range(filtered.count)]


@pytest.mark.parametrize("states", [200, rewritten.STATE_BYTES])
def test_any_pieces_give_the_lines_of_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, states: int
) -> None:
    """Given what programs write, in any pieces and with readers that come at any time, when a
    document shows it, then it has the lines of a terminal; so have those that take the index from
    the files, a search, and a filter."""
    monkeypatch.setattr(rewritten, "STATE_BYTES", states)
    for trial in range(budget(40, 2000)):
        rng = random.Random(trial)
        data = text_of(rng)
        path = tmp_path / f"{states}-{trial}.log"
        writer = LogFile(path, only_writes=rng.random() < 0.5)
        following = LogFile(path, read_only=True)
        own = Document(TASK, LogFile(tmp_path / f"{states}-{trial}-own.log"))
        at = now = 0
        while at < len(data):
            piece = data[at : at + rng.choice([1, 7, 300, 5000, 100_000])]
            writer.append(at, piece, float(now))
            own.file.append(at, piece, float(now))
            at += len(piece)
            now += rng.choice([0, 1])
            if rng.random() < 0.2:
                assert shown(own) == reference(data[:at]), trial
            if rng.random() < 0.2:
                following.refresh()
                document = Document(TASK, following)
                assert shown(document) == reference(data[: document.size]), trial
        lines = reference(data)
        assert shown(own) == lines, trial
        while following.refresh():
            pass
        for file in (following, LogFile(path, read_only=True), own.file):
            document = Document(TASK, file)
            assert shown(document) == lines, trial
            for number in rng.sample(range(len(lines)), min(20, len(lines))):
                one = Document(TASK, file)
                one.refresh()
                start = one.line(number).start
                assert file.stretch_of(number) or one.number_at(start) == number
        for text in ("bar 1", "plain 3", "0"):
            wanted = [n for n, line in enumerate(lines) if text in line]
            searched, passed = found_by(own.file, text)
            last = len(lines) - 1  # it may lack its newline, and counts when it has that
            assert [n for n in searched if n != last] == [n for n in wanted if n != last], trial
            assert [n for n in passed if n != last] == [n for n in wanted if n != last], trial
        writer.close()
        own.file.close()


@pytest.mark.parametrize("name", NAMES)
def test_programs_look_as_in_a_terminal(tmp_path: Path, name: str) -> None:
    file = LogFile(tmp_path / "a.log")
    for at, byte in enumerate(written(name)):
        file.append(at, bytes([byte]), 0.0)
    assert trimmed(shown(Document(TASK, file))) == seen(name)
    file.close()


def test_a_night_of_bars_is_three_lines(tmp_path: Path) -> None:
    """Given megabytes of three bars, when a reader opens the log, then it has five lines, and
    each is found without reading the whole."""
    path = tmp_path / "a.log"
    writer = LogFile(path, only_writes=True)
    bars = b"".join(
        b"".join(b"\x1b[2K\rbar %d: %06d %s\n" % (n, step, b"#" * 60) for n in range(3))
        + b"\x1b[3A"
        for step in range(20_000)
    )
    data = b"start\n" + bars + b"\n\n\nend\n"
    for at in range(0, len(data), 50_000):
        writer.append(at, data[at : at + 50_000], at / 1e6)
    reader = counted(LogFile(path, read_only=True))
    document = Document(TASK, reader)
    lines = shown(document)
    assert [line[:8] for line in lines] == ["start", "bar 0: 0", "bar 1: 0", "bar 2: 0", "end"]
    assert path.with_suffix(".rewritten").stat().st_size < len(data) / 20
    writer.close()


def test_lines_that_passed_are_taken_back(tmp_path: Path) -> None:
    """Given a filter and a search that have found a line, when the program rewrites it, then it
    is found no more, and what stands there now is."""
    file = LogFile(tmp_path / "a.log")
    file.append(0, b"needle\nother\n", 0.0)
    hits, filtered = Hits(file, Query("needle")), Filtered(Document(TASK, file), "needle")
    scans = [hits.scan(), filtered.scan()]
    for text, wanted in ((b"", [0]), (b"\x1b[2A\x1b[2Knone\n\x1b[2Kneedle 2\n", [1])):
        file.append(file.size, text, 0.0)
        for scan in scans:
            while next(scan):
                pass
        before = filtered.order
        filtered.refresh()
        assert list(hits.lines) == wanted and hits.count == 1
        assert [filtered.origin(n)[1] for n in range(filtered.count)] == wanted
    assert filtered.order != before or filtered.line(0).data == b"needle 2"
    file.close()


def test_no_program_makes_the_index_larger_than_its_log(tmp_path: Path) -> None:
    """Given a program that begins a new stretch with every forty bytes, what is recorded of them
    stays smaller than the log, and later lines are shown as they were written."""
    path = tmp_path / "a.log"
    writer = LogFile(path, only_writes=True)
    text = b"x\n\x1b[A" + b"\n" * 34
    for _ in range(20):
        writer.append(writer.size, text * 5000, 0.0)
    reader = counted(LogFile(path, read_only=True))
    document = Document(TASK, reader)
    document.refresh()
    assert 0 < path.with_suffix(".rewritten").stat().st_size < reader.size
    assert 33 * 100_000 < document.count <= 35 * 100_000
    assert document.line(document.count - 1).data == b""
    writer.close()


# The text layer below the panes: sanitising, line access, the place in a log.


def test_lines_by_number_in_any_log(tmp_path: Path) -> None:
    """Whatever the chunks were, each line is found by its number, with its place."""
    rng = random.Random(5)
    for trial in range(4):
        file = LogFile(tmp_path / f"{trial}.log")
        document, written, now = Document(TaskId("worker", 0), file), b"", 0.0
        for _ in range(25):
            body = bytes(rng.choices(b"ab\r", k=rng.choice([0, 1, 80])))
            chunk = b"".join(
                body * rng.choice([1, 1, 1, 1, 900]) + rng.choice([b"\n", b"\n", b""])
                for _ in range(rng.choice([1, 30, 200]))
            )
            now += rng.choice([0.0, 0.1, 1.0])
            file.append(len(written), chunk, now)
            written += chunk
            document.refresh()
            lines = written.split(b"\n")
            if not lines[-1]:
                lines.pop()
            assert document.count == len(lines)
            starts = list(accumulate((len(line) + 1 for line in lines), initial=0))
            for number in {0, len(lines) - 1, *rng.sample(range(len(lines)), min(9, len(lines)))}:
                line = document.line(number)
                assert line.start == starts[number]
                assert document.number_at(line.start) == number
                assert line.open == (number == len(lines) - 1 and not written.endswith(b"\n"))
                if len(lines[number]) <= MAX_LINE:
                    assert line.data == lines[number]
                else:
                    assert len(line.data) <= MAX_LINE
        file.close()
