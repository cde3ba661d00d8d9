"""Checkpoints: which one a run may go on from, and the copy that they are written from.

A checkpoint carries the id of the run that wrote it, as a variable of its own. A restarted task
goes on from its own run's checkpoint; one that another run left in the same directory would end
the training at once or break it, so it is refused unless it is asked for by name.
"""

from __future__ import annotations

import os
import pathlib
import secrets
import time
from typing import Any

import tensorflow as tf
from numpy.typing import NDArray

from trainer.data import Split
from trainer.errors import CheckpointError, reason
from trainer.flags import Options
from trainer.model import Model
from trainer.parameters import Setter, Values, variable

RUN_ID = "run_id"
STEP = "global_step"
KEEP = 5
_TEST_BATCH = 1000
PREFIX = "model.ckpt"
# What TensorFlow raises for a file that is cut short depends on where it ends.
_BROKEN = (tf.errors.OpError, ValueError, RuntimeError, IndexError, KeyError, OSError)


class Checkpoints:
    """The checkpoints of one run in `--logdir`; a run started by hand gets an id of its own.

    `of_any_run`: without TFMUX_RUN_ID, those of any run are taken.
    """

    def __init__(self, options: Options, of_any_run: bool = False) -> None:
        by_hand = time.strftime("by-hand-%Y%m%d-%H%M%S-") + secrets.token_hex(2)
        given = os.environ.get("TFMUX_RUN_ID")
        self.run_id = given or by_hand
        self._of_any_run = of_any_run and not given
        self._resume = options.resume or os.environ.get("TFMUX_RESUME") or None
        self.directory = pathlib.Path(options.logdir).expanduser() if options.logdir else None
        if self.directory:
            try:
                self.directory.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise CheckpointError(f"{self.directory}: {error.strerror}") from None

    def find(self) -> str | None:
        """The newest checkpoint's path without suffix, None when there is none.

        Raises:
            CheckpointError: It cannot be read, or is another run's that was not asked for.
        """
        if self.directory is None:
            return None
        path = self._newest()
        if path is None:
            if self._resume:
                raise CheckpointError(f"{self.directory}: no checkpoint of run {self._resume}")
            return None
        run_id, step = read(path)
        if not self._of_any_run and run_id not in (self.run_id, self._resume):
            raise CheckpointError(
                f"{path}: written by run {run_id} at global step {step}; this is run "
                f"{self.run_id}: pass --resume {run_id} to go on from it, or another --logdir"
            )
        return path

    def _newest(self) -> str | None:
        """The path that the directory's index, `checkpoint`, names.

        TensorFlow takes an index that it cannot read for none; then a foreign run's checkpoints
        would be overwritten.
        """
        assert self.directory is not None
        found = tf.train.latest_checkpoint(str(self.directory))
        if found is not None:
            return str(found)
        index = self.directory / "checkpoint"
        others = sorted(self.directory.glob(f"{PREFIX}-*.index"))
        if index.exists() or others:
            what = "names a checkpoint that does not exist" if index.exists() else "no such file"
            there = f"; there is {others[-1].stem}" if others else ""
            raise CheckpointError(
                f"{index}: {what}{there}: repair it, or remove it with the checkpoints, "
                "or pass another --logdir"
            )
        return None


def read(path: str) -> tuple[str, int]:
    """Run id and global step of the checkpoint at `path`."""
    run_id, step = _read_arrays(path, [RUN_ID, STEP])
    return (run_id.decode() if isinstance(run_id, bytes) else str(run_id)), int(step)


class ChiefCopy:
    """The chief's own variables for all values of `model`: saved and tested in its process.

    A sharded saver on the shared ones, TensorFlow's default, would write each ps's part on that
    ps's disk.
    """

    def __init__(self, model: Model, momentum: bool = False) -> None:
        kinds = ("", "/average", "/momentum")[: 2 + momentum]
        self._names = [[f"{name}{kind}" for name in model.names] for kind in kinds]
        with tf.Graph().as_default() as self._graph, tf.device("/device:CPU:0"):
            kept = [
                [variable(name, shape) for name, shape in zip(names, model.shapes, strict=True)]
                for names in self._names
            ]
            variables = [variable(RUN_ID, dtype=tf.string), variable(STEP, dtype=tf.int64)]
            variables += [one for many in kept for one in many]
            self._saver = tf.compat.v1.train.Saver(variables, max_to_keep=KEEP)
            self._set, self._set_averages = Setter(variables), Setter(kept[1])
            self._images = tf.compat.v1.placeholder(tf.uint8, (None, None))
            self._labels = tf.compat.v1.placeholder(tf.uint8, (None,))
            self._share = model.accuracy(kept[1], self._images, self._labels)
        config = tf.compat.v1.ConfigProto(device_count={"GPU": 0})
        self._session = tf.compat.v1.Session(graph=self._graph, config=config)

    def read(self, path: str) -> Values:
        """The values in the checkpoint at `path`."""
        (step,) = _read_arrays(path, [STEP])
        return Values(int(step), *(_read_arrays(path, names) for names in self._names))

    def save(self, checkpoints: Checkpoints, values: Values) -> None:
        """Writes a checkpoint; the last `KEEP` stay."""
        if checkpoints.directory is None:
            return
        prefix = checkpoints.directory / PREFIX
        arrays = [*values.weights, *values.averages, *values.momenta]
        self._set(self._session, [checkpoints.run_id, values.step, *arrays])
        try:
            with self._graph.as_default():  # the saver refuses where code is eager
                self._saver.save(
                    self._session, str(prefix), global_step=values.step, write_meta_graph=False
                )
        except (tf.errors.OpError, OSError, ValueError) as error:
            for part in prefix.parent.glob(f"{prefix.name}-{values.step}.*tempstate*"):
                part.unlink()
            raise CheckpointError(f"{prefix}-{values.step}: cannot save: {reason(error)}") from None

    def accuracy(self, averages: list[NDArray[Any]], test: Split) -> float:
        """The share of `test` whose label is the first choice of the averaged weights."""
        self._set_averages(self._session, averages)
        right = 0.0
        for at in range(0, len(test), _TEST_BATCH):
            images, labels = test.images[at : at + _TEST_BATCH], test.labels[at : at + _TEST_BATCH]
            feed = {self._images: images, self._labels: labels}
            right += float(self._session.run(self._share, feed)) * len(labels)
        return right / len(test)


def _read_arrays(path: str, names: list[str]) -> list[Any]:
    try:
        reader = tf.train.load_checkpoint(path)
        return [reader.get_tensor(name) for name in names]
    except _BROKEN as error:
        what = "broken or cut short" if isinstance(error, IndexError) else reason(error)
        raise CheckpointError(f"{path}: {what}") from None
