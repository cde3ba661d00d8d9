"""Functions of TensorFlow 0.x whose arguments had other names or another order in 1.0.

An order of 0.x is understood where nobody can have meant 1.0's: an axis has no dimensions, and what
is concatenated or split has; labels are integers where logits are not. Losses took no arguments
without names in 1.0, so that such a call is one of 0.x.
"""

import functools
import numbers
from collections.abc import Callable
from typing import Any, TypeAlias

import tensorflow

from trainer.tf1.old_names import RENAMED

v1 = tensorflow.compat.v1
Function: TypeAlias = Callable[..., Any]

KEYWORDS: dict[str, dict[str, str]] = {
    "tf.audio_summary": {"tag": "name"},
    "tf.batch_matmul": {"x": "a", "y": "b", "adj_x": "adjoint_a", "adj_y": "adjoint_b"},
    "tf.concat": {"concat_dim": "axis"},
    "tf.contrib.deprecated.histogram_summary": {"tag": "name"},
    "tf.contrib.deprecated.scalar_summary": {"tags": "name", "values": "tensor"},
    "tf.histogram_summary": {"tag": "name"},
    "tf.image_summary": {"tag": "name", "max_images": "max_outputs"},
    "tf.nn.sigmoid_cross_entropy_with_logits": {"targets": "labels"},
    "tf.reverse": {"dims": "axis"},
    "tf.scalar_summary": {"tags": "name", "values": "tensor"},
    "tf.select": {"t": "x", "e": "y"},
    "tf.split": {"split_dim": "axis", "num_split": "num_or_size_splits"},
}
"""Arguments by their names in 0.x, of the functions that have other names for them in 1.0."""


def install() -> None:
    """Lets functions that kept their names take the arguments of 0.x, too."""
    v1.concat = _with("tf.concat", v1.concat, _axis_first)
    v1.split = _with("tf.split", v1.split, _axis_and_number_first)
    v1.sparse_split = _with("", v1.sparse_split, _split_first)
    v1.reverse = _with("tf.reverse", v1.reverse, _flags_of_dimensions)
    v1.image.resize_images = _with("", v1.image.resize_images, _height_and_width)
    for name in ("nce_loss", "sampled_softmax_loss"):
        setattr(v1.nn, name, _with("", getattr(v1.nn, name), _inputs_first))
    for kind in ("softmax", "sparse_softmax", "sigmoid"):
        name = f"{kind}_cross_entropy_with_logits"
        setattr(v1.nn, name, _with(f"tf.nn.{name}", getattr(v1.nn, name), _logits_first))
    v1.train.SyncReplicasOptimizer = _sync_replicas_optimizer(v1.train.SyncReplicasOptimizer)


def renamed(path: str) -> Any:
    """Finds what a name of 0.x stands for.

    Raises:
        KeyError: It is none.
        AttributeError: TensorFlow has no longer what it stands for.
    """
    target = functools.reduce(getattr, RENAMED[path].split(".")[1:], v1)
    return _with(path, target) if path in KEYWORDS else target


def _with(path: str, function: Function, reorder: Function | None = None) -> Function:
    """A function that takes the arguments of 0.x, as well as its own."""
    keywords = KEYWORDS.get(path, {})

    @functools.wraps(function)
    def called(*words: Any, **options: Any) -> Any:
        for old, new in keywords.items():
            if old in options:
                options[new] = options.pop(old)
        if reorder:
            words, options = reorder(words, options)
        return function(*words, **options)

    return called


Arguments: TypeAlias = tuple[tuple[Any, ...], dict[str, Any]]


def _axis_first(words: tuple[Any, ...], options: dict[str, Any]) -> Arguments:
    """`concat(axis, values)`."""
    first, *others = words or (None,)
    if others and _is_axis(first):
        words = (others[0], first, *others[1:])
    elif words and "values" in options:
        words, options["axis"] = (), first
    return words, options


def _axis_and_number_first(words: tuple[Any, ...], options: dict[str, Any]) -> Arguments:
    """`split(axis, number, value)`."""
    if words and _is_axis(words[0]):
        options |= dict(zip(("axis", "num_or_size_splits", "value", "name"), words, strict=False))
        words = ()
    return words, options


def _split_first(words: tuple[Any, ...], options: dict[str, Any]) -> Arguments:
    """`sparse_split(axis, number, value)`, which takes no arguments without names in 1.0."""
    return (), dict(zip(("axis", "num_split", "sp_input", "name"), words, strict=False)) | options


def _logits_first(words: tuple[Any, ...], options: dict[str, Any]) -> Arguments:
    """`loss(logits, labels, …)`; only softmax has a dimension before its name."""
    names = (
        "logits",
        "labels",
        "name" if words[2:] and isinstance(words[2], str) else "dim",
        "name",
    )
    return (), dict(zip(names, words, strict=False)) | options


def _inputs_first(words: tuple[Any, ...], options: dict[str, Any]) -> Arguments:
    """`loss(weights, biases, inputs, labels, …)`."""
    if len(words) > 3 and _is_integer(words[3]) and not _is_integer(words[2]):
        words = (*words[:2], words[3], words[2], *words[4:])
    return words, options


def _flags_of_dimensions(words: tuple[Any, ...], options: dict[str, Any]) -> Arguments:
    """`reverse(tensor, [False, True])`."""
    named = dict(zip(("tensor", "axis", "name"), words, strict=False)) | options
    axis = named.get("axis")
    if isinstance(axis, list | tuple) and axis and all(isinstance(one, bool) for one in axis):
        named["axis"] = [place for place, flag in enumerate(axis) if flag]
    return (), named


def _height_and_width(words: tuple[Any, ...], options: dict[str, Any]) -> Arguments:
    """`resize_images(images, height, width, …)`."""
    if "new_height" in options:
        options["size"] = options.pop("new_height"), options.pop("new_width")
    elif len(words) > 2 and _is_axis(words[1]):
        words = (words[0], words[1:3], *words[3:])
    return words, options


def _is_axis(value: Any) -> bool:
    """Whether a value is one integer, and so neither a list nor what is concatenated or split."""
    if isinstance(value, numbers.Integral):
        return True
    return getattr(getattr(value, "shape", None), "ndims", None) == 0 and _is_integer(value)


def _is_integer(value: Any) -> bool:
    kind = getattr(value, "dtype", None)
    return kind is not None and bool(v1.as_dtype(kind).is_integer)


def _sync_replicas_optimizer(original: Any) -> Any:
    class SyncReplicasOptimizer(original):  # type: ignore[misc]
        """Version 1.0's, which takes the `replica_id` of 0.x, and needs none."""

        def __init__(self, *words: Any, replica_id: Any = None, **options: Any) -> None:
            super().__init__(*words, **options)

    return SyncReplicasOptimizer
