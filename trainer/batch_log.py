"""The log of `--log-batches`: for each update the batches whose gradients are in it."""

import json
from typing import Any

from trainer.exceptions import UsageError
from trainer.modes import Context


def check_log(context: Context) -> None:
    """Raises `UsageError` where the chief cannot write the log."""
    path = context.options.log_batches
    if path and context.role.is_chief:
        try:
            open(path, "a", encoding="utf-8").close()
        except OSError as error:
            raise UsageError(f"--log-batches={path}: {error.strerror}") from None


class BatchLog:
    """A file with a line of JSON for each update of so many `workers`."""

    def __init__(self, path: str, workers: int) -> None:
        self._path, self._workers = path, workers

    def write(self, step: int, sender: Any) -> None:
        """Adds an update, from the mean of the senders of its gradients."""
        record = {"step": step, "batches": self._batches(sender)}
        with open(self._path, "a", encoding="utf-8") as log:
            log.write(json.dumps(record) + "\n")

    def _batches(self, sender: Any) -> list[tuple[int, int]]:
        """Worker and batch number of each gradient in an update.

        Of a worker that has two of them in it, which a restart may cause, the sum of both numbers.
        """
        shares, numbers = sender.reshape(2, self._workers)
        one = shares[shares > 0].min()
        return [
            (worker, round(float(numbers[worker] / one)))
            for worker in range(self._workers)
            if shares[worker]
        ]
