"""The evaluator and a checkpoint that is just being written."""

from __future__ import annotations

import time

import pytest

from trainer import evaluate
from trainer.checkpoint import Checkpoints
from trainer.exceptions import CheckpointError
from trainer.parameters import Values

VALUES = Values(0, [], [], [])


class Written(Checkpoints):
    """A directory in which the newest checkpoint is named only after some looks."""

    def __init__(self, after: int) -> None:
        self.looks = -after

    def find(self) -> str | None:
        self.looks += 1
        if self.looks <= 0:
            raise CheckpointError("checkpoint: no such file; there is model.ckpt-0")
        return "model.ckpt-0"

    def load(self, path: str) -> Values:
        return VALUES


def test_a_checkpoint_that_is_just_being_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its data comes first, the file that names it last: it is looked for once more."""
    waited: list[float] = []
    monkeypatch.setattr(time, "sleep", waited.append)
    assert evaluate._newest(Written(1)) is VALUES and len(waited) == 1
    with pytest.raises(CheckpointError, match="no such file"):
        evaluate._newest(Written(2))
