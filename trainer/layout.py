"""Layout of a network's weights in one flat tensor a ps task, in rows of 16 numbers.

Pieces that begin at a row are cut off without being copied.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from trainer.model import Model

ROW = 16


class Layout:
    """Place of each weight of `model`: on which of `tasks` flat variables, and in which rows.

    A weight goes to the task with the fewest rows so far. Round robin, TensorFlow's default, would
    put both weight matrices of a network on the same of two tasks.
    """

    def __init__(self, model: Model, tasks: int) -> None:
        totals = [0] * tasks
        self._places = []  # of each weight: task, first row, rows, numbers, shape
        for shape in model.shapes:
            size = int(np.prod(shape))
            rows = -(-size // ROW)
            task = totals.index(min(totals))
            self._places.append((task, totals[task], rows, size, shape))
            totals[task] += rows
        self.shapes = [(max(total, 1), ROW) for total in totals]

    def split(self, flats: list[Any], reshape: Any = tf.reshape) -> list[Any]:
        """The weights out of the flat tensors, or arrays with `np.reshape`."""
        return [
            reshape(reshape(flats[task][first : first + rows], [-1])[:size], shape)
            for task, first, rows, size, shape in self._places
        ]

    def join(self, weights: list[Any], reshape: Any = tf.reshape, concat: Any = tf.concat) -> Any:
        """The flat tensors of weights or of their gradients; arrays with NumPy's functions."""
        pieces: list[list[Any]] = [[] for _ in self.shapes]
        for weight, (task, _, rows, size, _) in zip(weights, self._places, strict=True):
            pieces[task].append(reshape(weight, [-1]))
            if rows * ROW > size:
                pieces[task].append(np.zeros(rows * ROW - size, np.float32))
        return [
            reshape(concat(many or [np.zeros(ROW, np.float32)], 0), shape)
            for many, shape in zip(pieces, self.shapes, strict=True)
        ]
