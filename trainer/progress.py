"""Progress of a task: lines for its log, summaries for TensorBoard."""

import dataclasses
import pathlib
import time
from typing import Any

# The last line tells the mean loss of the steps up to this one, so that modes can be compared.
COMPARED_STEP = 500
COMPARED_STEPS = 100


@dataclasses.dataclass(frozen=True)
class Step:
    """One local step: its loss, and the global step after it.

    `staleness` is how many updates of others came between its fetch and its push; where updates
    are synchronous, a gradient that has any is `dropped`.
    """

    loss: float
    global_step: int
    staleness: int = 0
    dropped: bool = False


class Summaries:
    """Scalars for TensorBoard, one event file in `directory`; without a directory nothing."""

    def __init__(self, directory: pathlib.Path | None) -> None:
        self._writer = None
        if directory is not None:
            import tensorflow as tf

            self._summary = tf.compat.v1.Summary
            with tf.Graph().as_default():
                self._writer = tf.compat.v1.summary.FileWriter(str(directory))

    def graph(self, graph: Any) -> None:
        """Writes the graph, which TensorBoard colours by device."""
        if self._writer is not None:
            self._writer.add_graph(graph)
            self._writer.flush()

    def add(self, step: int, serialised: Any) -> None:
        """Writes what a summary operation has returned."""
        if self._writer is not None:
            self._writer.add_summary(serialised, step)
            self._writer.flush()

    def write(self, step: int, **scalars: float) -> None:
        """Writes each of `scalars` under its name; an underscore becomes a blank."""
        if self._writer is not None:
            summary = self._summary()
            for name, value in scalars.items():
                summary.value.add(tag=name.replace("_", " "), simple_value=value)
            self.add(step, summary)


class Progress:
    """Counts a task's own steps; prints one in `every`, and a last line.

    A global step has `batch` examples. Given how many of them an `epoch` has, the lines tell
    examples/sec and epochs too.
    """

    def __init__(
        self, every: int, batch: int, summaries: Summaries, epoch: float | None = None
    ) -> None:
        self._every, self._batch, self._epoch = every, batch, epoch
        self._summaries = summaries
        self._last_local = self._staleness = self._dropped = 0
        self._compared: list[float] = []
        self.local_step = 0

    def begin(self, global_step: int) -> None:
        """Starts the clock, at `global_step`."""
        self._started = self._last_time = time.monotonic()
        self._first_global = self._last_global = self.global_step = global_step

    def has_line(self, local_step: int) -> bool:
        """Whether a line is printed of the task's own step `local_step`."""
        return local_step % self._every == 0

    def add(self, steps: list[Step], learning_rate: float) -> None:
        """Counts `steps` and prints the lines that are due, which share the time of their call."""
        due = []
        for step in steps:
            self.local_step += 1
            self.global_step = max(self.global_step, step.global_step)
            self._staleness += step.staleness
            self._dropped += step.dropped
            if 0 <= COMPARED_STEP - step.global_step < COMPARED_STEPS and step.loss == step.loss:
                self._compared.append(step.loss)
            if self.has_line(self.local_step):
                due.append((self.local_step, step))
        if not due:
            return
        now, count = time.monotonic(), self.local_step - self._last_local
        elapsed = max(now - self._last_time, 1e-9)
        staleness = self._staleness / count
        more = self._speed(elapsed / count)
        if self._dropped:
            more += f", {self._dropped} dropped"
        elif staleness:
            more += f", stale {staleness:.1f}"
        for number, step in due:
            print(
                f"After {number} training steps ({step.global_step} global steps), loss on "
                f"training batch is {step.loss:.4f}{more}"
            )
        self._summaries.write(
            due[-1][1].global_step,
            loss=due[-1][1].loss,
            learning_rate=learning_rate,
            steps_per_second=max(self.global_step - self._last_global, 0) / elapsed,
            staleness=staleness,
            dropped_gradients=self._dropped,
        )
        self._last_time, self._last_local = now, self.local_step
        self._last_global, self._staleness = self.global_step, 0

    def _speed(self, seconds: float) -> str:
        """The end of a line whose steps took `seconds` each; half of a terminal has room for it."""
        if not self._epoch:
            return f"; {1000 * seconds:.{1 if seconds < 0.01 else 0}f} ms"
        examples, epochs = self._batch / seconds, self.global_step / self._epoch
        return f".  ({seconds:.3f} sec/batch)  {examples:.0f} examples/sec; epoch {epochs:.2f}"

    def finish(self, accuracy: float | None = None) -> None:
        """Prints the last line; its examples are those of all tasks while this one trained."""
        seconds = max(time.monotonic() - self._started, 1e-9)
        rate = max(self.global_step - self._first_global, 0) * self._batch / seconds
        end = f", {self._dropped} gradients dropped" if self._dropped else ""
        if self._compared and self.global_step >= COMPARED_STEP:
            loss = sum(self._compared) / len(self._compared)
            end += f", loss {loss:.4f} at step {COMPARED_STEP}"
        if accuracy is not None:
            end += f", test accuracy {accuracy:.4f} (moving averages)"
            self._summaries.write(self.global_step, test_accuracy=accuracy)
        print(
            f"Done: {self.local_step} training steps ({self.global_step} global steps) "
            f"in {seconds:.1f} s, {rate:.0f} examples/s{end}"
        )
