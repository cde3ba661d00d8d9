"""Worst log text: what drawing, explaining and searching cost grows with the text alone."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.cells import cell_len

from launcher.ids import TaskId
from tests.support.budgets import budget
from tests.support.fakes import ScriptedRun
from tests.support.screens import until
from tests.support.worst_text import WORST_TEXTS, WorstText
from tui.app import TfmuxApp
from tui.log.document import Line
from tui.log.hints import SIGNATURES, hint_for
from tui.log.query import ERRORS, Chunk, Query
from tui.log.rows import RowOptions, highlight, render_line, wrap
from tui.log.sanitise import parse_spans

SMALL, LARGE = budget((4 * 1024, 32 * 1024), (8 * 1024, 64 * 1024))
MARGIN = 4
"""Times what the eightfold text may cost beyond eight times the small one's cost."""
LEAST = 0.002
"""Seconds: what costs less is too quick to be compared."""

QUERIES = [Query(text) for text in ("a", "1|a", "a.*z|a", r"\w+\d", "(a|aa)+$", "[^x]*y")]


def draw(line: bytes) -> None:
    """Draws all of a line, with and without wrapping, and marks hits in it."""
    whole = parse_spans(line)
    for part in (*wrap(whole, 100), highlight(whole, QUERIES[1])):
        assert sum(cell_len(span.text) for span in part) >= 0


def draw_row(line: bytes) -> None:
    """Draws a line as a pane does."""
    for query in (None, *QUERIES):
        render_line(
            Line(0, 0, line), RowOptions(hide_prefix=True, query=query), {}, TaskId("ps", 0)
        )


def explain(line: bytes) -> None:
    """Asks each signature whether it explains the whole line."""
    text = line.decode("utf-8", "replace")
    for signature in SIGNATURES:
        signature.pattern.search(text)
        if signature.unless is not None:
            signature.unless.search(text)
    hint_for(text)


def search(line: bytes) -> None:
    """Searches the line for errors and for what a person may style for."""
    for query in (ERRORS, *QUERIES):
        query.lines(Chunk(0, line, len(line)))


def seconds(act: Callable[[bytes], None], line: bytes) -> float:
    """The time on a processor of one try."""
    begin = time.thread_time()
    act(line)
    return time.thread_time() - begin


@pytest.mark.parametrize("act", [draw, draw_row, explain, search])
def test_the_cost_grows_with_the_text_alone(act: Callable[[bytes], None]) -> None:
    """Given each of the worst texts, when eight times as much of it is drawn, explained or
    searched, then that costs about eight times as much, and not the square."""
    dear = [f"{text}: {found}" for text in WORST_TEXTS if (found := too_dear(text, act))]
    assert not dear, "\n".join(dear)


def too_dear(text: WorstText, act: Callable[[bytes], None]) -> str:
    """What eight times a text costs, if that is too much in each of some tries."""
    for _ in range(10):  # a busy machine makes single tries dear, and not all of them
        small = max(LEAST, seconds(act, text.make(SMALL)))
        large = seconds(act, text.make(LARGE))
        if large < small * (LARGE / SMALL) * MARGIN:
            return ""
    return f"{large:.3f} s for eight times what took {small:.3f} s"


async def test_f9_is_answered_whatever_is_drawn(tmp_path: Path) -> None:
    """Given a screen full of each of the worst texts, one after the other, when F9 is pressed, then
    it is answered, and drawing takes less than four seconds of a processor's time."""
    run = ScriptedRun(tmp_path, workers=3)
    app = TfmuxApp(run)
    log = run.logs.open(TaskId("worker", 0))
    try:
        async with app.run_test(size=(200, 50)) as pilot:
            await pilot.press("w")  # lines are not wrapped: as many as there are rows are drawn
            for text in WORST_TEXTS:
                for size in (1000, LARGE):
                    data = (text.make(size) + b"\n") * 16
                    log.append(log.size, data, time.time())
                begin = time.thread_time()
                asked = len(run.asked)
                await pilot.press("f9")
                await until(pilot, lambda before=asked: len(run.asked) > before)  # type: ignore[misc]
                assert time.thread_time() - begin < 4, f"{text} holds up the screen"
    finally:
        run.logs.close()
