"""Checkpoints: which one a run may go on from, saving, and the test of the moving averages.

A checkpoint carries the id of the run that wrote it, as a variable of its own. A restarted task
goes on from its own run's checkpoint; one that another run left in the same directory would end
the training at once or break it, so it is refused unless it is asked for by name.
"""

import contextlib
import os
import pathlib
import secrets
import time
from argparse import Namespace
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from trainer.data import Split
from trainer.exceptions import CheckpointError, reason
from trainer.model import Model
from trainer.parameters import Values, assign, variable

RUN_ID = "run_id"
STEP = "global_step"
KEEP = 5
PREFIX = "model.ckpt"
_TEST_BATCH = 1000
# What TensorFlow raises for a file that is cut short depends on where it ends.
_BROKEN = (tf.errors.OpError, ValueError, RuntimeError, IndexError, KeyError, OSError)


class Checkpoints:
    """The checkpoints of one run in `--logdir`; a run started by hand gets an id of its own.

    They are written from variables in this process, and tested there: a sharded saver on the shared
    ones, TensorFlow's default, would write each ps's part on that ps's disk. All values come and go
    as arrays: whatever holds the variables of a mode, its checkpoints are the same.

    `of_any_run`: without TFMUX_RUN_ID, those of any run are taken.
    """

    def __init__(self, model: Model, options: Namespace, of_any_run: bool = False) -> None:
        self._model, self._options = model, options
        by_hand = time.strftime("by-hand-%Y%m%d-%H%M%S-") + secrets.token_hex(2)
        given = os.environ.get("TFMUX_RUN_ID")
        self._run_id = given or by_hand
        self._of_any_run = of_any_run and not given
        self._resume = options.resume or os.environ.get("TFMUX_RESUME") or None
        self.directory = pathlib.Path(options.logdir).expanduser() if options.logdir else None
        if self.directory:
            try:
                self.directory.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise CheckpointError(f"{self.directory}: {error.strerror}") from None
        kinds = ("", "/average", "/momentum")[: 3 if model.momentum else 2]
        self._names = [[f"{name}{kind}" for name in model.names] for kind in kinds]
        self._session: Any = None
        self._saved_at = -1
        self._saved_time = 0.0

    def find(self) -> str | None:
        """The newest checkpoint's path without suffix, None when there is none.

        Raises:
            CheckpointError: It cannot be read, or is another run's that was not asked for.
        """
        if self.directory is None:
            return None
        path = tf.train.latest_checkpoint(str(self.directory))
        if path is None:
            _check_empty(self.directory)
            if self._resume:
                raise CheckpointError(f"{self.directory}: no checkpoint of run {self._resume}")
            return None
        run_id, step = read(path)
        if not self._of_any_run and run_id not in (self._run_id, self._resume):
            raise CheckpointError(
                f"{path}: written by run {run_id} at global step {step}; this is run "
                f"{self._run_id}: pass --resume {run_id} to go on from it, or another --logdir"
            )
        return str(path)

    def first_values(self) -> Values:
        """The values of the run's newest checkpoint, else fresh ones."""
        path = self.find()
        if path is None:
            weights = self._model.initial(self._options.seed)
            print("initialised the variables")
            momenta = [0 * weight for weight in weights] if self._model.momentum else []
            return Values(0, weights, weights, momenta)
        values = self.load(path)
        print(f"restored step {values.step} from {path}")
        return values

    def load(self, path: str) -> Values:
        """The values in the checkpoint at `path`.

        Raises:
            CheckpointError: It cannot be read, or has the weights of another model.
        """
        with _naming(path):
            found = tf.train.load_checkpoint(path).get_variable_to_shape_map()
        names = [name for many in self._names for name in many]
        for name, shape in zip(names, self._model.shapes * len(self._names), strict=True):
            if found.get(name) != list(shape):
                there = f"of shape {found[name]}" if name in found else "missing"
                raise CheckpointError(
                    f"{path}: is of another model: {self._model.name} has {name} of shape "
                    f"{[*shape]}, here it is {there}"
                )
        kinds = [_read_arrays(path, names) for names in self._names]
        return Values(read(path)[1], *kinds)

    def due(self) -> bool:
        """Whether it is time for a checkpoint."""
        elapsed = time.monotonic() - self._saved_time
        return self.directory is not None and elapsed >= self._options.save_secs

    def save(self, values: Values) -> bool:
        """Writes a checkpoint named by its step, unless the last one already was.

        `KEEP` are kept, with those that an earlier process of the run has written.
        """
        new = self.directory is not None and values.step != self._saved_at
        if self.directory is not None and new:
            self._write(self.directory / PREFIX, values)
        self._saved_time, self._saved_at = time.monotonic(), values.step
        return new

    def _write(self, prefix: pathlib.Path, values: Values) -> None:
        self._open_session()
        arrays = [*values.weights, *values.averages, *values.momenta]
        assign(self._session, self._variables, [self._run_id, values.step, *arrays])
        try:
            with self._session.graph.as_default():  # the saver refuses where code is eager
                self._saver.save(
                    self._session, str(prefix), global_step=values.step, write_meta_graph=False
                )
        except (tf.errors.OpError, OSError, ValueError) as error:
            for part in prefix.parent.glob(f"{prefix.name}-{values.step}.*tempstate*"):
                part.unlink()
            raise CheckpointError(f"{prefix}-{values.step}: cannot save: {reason(error)}") from None

    def accuracy(self, values: Values, test: Split) -> float:
        """The share of `test` whose label is the first choice of the averaged weights."""
        self._open_session()
        assign(self._session, self._averages, values.averages)
        right = 0.0
        for at in range(0, len(test), _TEST_BATCH):
            images, labels = test.images[at : at + _TEST_BATCH], test.labels[at : at + _TEST_BATCH]
            feed = {self._images: images, self._labels: labels}
            right += float(self._session.run(self._share, feed)) * len(labels)
        return right / len(test)

    def _open_session(self) -> None:
        """Makes the variables when they are needed: a chief listens before it builds graphs."""
        if self._session:
            return
        with tf.Graph().as_default() as graph, tf.device("/device:CPU:0"):
            kept = [[*map(variable, names, self._model.shapes)] for names in self._names]
            self._averages = kept[1]
            self._variables = [variable(RUN_ID, dtype=tf.string), variable(STEP, dtype=tf.int64)]
            self._variables += [one for many in kept for one in many]
            self._saver = tf.compat.v1.train.Saver(self._variables, max_to_keep=KEEP)
            if self.directory and (state := tf.train.get_checkpoint_state(str(self.directory))):
                self._saver.recover_last_checkpoints(state.all_model_checkpoint_paths)
            self._images = tf.compat.v1.placeholder(tf.uint8, (None, None))
            self._labels = tf.compat.v1.placeholder(tf.uint8, (None,))
            self._share = self._model.accuracy(self._averages, self._images, self._labels)
        config = tf.compat.v1.ConfigProto(device_count={"GPU": 0})
        self._session = tf.compat.v1.Session(graph=graph, config=config)


def _check_empty(directory: pathlib.Path) -> None:
    """Refuses a directory whose index, `checkpoint`, names none of its checkpoints.

    TensorFlow takes an index that it cannot read for none; then a foreign run's checkpoints would
    be overwritten.
    """
    index = directory / "checkpoint"
    others = sorted(directory.glob(f"{PREFIX}-*.index"))
    if index.exists() or others:
        what = "names a checkpoint that does not exist" if index.exists() else "no such file"
        there = f"; there is {others[-1].stem}" if others else ""
        raise CheckpointError(
            f"{index}: {what}{there}: repair it, or remove it with the checkpoints, "
            "or pass another --logdir"
        )


def read(path: str) -> tuple[str, int]:
    """Run id and global step of the checkpoint at `path`."""
    run_id, step = _read_arrays(path, [RUN_ID, STEP])
    return (run_id.decode() if isinstance(run_id, bytes) else str(run_id)), int(step)


def _read_arrays(path: str, names: list[str]) -> list[Any]:
    with _naming(path):
        reader = tf.train.load_checkpoint(path)
        return [reader.get_tensor(name) for name in names]


@contextlib.contextmanager
def _naming(path: str) -> Iterator[None]:
    """Names `path` in an error of TensorFlow about it."""
    try:
        yield
    except _BROKEN as error:
        what = "broken or cut short" if isinstance(error, IndexError) else reason(error)
        raise CheckpointError(f"{path}: {what}") from None
