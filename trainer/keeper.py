"""What the chief does for all: first values, checkpoints, moving averages and the test."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from trainer.checkpoint import RUN_ID, Checkpoints, Saver, read
from trainer.network import Setter, variable
from trainer.schedule import Averaging

if TYPE_CHECKING:
    from trainer.data import Split
    from trainer.flags import Options
    from trainer.network import Network
    from trainer.progress import Summaries

# Global steps between two updates of the moving averages, at least.
AVERAGE_EVERY = 20


class Keeper:
    """Keeps a graph's `network`; its operations are on `device`, the chief's CPU."""

    def __init__(
        self,
        network: Network,
        device: str,
        options: Options,
        checkpoints: Checkpoints,
        test: Split,
        summaries: Summaries,
    ) -> None:
        self._network = network
        self._options = options
        self._checkpoints = checkpoints
        self._test = test
        self._summaries = summaries
        self._averaging = Averaging(options.average_decay)
        self._averaged_at = 0
        self._saved_at = -1
        self._saved_time = 0.0
        with tf.device(device):
            self._run_id = variable(RUN_ID, dtype=tf.string)
            self._images = tf.compat.v1.placeholder(tf.uint8, test.images.shape)
            self._labels = tf.compat.v1.placeholder(tf.uint8, test.labels.shape)
            averages = [tf.identity(average) for average in network.averages]
            self._accuracy = network.model.accuracy(averages, self._images, self._labels)
        self._set_run_id = Setter([self._run_id])
        variables = {**network.by_name(), RUN_ID: self._run_id}
        self._saver = Saver(checkpoints, variables, device)

    def start(self, session: Any) -> None:
        """Gives all variables their values: the run's newest checkpoint, else fresh ones.

        Raises:
            CheckpointError: There is a checkpoint, but not one this run may go on from.
        """
        path = self._checkpoints.find()
        if path is None:
            self._network.initialise(session, self._options.seed)
            print("initialised the variables", flush=True)
        else:
            self._saver.restore(session, path)
            print(f"restored step {read(path)[1]} from {path}", flush=True)

    def join(self, session: Any) -> None:
        """Says that the variables have values: their ps has outlived the chief.

        These are newer than any checkpoint, so the global step does not fall.
        """
        step = int(session.run(self._network.step))
        path = self._checkpoints.find()
        saved = f"checkpoint was at step {read(path)[1]}" if path else "there is no checkpoint"
        print(f"goes on from the shared state at step {step}; {saved}", flush=True)

    def begin(self, session: Any, step: int) -> None:
        """Starts to keep a network that has values and stands at global step `step`."""
        self._set_run_id(session, [self._checkpoints.run_id])
        self._averaged_at, self._saved_at = step, -1
        self.save(session, step)

    def keep(self, session: Any, step: int) -> None:
        """To be called at every step: averages and saves when it is time."""
        if step - self._averaged_at >= AVERAGE_EVERY:
            self.average(session, step)
        if time.monotonic() - self._saved_time >= self._options.save_secs:
            self.save(session, step)
            self._summaries.write(step, test_accuracy=self.accuracy(session))

    def finish(self, session: Any, step: int) -> None:
        """The last average and checkpoint."""
        self.average(session, step)
        self.save(session, step)

    def average(self, session: Any, step: int) -> None:
        """Brings the moving averages up to `step`."""
        self._network.average(session, self._averaging.weight(step, self._averaged_at))
        self._averaged_at = step

    def save(self, session: Any, step: int) -> None:
        """Writes a checkpoint named by `step`, unless the last one already was.

        Raises:
            CheckpointError: It cannot be written; earlier ones are intact.
        """
        if step != self._saved_at:
            self._saver.save(session, step)
        self._saved_time, self._saved_at = time.monotonic(), step

    def accuracy(self, session: Any) -> float:
        """The share of test images that the averaged weights get right."""
        feed = {self._images: self._test.images, self._labels: self._test.labels}
        return float(session.run(self._accuracy, feed))
