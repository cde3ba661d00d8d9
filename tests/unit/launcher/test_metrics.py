"""Metrics from log lines: the known forms, a form of one's own, cut lines, rates, thinning."""

from __future__ import annotations

import pytest

from launcher.lines import versions
from launcher.store.figures import FormRank, figures_of
from launcher.store.metric_lines import Extractor
from launcher.store.metrics import MAX_POINTS, LatestMetrics, Point, Series
from tests.support.figure_lines import ASIDE, TRAINING, Case, Shown, excerpts


@pytest.mark.parametrize("case", TRAINING, ids=lambda case: case.program)
def test_a_line_of_a_training_is_read_right(case: Case) -> None:
    """Step, total and loss as they are in the line, coloured or not."""
    assert read(case) == (case.step, case.total, case.loss)


@pytest.mark.parametrize("case", ASIDE, ids=lambda case: case.program)
def test_a_line_that_is_about_something_else_has_no_figures(case: Case) -> None:
    """Data, downloads, evaluation, epochs, ranks, dates, versions, prose."""
    assert read(case) == (None, None, None)


LOGS = list(excerpts())


@pytest.mark.parametrize("lines", [pytest.param(lines, id=name) for name, lines in LOGS])
def test_a_log_is_read_right(lines: list[Shown]) -> None:
    """After each line the screen shows the step, total and loss that the program has come to. In
    doubt it shows none, or those of before: never a number that is another thing's. Programs that
    train nothing show nothing."""
    extractor, shown = Extractor(), LatestMetrics()
    before: tuple[float | None, ...] = (None, None, None)
    for second, (line, right, unread) in enumerate(lines):
        for point in extractor.feed(line.encode() + b"\n", 1000.0 + second):
            shown = shown.updated(point.time, point.values, None)
        seen = tuple(shown.values.get(name) for name in ("step", "total", "loss"))
        expected = pytest.approx(right, nan_ok=True)
        if unread:
            for at, value in enumerate(seen):
                assert value in (None, before[at], pytest.approx(right[at], nan_ok=True)), line
        else:
            left = seen == before and _was_unread(lines[: second + 1])
            assert left or seen == expected, line
        before = seen


def _was_unread(lines: list[Shown]) -> bool:
    """The last line with figures of its own may have been left."""
    return any(one.unread for one in lines if one.figures == lines[-1].figures)


def test_the_corpus_is_large() -> None:
    """A hundred lines of forty programs, at least, and as many logs; few lines are left."""
    assert len(TRAINING + ASIDE) >= 150 and len({case.program for case in TRAINING}) >= 70
    told = [one for _, lines in LOGS for one in lines]
    assert len(LOGS) >= 380 and len(told) >= 1100 and sum(one.unread for one in told) < 90


def test_a_total_goes_with_its_step() -> None:
    """The total of a bar is not that of a training that names none."""
    log = LatestMetrics().updated(1.0, {"step": 3, "total": 40, "loss": 0.5}, None)
    assert log.updated(2.0, {"loss": 0.4}, None).values == {"step": 3, "total": 40, "loss": 0.4}
    assert log.updated(2.0, {"step": 7}, None).values == {"step": 7, "loss": 0.5}


def test_the_newest_figures_are_those_of_the_task() -> None:
    """A task has spoken when its figures came, too."""
    figures = LatestMetrics().updated(9.0, {"step": 3, "loss": 0.5}, 2.0).figures(4.0)
    assert (figures["step"], figures["loss"], figures["rate"]) == (3, 0.5, 2.0)
    assert figures["last_output"] == 9.0


def read(case: Case) -> tuple[float | None, ...]:
    """What a reader that has seen nothing else takes from a line. A number that may be a rank's
    is a step when it has grown."""
    figures = figures_of(versions(case.line.encode()))
    if figures is None or figures.rank is FormRank.ASIDE:
        return None, None, None
    return figures.step, figures.total, figures.loss


class Log:
    """Lines of one task, a second each; `shown` is what its figures are after the last."""

    def __init__(self) -> None:
        self.extractor = Extractor()
        self.now = 1000.0
        self.shown: dict[str, float] = {}
        self.points: list[Point] = []

    def __call__(self, *lines: str) -> dict[str, float]:
        for line in lines:
            self.now += 1.0
            for point in self.extractor.feed(line.encode() + b"\n", self.now):
                self.points.append(point)
                self.shown.update(point.values)
        return self.shown


BAR = "{}:  10%|█    | {}/{} [00:01<00:09, 9.9it/s]"


def test_a_bar_of_data_gives_way_to_the_training() -> None:
    """Whatever stands before it, also where it never comes to its end."""
    for count in (100, 60):
        log = Log()
        log(*(BAR.format("Frobs", n, 100) for n in range(10, count + 1, 10)))
        assert log.shown == {}, "nothing has said that this trains"
        assert log("step 3 loss 0.5") == {"step": 3, "loss": 0.5}
        log(BAR.format("Frobs", count, 100), "step 4 loss 0.4")
        assert log.shown["step"] == 4 and log.shown["loss"] == 0.4


def test_a_bar_that_is_at_its_end_when_it_comes_is_no_training() -> None:
    """A program prints one for each file that it has fetched."""
    log = Log()
    assert log(*(f"part {n}: 100%|██████| 8/8 [00:00<00:00, 99.1it/s]" for n in range(5))) == {}
    assert log(BAR.format("train", 3, 500))["step"] == 3


def test_an_evaluation_between_two_steps_changes_no_figure_and_is_no_stall() -> None:
    """Given lines of Hugging Face's Trainer: a bar without a name for the steps, dictionaries for
    the loss, and the evaluation's bar has no name either."""
    log = Log()
    train, evaluation = " {}%|█   | {}/5000 [01:23<12:00, 6.1it/s]", " {}%|█ | {}/10 [00:00<00:01]"
    assert log(train.format(1, 50)) == {}, "the bar may be of anything"
    log(
        "{'loss': 0.69, 'learning_rate': 4e-05, 'epoch': 0.1}",
        train.format(2, 100),
    )
    assert log.shown == {"step": 100, "total": 5000, "loss": 0.69}
    before = log.points[-1].time
    log(*(evaluation.format(n, n) for n in range(1, 11)), *["working"] * 3)
    log("{'eval_loss': 0.9, 'eval_runtime': 1.2, 'epoch': 0.1}")
    assert log.shown == {"step": 100, "total": 5000, "loss": 0.69}
    assert log.points[-1].time > before + 8 and not log.points[-1].values, "it works, and says so"
    assert log(train.format(3, 150))["step"] == 150
    log(train.format(100, 5000), *(evaluation.format(n, n) for n in range(1, 10)))
    assert log.shown["step"] == 5000


def test_bars_of_epochs_follow_on_each_other() -> None:
    """Each begins anew, and the number of the epoch stands before it."""
    log = Log()
    for epoch in range(3):
        for count in (0, 50, 100):
            log(f"Epoch {epoch}:  10%|█    | {count}/100 [00:01<00:09, 9.9it/s, loss=0.5]")
            assert log.shown == {"step": count, "total": 100, "loss": 0.5}
    assert log.extractor.rate == pytest.approx(50.0)


def test_keras_evaluates_after_it_has_trained() -> None:
    """Its bar is like that of an epoch, without the line that begins one."""
    log = Log()
    for epoch in (1, 2):
        log(f"Epoch {epoch}/2")
        log(*(f"{n}/160 ━━━━━━━━━━ 0s 3ms/step - loss: 0.5" for n in (1, 80, 160)))
    log(*(f"{n}/200 ━━━━━━━━━━ 0s 3ms/step - loss: 0.75" for n in (1, 100, 200)))
    assert log.shown == {"step": 160, "total": 160, "loss": 0.5}
    assert log("Epoch 1/9", "1/90 ━━━━━━━━━━ 0s 3ms/step - loss: 0.25")["step"] == 1


def test_an_evaluation_as_long_as_an_epoch_is_none() -> None:
    """An evaluation may have as many batches. Where an epoch was not seen, the bar after counts."""
    log = Log()
    for epoch in (1, 2):
        log(f"Epoch {epoch}/2")
        log(*(f"{n}/40 ━━━━━━━━━━ 0s 3ms/step - loss: 0.5" for n in (1, 20, 40)))
    assert log(*(f"{n}/40 ━━━━━━━━━━ 0s 3ms/step - loss: 0.75" for n in (1, 20)))["step"] == 40
    assert log("40/40 ━━━━━━━━━━ 0s 3ms/step - loss: 0.75")["loss"] == 0.5
    assert log("1/40 ━━━━━━━━━━ 0s 3ms/step - loss: 0.25")["step"] == 1


def test_a_form_that_has_ended_gives_way() -> None:
    """Lines of the warm-up, then a bar alone for the rest: it counts after a while."""
    log = Log()
    log("step=1, lr=0.1", "step=2, lr=0.1", BAR.format("rollouts", 10, 1000))
    assert log.shown == {"step": 2}
    for count in range(11, 60):
        log(BAR.format("rollouts", count, 1000))
    assert log.shown == {"step": 59, "total": 1000}


def test_the_number_of_a_rank_is_no_step() -> None:
    """`[3] loss=0.5` is a rank's line while the number stays; of `clu` it grows."""
    log = Log()
    assert log(*["[3] loss=0.5"] * 5) == {"loss": 0.5}
    log = Log()
    assert log("[10] loss=0.5", "[20] loss=0.4", "[30] loss=0.3") == {"step": 30, "loss": 0.3}


def test_a_number_that_stays_while_its_total_grows_is_no_step() -> None:
    """Epoch and batch, as WeNet writes them."""
    log = Log()
    log(*(f"DEBUG TRAIN Batch 1/{batch} loss 30.5" for batch in range(100, 500, 100)))
    steps = [point.values.get("step") for point in log.points]
    assert steps[1:] == [None] * 3 and log.shown["loss"] == 30.5


def test_patterns_see_what_is_shown() -> None:
    """A pattern of one's own, behind colours and a link."""
    own = Extractor(r"^iter (?P<step>\d+) cost (?P<loss>[.\d]+)$")
    link = b"\x1b]8;;https://example.org\x1b\\"
    line = link + b"\x1b[1miter\x1b[0m \x1b[32m5\x1b[0m cost \x1b[31m0.25\x1b[0m\n"
    (point,) = own.feed(line, 1.0)
    assert point.values == {"step": 5, "loss": 0.25}


def test_a_form_of_ones_own_with_other_figures() -> None:
    own = Extractor(r"iter (?P<step>\d+) cost (?P<loss>[-+.\deE]+) acc (?P<accuracy>\S+)")
    (point,) = own.feed(b"iter 5 cost 0.25 acc 0.5\n", 1.0)
    assert point.values == {"step": 5, "loss": 0.25, "accuracy": 0.5}


def test_an_expression_sees_lines_and_of_each_the_beginning() -> None:
    """`^` and `$` are a line's ends, no match goes on in the next line, any byte is a character,
    and what stands beyond 4 KiB of a line is not seen. A letter is one character."""
    own = Extractor(r"^(?P<step>\d+).\s*(?P<loss>[.\d]*) *$")
    text = b"1\xff 0.5\n2:\n7\n3: 0.25" + b" " * 5000 + b"9\n"
    points = [point.values for point in own.feed(text, 1.0)]
    assert points == [{"step": 1, "loss": 0.5}, {"step": 2}, {"step": 3, "loss": 0.25}]
    bars = Extractor(r"^(?P<step>\d+) ━+ .$")
    points = [
        point.values for point in bars.feed("5 ━━━ é\n".encode() + b"6 \xe2\x94\x81 \xe9\n", 1.0)
    ]
    assert points == [{"step": 5}, {"step": 6}]


def test_a_figure_that_is_none_harms_nothing() -> None:
    """A pattern that catches text where a number should be gives no point and no error."""
    own = Extractor(r"step (?P<step>\S+)")
    (point,) = own.feed(b"step one\nstep 2\n", 1.0)
    assert point.values == {"step": 2}


def test_a_line_cut_in_two_is_put_together() -> None:
    extractor = Extractor()
    assert list(extractor.feed(b"step 1 lo", 1.0)) == []
    (point,) = extractor.feed(b"ss 0.5\nstep 2 ", 2.0)
    assert point.values == {"step": 1, "loss": 0.5}


def test_progress_bars_count_without_a_newline() -> None:
    """A carriage return ends a line, too."""
    extractor = Extractor()
    points = list(
        extractor.feed(b"train 11%|# | 1/9 [00:01]\rtrain 22%|# | 2/9 [00:02]\rtrain 33%|# ", 1.0)
    )
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
