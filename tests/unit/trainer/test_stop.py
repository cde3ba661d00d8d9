"""Waiting for a task's work."""

from __future__ import annotations

import threading

import pytest

from trainer import stop
from trainer.errors import TrainerError


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
