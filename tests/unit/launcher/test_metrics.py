"""Metrics from log lines: the known forms, a form of one's own, cut lines, rates, thinning."""

from __future__ import annotations

import math

import pytest

from launcher.store.metric_lines import Extractor
from launcher.store.metrics import MAX_POINTS, Point, Series


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "After 300 training steps (912 global steps), loss on training batch is 0.4512.  "
            "(0.010 sec/batch)",
            {"step": 912, "loss": 0.4512},
        ),
        (
            "Done: 1370 training steps (2001 global steps) in 37.6 s, 5324 examples/s",
            {"step": 2001},
        ),
        (
            "12/100 ━━━━━━━━━━━━━━━━━━━━ 0:01 12ms/step - accuracy: 0.91 - loss: 0.31",
            {"step": 12, "total": 100, "loss": 0.31},
        ),
        (
            " 37%|███▋      | 37/100 [00:03<00:06,  9.9it/s, loss=0.21]",
            {"step": 37, "total": 100, "loss": 0.21},
        ),
        ("step 7: lr 0.1, loss = 1.5e-3", {"step": 7, "loss": 0.0015}),
        ("Step: 12 accuracy 0.5 loss: nan", {"step": 12, "loss": math.nan}),
    ],
)
def test_known_forms(line: str, expected: dict[str, float]) -> None:
    """The trainer's line, Keras, tqdm and `step N … loss X` are known without a word."""
    (point,) = Extractor().feed(line.encode() + b"\n", 1.0)
    assert point.values.keys() == expected.keys()
    for name, value in expected.items():
        assert point.values[name] == pytest.approx(value, nan_ok=True)


def test_a_form_of_ones_own_with_other_figures() -> None:
    """Named groups become figures of that name."""
    own = Extractor(r"iter (?P<step>\d+) cost (?P<loss>[-+.\deE]+) acc (?P<accuracy>\S+)")
    (point,) = own.feed(b"iter 5 cost 0.25 acc 0.5\n", 1.0)
    assert point.values == {"step": 5, "loss": 0.25, "accuracy": 0.5}


def test_an_expression_sees_lines_and_of_each_the_beginning() -> None:
    """`^` and `$` are a line's ends, no match goes on in the next line, any byte is a character,
    and what stands beyond 4 KiB of a line is not seen."""
    own = Extractor(r"^(?P<step>\d+).\s*(?P<loss>[.\d]*) *$")
    text = b"1\xff 0.5\n2:\n7\n3: 0.25" + b" " * 5000 + b"9\n"
    points = [point.values for point in own.feed(text, 1.0)]
    assert points == [{"step": 1, "loss": 0.5}, {"step": 2}, {"step": 3, "loss": 0.25}]


def test_a_figure_that_is_none_harms_nothing() -> None:
    """A pattern that catches text where a number should be gives no point and no error."""
    own = Extractor(r"step (?P<step>\S+)")
    (point,) = own.feed(b"step one\nstep 2\n", 1.0)
    assert point.values == {"step": 2}


def test_a_line_cut_in_two_is_put_together() -> None:
    """Chunks end anywhere."""
    extractor = Extractor()
    assert list(extractor.feed(b"step 1 lo", 1.0)) == []
    (point,) = extractor.feed(b"ss 0.5\nstep 2 ", 2.0)
    assert point.values == {"step": 1, "loss": 0.5}


def test_progress_bars_count_without_a_newline() -> None:
    """A carriage return ends a line, too."""
    extractor = Extractor()
    points = list(extractor.feed(b"| 1/9 [0:1]\r| 2/9 [0:2]\r| 3/9 [0:3]", 1.0))
    assert [point.values["step"] for point in points] == [1, 2]


def test_the_rate_is_global_steps_a_second() -> None:
    """Over the last points; a step that falls (a restart) gives none."""
    extractor = Extractor()
    assert extractor.rate is None
    for second in range(5):
        list(extractor.feed(b"step %d loss 1\n" % (100 * second), 10.0 + second))
    assert extractor.rate == pytest.approx(100.0)
    list(extractor.feed(b"step 3 loss 1\n", 16.0))
    assert extractor.rate is None


def test_a_series_is_thinned_and_keeps_its_course() -> None:
    """However long a training, its points stay few and in order."""
    series = Series()
    for number in range(10 * MAX_POINTS):
        series.add(Point(float(number), {"loss": 1.0}))
    times = list(series.points.times)
    assert MAX_POINTS // 2 <= len(times) <= MAX_POINTS
    assert times == sorted(times)
    assert times[-1] > 9.9 * MAX_POINTS
