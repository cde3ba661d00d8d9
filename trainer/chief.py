"""What the chief does for all: first values, checkpoints and the test."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from trainer.checkpoint import STEP, Checkpoints, Writer, read, read_arrays
from trainer.parameters import Values

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from trainer.data import Split
    from trainer.flags import Options
    from trainer.model import Model
    from trainer.progress import Summaries

_TEST_BATCH = 1000


class Chief:
    """Keeps a training's values on the chief's disk, and tests their moving averages.

    It works on arrays: whatever holds the variables of a mode, its checkpoints are the same.
    """

    def __init__(
        self,
        model: Model,
        options: Options,
        checkpoints: Checkpoints,
        test: Split,
        summaries: Summaries,
        momentum: bool = False,
    ) -> None:
        self._model = model
        self._options = options
        self._checkpoints = checkpoints
        self._test = test
        self._summaries = summaries
        suffixes = ("", "/average", *(["/momentum"] if momentum else []))
        self._names = [[f"{name}{suffix}" for name in model.names] for suffix in suffixes]
        shapes = {
            name: shape
            for names in self._names
            for name, shape in zip(names, model.shapes, strict=True)
        }
        self._writer = Writer(checkpoints, shapes)
        self._accuracy = Accuracy(model)
        self._saved_at = -1
        self._saved_time = 0.0

    def start(self) -> Values:
        """The values of the run's newest checkpoint, else fresh ones.

        Raises:
            CheckpointError: There is a checkpoint, but not one this run may go on from.
        """
        path = self._checkpoints.find()
        if path is None:
            weights = self._model.initial(self._options.seed)
            print("initialised the variables", flush=True)
            momenta = [0 * weight for weight in weights] if len(self._names) > 2 else []
            return Values(0, weights, weights, momenta)
        parts = [read_arrays(path, names) for names in self._names]
        (step,) = read_arrays(path, [STEP])
        print(f"restored step {step} from {path}", flush=True)
        return Values(int(step), *parts)

    def join(self, step: int) -> None:
        """Says that the variables have values: their ps has outlived the chief.

        These are newer than any checkpoint, so the global step does not fall.
        """
        path = self._checkpoints.find()
        saved = f"checkpoint was at step {read(path)[1]}" if path else "there is no checkpoint"
        print(f"goes on from the shared state at step {step}; {saved}", flush=True)

    def due(self) -> bool:
        """Whether it is time for a checkpoint."""
        elapsed = time.monotonic() - self._saved_time
        return self._checkpoints.directory is not None and elapsed >= self._options.save_secs

    def save(self, values: Values, test: bool = True) -> None:
        """Writes a checkpoint named by its step, unless the last one already was.

        Raises:
            CheckpointError: It cannot be written; earlier ones are intact.
        """
        if values.step != self._saved_at:
            arrays = [*values.weights, *values.averages, *values.momenta]
            self._writer.save(values.step, arrays)
            if test:
                self._summaries.write(values.step, test_accuracy=self.accuracy(values))
        self._saved_time, self._saved_at = time.monotonic(), values.step

    def accuracy(self, values: Values) -> float:
        """The share of test images that the averaged weights get right."""
        return self._accuracy(values.averages, self._test)


class Accuracy:
    """The test of a network: a graph of its own on this process's CPU."""

    def __init__(self, model: Model) -> None:
        with tf.Graph().as_default() as graph, tf.device("/device:CPU:0"):
            self._weights = [tf.compat.v1.placeholder(tf.float32, s) for s in model.shapes]
            self._images = tf.compat.v1.placeholder(tf.uint8, (None, None))
            self._labels = tf.compat.v1.placeholder(tf.uint8, (None,))
            self._share = model.accuracy(self._weights, self._images, self._labels)
        config = tf.compat.v1.ConfigProto(device_count={"GPU": 0})
        self._session = tf.compat.v1.Session(graph=graph, config=config)

    def __call__(self, weights: list[NDArray[Any]], test: Split) -> float:
        """The share of `test` whose label is the network's first choice."""
        right = 0.0
        for at in range(0, len(test), _TEST_BATCH):
            images, labels = test.images[at : at + _TEST_BATCH], test.labels[at : at + _TEST_BATCH]
            feed = {self._images: images, self._labels: labels}
            feed |= dict(zip(self._weights, weights, strict=True))
            right += float(self._session.run(self._share, feed)) * len(labels)
        return right / len(test)
