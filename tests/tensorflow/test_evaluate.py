"""The evaluator and a checkpoint that is just being written."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.lazily import evaluate
from trainer.exceptions import CheckpointError


class Written:
    """A directory in which the newest checkpoint is named only after some looks."""

    def __init__(self, after: int) -> None:
        self.looks = -after

    def find(self) -> str | None:
        self.looks += 1
        if self.looks <= 0:
            raise CheckpointError("checkpoint: no such file; there is model.ckpt-0")
        return "model.ckpt-0"

    def load(self, path: str) -> str:
        return f"what stands in {path}"


def test_a_checkpoint_that_is_just_being_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its data comes first, the file that names it last: it is looked for once more."""
    waited: list[float] = []
    monkeypatch.setattr(time, "sleep", waited.append)
    newest: Callable[[Any], object] = evaluate._newest
    assert newest(Written(1)) == "what stands in model.ckpt-0" and len(waited) == 1
    with pytest.raises(CheckpointError, match="no such file"):
        newest(Written(2))
