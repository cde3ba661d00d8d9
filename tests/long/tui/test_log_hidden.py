"""Remarks that are hidden: which lines they are, the cost of passing over them, and how the screen
tells of them."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

from launcher.ids import TaskId
from launcher.run.states import RunPhase, TaskState
from launcher.store.logs import LogFile
from tests.support.fakes import ScriptedRun, append
from tests.support.remarks import ABSL, CLEANUP, CUDA, ONEDNN
from tests.support.screens import screen_text, showing, shows, until
from tui.log.document import Document, Line
from tui.log.log_views import LogView, LogViews
from tui.log.remarks import remark_source
from tui.log.viewport import MOST_HIDDEN, Viewport
from tui.widgets.pane import Pane

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
