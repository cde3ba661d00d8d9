"""Checkpoints as one process after the other writes and reads them."""

from __future__ import annotations

import pathlib

import numpy as np
import pytest

from tests.support.lazily import checkpoint, convolution, model, parameters
from trainer.exceptions import CheckpointError
from trainer.flags import parse


def checkpoints(logdir: pathlib.Path, network: model.Model) -> checkpoint.Checkpoints:
    """Checkpoints of a process that has just been started."""
    return checkpoint.Checkpoints(network, parse(["towers", f"--logdir={logdir}"])[1])


def values(step: int, network: model.Model) -> parameters.Values:
    zeros = [np.zeros(shape, np.float32) for shape in network.shapes]
    return parameters.Values(step, zeros, zeros, zeros if network.momentum else [])


def test_a_restarted_chief_removes_old_checkpoints(tmp_path: pathlib.Path) -> None:
    """The chief counts checkpoints of the process before it: the newest are kept."""
    for first in (0, 3, 6):
        again = checkpoints(tmp_path, model.MLP)
        for step in range(first, first + 3):
            again.save(values(step, model.MLP))
    kept = {int(path.stem.rpartition("-")[2]) for path in tmp_path.glob("*.index")}
    assert kept == set(range(9 - checkpoint.KEEP, 9))


@pytest.mark.parametrize("first", ["cnn", "mlp"])
def test_a_checkpoint_of_another_model(tmp_path: pathlib.Path, first: str) -> None:
    """The other model is named; some weights of both networks have the same names."""
    networks = (convolution.CNN, model.MLP)
    written, read = networks if first == "cnn" else networks[::-1]
    checkpoints(tmp_path, written).save(values(7, written))
    with pytest.raises(CheckpointError, match=rf"{tmp_path}/model.ckpt-7: .* another model: .*"):
        checkpoints(tmp_path, read).load(f"{tmp_path}/model.ckpt-7")
