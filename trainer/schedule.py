"""Learning rate and moving average as plain arithmetic: the same in every mode and test."""

from __future__ import annotations

import dataclasses
import math


@dataclasses.dataclass(frozen=True)
class Schedule:
    """The learning rate: `start` times `decay` for every epoch, falling smoothly.

    `epoch` is how many global steps an epoch has.
    """

    start: float
    decay: float
    epoch: float

    def __call__(self, step: int) -> float:
        """The learning rate at global step `step`."""
        return self.start * math.pow(self.decay, step / self.epoch)


@dataclasses.dataclass(frozen=True)
class Averaging:
    """The moving average of the weights: `shadow ← d·shadow + (1 − d)·weight` at every global step.

    As in TensorFlow's `ExponentialMovingAverage`, d starts low, (1 + step) / (10 + step), so that
    the first average does not remember the initial weights.
    """

    decay: float

    def weight(self, step: int, since: int) -> float:
        """What the weights count at `step` when the last average was taken at step `since`.

        One update with 1 − d^k stands for k of them with weights that did not change meanwhile.
        This is what keeps the average off the critical path: not every step pays for it.
        """
        decay = min(self.decay, (1 + step) / (10 + step))
        return 1 - math.pow(decay, max(step - since, 0))
