"""Lines of a task that trains or waits, and hints for programs of Python 2."""

from __future__ import annotations

import re
import threading
import time

import pytest

from launcher.store.metric_lines import Extractor
from trainer import stop
from trainer.exceptions import TrainerError
from trainer.progress import Progress, Step, Summaries
from trainer.tf1 import python2


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


# Waiting for a task's work.


def test_a_call_that_cannot_return_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """TensorFlow never returns: the task ends with the reason, after several looks in a row."""
    monkeypatch.setattr(stop, "_LOST_EVERY", 0.01)
    for_ever = threading.Event()
    looks: list[str] = []

    def lost() -> str:
        looks.append("gone" if len(looks) > 2 else "")
        return looks[-1]

    def work(stopping: stop.Stop) -> None:
        with stopping.waiting(lambda: "waits", lost):
            for_ever.wait(60)

    with pytest.raises(TrainerError, match=r"^gone$"):
        stop.run(work, 1.0)
    assert looks[-5:] == ["gone"] * 5 and not looks[0]
    for_ever.set()


def test_waiting_is_told_after_3_s_and_every_30(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not before, and not once the task was told to end."""
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    stopping = stop.Stop(10.0)
    told = []
    with stopping.waiting(lambda: "waits"):
        for now in (100.0, 102.9, 103.1, 133.0, 133.2, 163.1, 163.3):
            stopping.check_waiting()
            if capsys.readouterr().out == "waits\n":
                told.append(now)
        assert told == [103.1, 133.2, 163.3]
        stopping.request(15)
        now = 500.0
        stopping.check_waiting()
    assert not capsys.readouterr().out
    assert stopping.deadline == 163.3 + 8.0  # a fifth of the grace is left for the exit


def test_looks_are_counted_anew_for_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that returned gives the next its whole 10 s; looks in a row, 2 s apart, count."""
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    stopping = stop.Stop(10.0)

    def look(*moments: float) -> None:
        nonlocal now
        for moment in moments:
            now = moment
            stopping.check_waiting()

    with stopping.waiting(lambda: "", lambda: "gone"):
        look(102.1, 103.0, 104.2, 106.3, 108.4)  # four looks
    with stopping.waiting(lambda: "", lambda: "gone"):
        look(109.0, 110.5, 112.6, 114.7, 116.8)
        with pytest.raises(TrainerError, match=r"^gone$"):
            look(118.9)


# What is left of Python 2 in a program for TensorFlow 1 is named, with what to write instead.

PYTHON_2 = {
    "print 'a'": "2to3",
    "exec 'a'": "2to3",
    "try:\n    a\nexcept E, e:\n    b": "2to3",
    "raise E, 'text'": "2to3",
    "1 <> 2": "2to3",
    "`1`": "2to3",
    "0777": "2to3",
    "ur'x'": "2to3",
    "10L": "2to3",
    "def f((a, b)): pass": "2to3",
    "lambda (a, b): a": "2to3",
    "if 1:\n\ta = 1\n        b = 2": "`expand train.py > NEW`",
    "print('`', `1`)": "2to3",
    "xrange(3)": "`range`",
    "unicode('a')": "`str`",
    "raw_input()": "`input`",
    "import cPickle": "`pickle`",
    "import urllib2": "`urllib.request`",
    "{}.iteritems()": "`items`",
    "{}.has_key(1)": "`KEY in DICT`",
    "import itertools; itertools.izip": "`zip`",
    "import urllib; urllib.urlretrieve": "`urllib.request.urlretrieve`",
    "range(3 / 2)": "`//`",
    "two = [1, 2]; two[2 / 2]": "`//`",
    "[0] * (4 / 2)": "`//`",
    "map(abs, [1])[0]": "`list(…)`",
    "{}.keys()[0]": "`list(…)`",
    "len(zip([1], [2]))": "`list(…)`",
    "{}.keys().sort()": "`list(…)`",
    "range(3)[0] = 1": "`list(…)`",
    "range(3).append(1)": "`list(…)`",
    "'a'.decode('utf-8')": "leave `.decode(…)` out",
}
PYTHON_3 = [
    "undefined",
    "import absent_module",
    "{}.absent",
    "int('a')",
    "int([])",
    "[1][0][0]",
    "class A:\n    pass\nA().iteritems",
    "a = = 1",
    "def f(:",
    "if 1:\nprint(1)",
    "raise ValueError('a, b')",
    "'<>' + 1",
    "a = 1 2  # see `a`",
    "a = '<>' b",
    "a = 'raise E, e' b",
    'a = """`""" b',
    "a = (1, '`'",
    "a = 'ur\\'x' b",
]


def hint(program: str) -> str:
    try:
        exec(compile(program, "train.py", "exec"), {})
    except Exception as error:
        return python2.hint(error)
    raise AssertionError(program)


@pytest.mark.parametrize(("program", "remedy"), PYTHON_2.items())
def test_python_2_has_a_hint(program: str, remedy: str) -> None:
    """Syntax, names, modules, methods, whole division, lists that are views now."""
    assert remedy in hint(program)


@pytest.mark.parametrize("program", PYTHON_3)
def test_other_errors_have_none(program: str) -> None:
    """A hint that misleads is worse than none."""
    assert hint(program) == ""
