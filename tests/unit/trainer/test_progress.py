"""The lines of a task that trains."""

from __future__ import annotations

import re
import time

import pytest

from launcher.store.metric_lines import Extractor
from trainer.progress import Progress, Step, Summaries


def last_line(capsys: pytest.CaptureFixture[str], steps: list[Step], first: int = 0) -> str:
    """What a task says at its end that took `steps` from global step `first` on."""
    progress = Progress(10_000, 100, Summaries(None))
    progress.begin(first)
    progress.add(steps, 0.1)
    progress.finish(0.97)
    return capsys.readouterr().out


def test_the_loss_at_a_step(capsys: pytest.CaptureFixture[str]) -> None:
    """The loss is the mean up to that step; what was not fetched, came before or after counts
    nothing."""
    steps = [Step(9.0, at) for at in (*range(1, 401), *range(501, 600))]
    steps += [Step(0.2, 401), Step(float("nan"), 450), Step(0.4, 500)]
    line = last_line(capsys, steps)
    assert line.startswith("Done: 502 training steps (599 global steps) in ")
    assert ", loss 0.3000 at step 500, test accuracy 0.9700 (moving averages)\n" in line


@pytest.mark.parametrize(("first", "last"), [(0, 499), (500, 700)], ids=["before", "after"])
def test_no_loss_at_a_step_not_seen(
    capsys: pytest.CaptureFixture[str], first: int, last: int
) -> None:
    """A training that ended before, or went on from a later step, tells no loss at it."""
    steps = [Step(0.5, at) for at in range(first + 1, last + 1)]
    assert "loss" not in last_line(capsys, steps, first)


@pytest.mark.parametrize(
    ("step", "end"),
    [
        (Step(0.4512, 2001, staleness=1), r"0\.4512; \d+ ms, stale 1\.0"),
        (Step(0.4512, 2001, staleness=1, dropped=True), r"0\.4512; \d+ ms, 1 dropped"),
        (Step(0.4512, 2001), r"0\.4512; \d+ ms"),
    ],
)
def test_a_line_fits_half_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, step: Step, end: str
) -> None:
    """A line fits half a terminal of 200 columns, without its border; and the launcher finds step
    and loss in it."""
    clock = iter([0.0, 0.01])
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    progress = Progress(1, 100, Summaries(None))
    progress.begin(2000)
    progress.local_step, progress._last_local = 1369, 1369
    progress.add([step], 0.1)
    line = capsys.readouterr().out
    assert re.fullmatch(
        rf"After 1370 training steps \(2001 global steps\), loss on training batch is {end}\n", line
    )
    assert len(line) - 1 <= 97
    (point,) = Extractor().feed(line.encode(), 0.0)
    assert point.values == {"step": 2001, "loss": 0.4512}
