"""What `classic` has besides the tutorials' program: its devices, its result, a quiet end."""

from typing import Any

import tensorflow.compat.v1 as tf

from trainer.devices import described, local_devices, local_gpus, why_no_gpu


def report_devices(task: str) -> None:
    """Says on which device a task computes, and why on no other."""
    print(f"{task} computes on {described(local_devices(1), local_gpus(), why_no_gpu())}")


def end_quietly(optimizer: Any) -> None:
    """Makes the end of a session no error of a synchronous chief's queue runner, which waits for
    gradients until it is cancelled."""
    runner = optimizer.get_chief_queue_runner()
    quiet = tf.train.QueueRunner(
        runner.queue,
        runner.enqueue_ops,
        queue_closed_exception_types=(tf.errors.OutOfRangeError, tf.errors.CancelledError),
    )
    optimizer.get_chief_queue_runner = lambda: quiet


class Report(tf.train.SessionRunHook):  # type: ignore[misc]
    """The result of a training, as the other modes print theirs: the mean loss of this task's
    batches at global steps 401 to 500, and at the end the accuracy on the test images."""

    def __init__(self, loss: Any, step: Any, accuracy: Any, test: dict[Any, Any]) -> None:
        self._fetched = tf.train.SessionRunArgs([loss, step])
        self._accuracy, self._test = accuracy, test
        self._local = 0
        self._losses: list[float] = []

    def before_run(self, run_context: Any) -> Any:
        """Asks for loss and global step."""
        return self._fetched

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Counts the step, and keeps its loss if it is one of those that are compared."""
        loss, step = run_values.results
        self._local += 1
        if 400 < step <= 500:
            self._losses.append(float(loss))

    def end(self, session: Any) -> None:
        """Prints the result."""
        accuracy = session.run(self._accuracy, self._test)
        mean = sum(self._losses) / max(1, len(self._losses))
        at = f", loss {mean:.4f} at step 500" if self._losses else ""
        print(f"Done: {self._local} training steps{at}, test accuracy {accuracy:.4f}")
