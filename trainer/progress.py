"""What a task says while it trains: lines for its log, summaries for TensorBoard."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pathlib


def line(local_step: int, global_step: int, loss: float, seconds: float) -> str:
    """The progress line; `seconds` is the mean time of a batch since the line before."""
    return (
        f"After {local_step} training steps ({global_step} global steps), "
        f"loss on training batch is {loss:.4f}.  ({seconds:.3f} sec/batch)"
    )


class Summaries:
    """Scalars for TensorBoard, one event file in `directory`; without a directory nothing."""

    def __init__(self, directory: pathlib.Path | None) -> None:
        self._writer = None
        if directory is not None:
            import tensorflow as tf

            self._summary = tf.compat.v1.Summary
            with tf.Graph().as_default():
                self._writer = tf.compat.v1.summary.FileWriter(str(directory))

    def histograms(self, step: int, values: dict[str, Any]) -> None:
        """Writes the distribution of each array in `values` under its name."""
        if self._writer is not None:
            histograms = [
                self._summary.Value(tag=name, histo=_histogram(array))
                for name, array in values.items()
            ]
            self._writer.add_summary(self._summary(value=histograms), step)
            self._writer.flush()

    def write(self, step: int, **scalars: float) -> None:
        """Writes each of `scalars` under its name; an underscore becomes a blank."""
        if self._writer is not None:
            values = [
                self._summary.Value(tag=name.replace("_", " "), simple_value=value)
                for name, value in scalars.items()
            ]
            self._writer.add_summary(self._summary(value=values), step)
            self._writer.flush()


class Progress:
    """Counts a task's own steps, and prints every `every` of them.

    Args:
        every: Local steps between two lines.
        batch: Examples a step.
        summaries: Where the same goes for TensorBoard.
    """

    def __init__(self, every: int, batch: int, summaries: Summaries) -> None:
        self._every = every
        self._batch = batch
        self._summaries = summaries
        self._started = self._last_time = time.monotonic()
        self._first_global = self._last_global = -1
        self._last_local = 0
        self.local_step = 0
        self.global_step = 0

    def begin(self, global_step: int) -> None:
        """Starts the clock, at `global_step`."""
        self._started = self._last_time = time.monotonic()
        self._first_global = self._last_global = self.global_step = global_step

    def prints(self, ahead: int) -> bool:
        """Whether the step after the next `ahead` ones has a line: only then its loss is read."""
        return (self.local_step + ahead + 1) % self._every == 0

    def step(self, global_step: int, loss: float, learning_rate: float, count: int = 1) -> None:
        """Counts `count` local steps, the last of which brought the run to `global_step`."""
        before = self.local_step // self._every
        self.local_step += count
        self.global_step = max(global_step, self.global_step)
        if self.local_step // self._every == before:
            return
        now = time.monotonic()
        seconds = (now - self._last_time) / (self.local_step - self._last_local)
        print(line(self.local_step, global_step, loss, seconds), flush=True)
        self._summaries.write(
            global_step,
            loss=loss,
            learning_rate=learning_rate,
            steps_per_second=max(global_step - self._last_global, 0) / (now - self._last_time),
        )
        self._last_time, self._last_local, self._last_global = now, self.local_step, global_step

    def finish(self, accuracy: float | None = None, what: str = "moving averages") -> None:
        """Prints the last line: steps, seconds, examples/s and, from the chief, test accuracy.

        Examples are those of all tasks while this one trained.
        """
        seconds = max(time.monotonic() - self._started, 1e-9)
        rate = max(self.global_step - self._first_global, 0) * self._batch / seconds
        end = "" if accuracy is None else f", test accuracy {accuracy:.4f} ({what})"
        print(
            f"Done: {self.local_step} training steps ({self.global_step} global steps) "
            f"in {seconds:.1f} s, {rate:.0f} examples/s{end}",
            flush=True,
        )
        if accuracy is not None:
            self._summaries.write(self.global_step, test_accuracy=accuracy)


def _histogram(array: Any) -> Any:
    """The values of `array` as TensorBoard wants them: thirty buckets and their sums."""
    import numpy as np
    from tensorflow.compat.v1 import HistogramProto

    flat = np.asarray(array, np.float64).ravel()
    counts, edges = np.histogram(flat, bins=30)
    return HistogramProto(
        min=flat.min(),
        max=flat.max(),
        num=flat.size,
        sum=flat.sum(),
        sum_squares=np.square(flat).sum(),
        bucket_limit=edges[1:],
        bucket=counts,
    )
