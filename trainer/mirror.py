"""A copy of the network on the chief, for modes whose weights live in eager code.

It has the same names as the graph modes and the same keeper, so checkpoints, moving averages and
the final test are the same in every mode.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from trainer.keeper import AVERAGE_EVERY, Keeper
from trainer.network import Network, Setter

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from trainer.checkpoint import Checkpoints
    from trainer.data import Dataset
    from trainer.flags import Options
    from trainer.model import Model
    from trainer.progress import Summaries

CPU = "/device:CPU:0"


class Mirror:
    """The chief's copy; `weights` and `step` are what the training starts from."""

    def __init__(
        self,
        model: Model,
        options: Options,
        checkpoints: Checkpoints,
        dataset: Dataset,
        summaries: Summaries,
    ) -> None:
        with tf.Graph().as_default() as graph:
            network = Network(model, CPU)
            self._keeper = Keeper(network, CPU, options, checkpoints, dataset.test, summaries)
            self._set = Setter([network.step, *network.weights])
        config = tf.compat.v1.ConfigProto(device_count={"GPU": 0})
        self._session = tf.compat.v1.Session(graph=graph, config=config)
        with graph.as_default():
            self._keeper.start(self._session)
            self.step = int(self._session.run(network.step))
            self.weights: list[NDArray[Any]] = self._session.run(network.weights)
            self._keeper.begin(self._session, self.step)
        self._graph = graph
        self._updated_at = self.step

    def due(self, step: int) -> bool:
        """Whether `update` should be given the weights of `step`."""
        return step - self._updated_at >= AVERAGE_EVERY

    def update(self, step: int, weights: list[Any], last: bool = False) -> None:
        """Takes over `weights`: averages and, when it is time or the `last` time, saves."""
        with self._graph.as_default():
            self._set(self._session, [step, *weights])
            if last:
                self._keeper.finish(self._session, step)
            else:
                self._keeper.keep(self._session, step)
        self._updated_at = step

    def accuracy(self) -> float:
        """The share of test images that the averaged weights get right."""
        return self._keeper.accuracy(self._session)
