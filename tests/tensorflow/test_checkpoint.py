"""Checkpoints as one process after the other writes and reads them."""

from __future__ import annotations

import pathlib

import numpy as np
import pytest

from trainer.checkpoint import KEEP, Checkpoints
from trainer.convolution import CNN
from trainer.exceptions import CheckpointError
from trainer.flags import parse
from trainer.model import MLP, Model
from trainer.parameters import Values


def checkpoints(logdir: pathlib.Path, model: Model = MLP) -> Checkpoints:
    """Those of a process that has just been started."""
    return Checkpoints(model, parse(["towers", f"--logdir={logdir}"])[1])


def values(step: int, model: Model = MLP) -> Values:
    zeros = [np.zeros(shape, np.float32) for shape in model.shapes]
    return Values(step, zeros, zeros, zeros if model.momentum else [])


def test_a_restarted_chief_removes_old_checkpoints(tmp_path: pathlib.Path) -> None:
    """It counts those of the process before it: the newest are kept."""
    for first in (0, 3, 6):
        again = checkpoints(tmp_path)
        for step in range(first, first + 3):
            again.save(values(step))
    kept = {int(path.stem.rpartition("-")[2]) for path in tmp_path.glob("*.index")}
    assert kept == set(range(9 - KEEP, 9))


@pytest.mark.parametrize(("written", "read"), [(CNN, MLP), (MLP, CNN)], ids=["cnn", "mlp"])
def test_a_checkpoint_of_another_model(tmp_path: pathlib.Path, written: Model, read: Model) -> None:
    """It is named; some weights of both networks have the same names."""
    checkpoints(tmp_path, written).save(values(7, written))
    with pytest.raises(CheckpointError, match=rf"{tmp_path}/model.ckpt-7: .* another model: .*"):
        checkpoints(tmp_path, read).load(f"{tmp_path}/model.ckpt-7")
