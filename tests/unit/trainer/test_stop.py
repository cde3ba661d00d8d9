"""Waiting for a task's work."""

from __future__ import annotations

import threading

import pytest

from trainer import stop
from trainer.exceptions import TrainerError


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
