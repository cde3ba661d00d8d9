"""Duties of the chief: first values, checkpoints and the test of the moving averages."""

from __future__ import annotations

import functools
import time
from typing import Any

from trainer.checkpoint import Checkpoints, ChiefCopy, read
from trainer.data import Split
from trainer.flags import Options
from trainer.model import Model
from trainer.parameters import Values
from trainer.progress import Summaries


class ChiefDuties:
    """Keeps a training's values on the chief's disk, and tests their moving averages.

    It works on arrays: whatever holds the variables of a mode, its checkpoints are the same.
    """

    def __init__(
        self,
        model: Model,
        options: Options,
        checkpoints: Checkpoints,
        test: Split,
        momentum: bool = False,
    ) -> None:
        self._model = model
        self._options = options
        self._checkpoints = checkpoints
        self._test = test
        self.summaries = Summaries(checkpoints.directory)
        self._momentum = momentum
        self._saved_at = -1
        self._saved_time = 0.0

    @functools.cached_property
    def _copy(self) -> ChiefCopy:
        """Made when it is needed: a chief listens before it builds graphs."""
        return ChiefCopy(self._model, self._momentum)

    def first_values(self) -> Values:
        """The values of the run's newest checkpoint, else fresh ones."""
        path = self._checkpoints.find()
        if path is None:
            weights = self._model.initial(self._options.seed)
            print("initialised the variables", flush=True)
            momenta = [0 * weight for weight in weights] if self._momentum else []
            return Values(0, weights, weights, momenta)
        values = self._copy.read(path)
        print(f"restored step {values.step} from {path}", flush=True)
        return values

    def join(self, step: int) -> None:
        """Says that the variables have values: their ps has outlived the chief.

        These are newer than any checkpoint, so the global step does not fall.
        """
        path = self._checkpoints.find()
        saved = (
            f"the last checkpoint is of step {read(path)[1]}" if path else "there is no checkpoint"
        )
        print(f"continues from the variables on the ps at step {step}; {saved}", flush=True)

    def due(self) -> bool:
        """Whether it is time for a checkpoint."""
        elapsed = time.monotonic() - self._saved_time
        return self._checkpoints.directory is not None and elapsed >= self._options.save_secs

    def save(self, values: Values, test: bool = True) -> None:
        """Writes a checkpoint named by its step, unless the last one already was."""
        if values.step != self._saved_at:
            self._copy.save(self._checkpoints, values)
            if test:
                accuracy = self.accuracy(values.averages)
                self.summaries.write(values.step, test_accuracy=accuracy)
        self._saved_time, self._saved_at = time.monotonic(), values.step

    def accuracy(self, averages: list[Any]) -> float:
        """The share of test images that the averaged weights get right."""
        return self._copy.accuracy(averages, self._test)
