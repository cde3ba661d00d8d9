"""Stand-ins for the parts of `tf.contrib`, and of TensorFlow's examples, that programs of its time
use most. They compute what the originals did, with the same variables, names and defaults."""

import sys
import types
from collections.abc import Sequence
from typing import Any

import tensorflow

from trainer.data import tutorial
from trainer.tf1.old_arguments import renamed
from trainer.tf1.old_names import remedy

v1 = tensorflow.compat.v1
ABSENT = "is not part of tf1: TensorFlow 2 has removed it"
CELLS = (
    *("RNNCell", "BasicRNNCell", "BasicLSTMCell", "LSTMCell", "GRUCell", "LSTMStateTuple"),
    *("MultiRNNCell", "DropoutWrapper", "ResidualWrapper", "DeviceWrapper"),
)
TINY = 1e-12
"""Added to weights, which may all be 0."""
ZEROS = v1.zeros_initializer()
UNROLLED = ("static_rnn", "static_bidirectional_rnn", "static_state_saving_rnn")


class Module(types.ModuleType):
    """A stand-in of a module; it names what it does not have."""

    def __init__(self, name: str, **contents: Any) -> None:
        super().__init__(name)
        self.__path__: list[str] = []
        vars(self).update(contents)
        sys.modules[name] = self

    def __getattr__(self, name: str) -> Any:
        place = self.__name__.replace("tensorflow.", "tf.", 1)
        raise AttributeError(absent(f"{place}.{name}") if name[:2] != "__" else name)


class _Cells(Module):
    """`tf.contrib.rnn`: what TensorFlow has in `tf.nn`, taken when it is asked for, since it needs
    legacy Keras."""

    def __getattr__(self, name: str) -> Any:
        if name in CELLS:
            return getattr(v1.nn.rnn_cell, name)
        return getattr(v1.nn, name) if name in UNROLLED else super().__getattr__(name)


def absent(path: str) -> str:
    """The message about a name without a stand-in."""
    instead = remedy(path)
    return f"{path} {ABSENT}" + (f"; {instead}" if instead else "")


def examples() -> Module:
    """`tensorflow.examples`, as far as its tutorials' data."""
    name = "tensorflow.examples"
    input_data = Module(
        f"{name}.tutorials.mnist.input_data", read_data_sets=tutorial.read_data_sets
    )
    mnist = Module(f"{name}.tutorials.mnist", input_data=input_data)
    return Module(name, tutorials=Module(f"{name}.tutorials", mnist=mnist))


def contrib() -> Module:
    """`tensorflow.contrib`."""
    name = "tensorflow.contrib"
    layers = Module(
        f"{name}.layers",
        l1_regularizer=_regularizer("l1", lambda weights: v1.reduce_sum(v1.abs(weights))),
        l2_regularizer=_regularizer("l2", v1.nn.l2_loss),
        xavier_initializer=_xavier,
        xavier_initializer_conv2d=_xavier,
        variance_scaling_initializer=_variance_scaling,
        fully_connected=_fully_connected,
        linear=lambda inputs, size, **options: _fully_connected(inputs, size, None, **options),
        relu=_fully_connected,
        conv2d=_conv2d,
        convolution2d=_conv2d,
        max_pool2d=lambda inputs, size, **options: _pool(v1.nn.max_pool, inputs, size, **options),
        avg_pool2d=lambda inputs, size, **options: _pool(v1.nn.avg_pool, inputs, size, **options),
        batch_norm=_batch_norm,
        flatten=_flatten,
        dropout=_dropout,
        one_hot_encoding=lambda labels, num_classes: v1.one_hot(labels, num_classes),
        optimize_loss=_optimize_loss,
    )
    framework = Module(
        f"{name}.framework",
        get_or_create_global_step=v1.train.get_or_create_global_step,
        get_global_step=v1.train.get_global_step,
        create_global_step=v1.train.create_global_step,
    )
    mnist = Module(
        f"{name}.learn.datasets.mnist",
        read_data_sets=tutorial.read_data_sets,
        load_mnist=lambda train_dir="MNIST-data": tutorial.read_data_sets(train_dir),
    )
    datasets = Module(f"{name}.learn.datasets", mnist=mnist)
    learn = Module(f"{name}.learn", datasets=datasets)
    return Module(
        name,
        layers=layers,
        framework=framework,
        learn=learn,
        rnn=_Cells(f"{name}.rnn"),
        legacy_seq2seq=_sequences(f"{name}.legacy_seq2seq"),
        seq2seq=Module(f"{name}.seq2seq", sequence_loss=_loss_of_batch),
        deprecated=Module(
            f"{name}.deprecated",
            scalar_summary=renamed("tf.contrib.deprecated.scalar_summary"),
            histogram_summary=renamed("tf.contrib.deprecated.histogram_summary"),
        ),
    )


def seq2seq() -> Module:
    """`tf.nn.seq2seq` of 0.x."""
    return _sequences("tensorflow.nn.seq2seq")


def _sequences(name: str) -> Module:
    """Losses of sequences as 0.x has them."""
    return Module(name, sequence_loss=_sequence_loss, sequence_loss_by_example=_loss_by_example)


def _loss_by_example(
    logits: Sequence[Any],
    targets: Sequence[Any],
    weights: Sequence[Any],
    average_across_timesteps: bool = True,
    softmax_loss_function: Any = None,
    name: str | None = None,
) -> Any:
    """The weighted losses of lists with a tensor for each step, one for each example."""
    loss = softmax_loss_function or v1.nn.sparse_softmax_cross_entropy_with_logits
    with v1.name_scope(name, "sequence_loss_by_example", [*logits, *targets, *weights]):
        steps = [
            weight * loss(labels=v1.reshape(target, [-1]), logits=logit)
            for logit, target, weight in zip(logits, targets, weights, strict=True)
        ]
        total = v1.add_n(steps)
        return total / (v1.add_n(weights) + TINY) if average_across_timesteps else total


def _sequence_loss(
    logits: Sequence[Any],
    targets: Sequence[Any],
    weights: Sequence[Any],
    average_across_timesteps: bool = True,
    average_across_batch: bool = True,
    softmax_loss_function: Any = None,
    name: str | None = None,
) -> Any:
    """The sum of those losses, or their mean."""
    with v1.name_scope(name, "sequence_loss", [*logits, *targets, *weights]):
        each = _loss_by_example(
            logits, targets, weights, average_across_timesteps, softmax_loss_function
        )
        return v1.reduce_mean(each) if average_across_batch else v1.reduce_sum(each)


def _loss_of_batch(
    logits: Any,
    targets: Any,
    weights: Any,
    average_across_timesteps: bool = True,
    average_across_batch: bool = True,
    softmax_loss_function: Any = None,
    name: str | None = None,
) -> Any:
    """The weighted losses of tensors whose first dimensions are examples and steps."""
    loss = softmax_loss_function or v1.nn.sparse_softmax_cross_entropy_with_logits
    with v1.name_scope(name, "sequence_loss", [logits, targets, weights]):
        flat = v1.reshape(logits, [-1, v1.shape(logits)[2]])
        each = v1.reshape(loss(labels=v1.reshape(targets, [-1]), logits=flat), v1.shape(targets))
        chosen = ((0, average_across_batch), (1, average_across_timesteps))
        axes = [axis for axis, average in chosen if average]
        if not axes:
            return each * weights
        return v1.reduce_sum(each * weights, axes) / (v1.reduce_sum(weights, axes) + TINY)


def _regularizer(name: str, norm: Any) -> Any:
    def make(scale: float, scope: str | None = None) -> Any:
        if isinstance(scale, int) or not 0 <= scale:
            raise ValueError(f"{name}_regularizer: scale must be a float that is not below 0")

        def regularizer(weights: Any) -> Any:
            with v1.name_scope(scope, f"{name}_regularizer", [weights]) as inner:
                factor = v1.convert_to_tensor(scale, weights.dtype.base_dtype)
                return v1.multiply(factor, norm(weights), name=inner)

        return regularizer if scale else lambda weights: None

    return make


def _xavier(uniform: bool = True, seed: int | None = None, dtype: Any = None) -> Any:
    return _variance_scaling(1.0, "FAN_AVG", uniform, seed, dtype)


def _variance_scaling(
    factor: float = 2.0,
    mode: str = "FAN_IN",
    uniform: bool = False,
    seed: int | None = None,
    dtype: Any = None,
) -> Any:
    return v1.variance_scaling_initializer(
        factor,
        mode.lower(),
        "uniform" if uniform else "truncated_normal",
        seed=seed,
        dtype=dtype or v1.float32,
    )


def _refuse(function: str, options: dict[str, Any]) -> None:
    """Refuses options that a stand-in does not have, by their names.

    Raises:
        TypeError: One is set.
    """
    for name, value in options.items():
        if value is not None:
            raise TypeError(f"tf.contrib.layers.{function}: {name} is not part of tf1")


def _fully_connected(
    inputs: Any, num_outputs: int, activation_fn: Any = v1.nn.relu, **options: Any
) -> Any:
    def multiply(weights: Any) -> Any:
        flat = inputs.shape.ndims == 2
        return v1.matmul(inputs, weights) if flat else v1.tensordot(inputs, weights, 1)

    shape = [inputs.shape.as_list()[-1], num_outputs]
    return _layer("fully_connected", inputs, shape, multiply, activation_fn, **options)


def _conv2d(
    inputs: Any,
    num_outputs: int,
    kernel_size: Any,
    stride: Any = 1,
    padding: str = "SAME",
    activation_fn: Any = v1.nn.relu,
    **options: Any,
) -> Any:
    def multiply(weights: Any) -> Any:
        return v1.nn.conv2d(inputs, weights, [1, *_two(stride), 1], padding.upper())

    shape = [*_two(kernel_size), inputs.shape.as_list()[-1], num_outputs]
    return _layer("Conv", inputs, shape, multiply, activation_fn, **options)


def _layer(
    name: str,
    inputs: Any,
    shape: Sequence[int],
    multiply: Any,
    activation_fn: Any,
    normalizer_fn: Any = None,
    normalizer_params: Any = None,
    weights_initializer: Any = None,
    weights_regularizer: Any = None,
    biases_initializer: Any = ZEROS,
    biases_regularizer: Any = None,
    reuse: Any = None,
    trainable: bool = True,
    scope: Any = None,
    **options: Any,
) -> Any:
    """Inputs times weights, plus biases or through a normalizer, and the activation."""
    _refuse(name, options)
    kind = inputs.dtype.base_dtype
    with v1.variable_scope(scope, name, [inputs], reuse=reuse):
        weights = v1.get_variable(
            "weights",
            shape,
            kind,
            weights_initializer or _xavier(),
            weights_regularizer,
            trainable,
        )
        outputs = multiply(weights)
        if normalizer_fn:
            outputs = normalizer_fn(outputs, **(normalizer_params or {}))
        elif biases_initializer is not None:
            biases = v1.get_variable(
                "biases", shape[-1:], kind, biases_initializer, biases_regularizer, trainable
            )
            outputs = v1.nn.bias_add(outputs, biases)
        return activation_fn(outputs) if activation_fn else outputs


def _batch_norm(
    inputs: Any,
    decay: float = 0.999,
    center: bool = True,
    scale: bool = False,
    epsilon: float = 0.001,
    activation_fn: Any = None,
    updates_collections: Any = v1.GraphKeys.UPDATE_OPS,
    is_training: Any = True,
    reuse: Any = None,
    trainable: bool = True,
    scope: Any = None,
    **options: Any,
) -> Any:
    _refuse("batch_norm", {**options, "fused": None})
    with v1.variable_scope(scope, "BatchNorm", [inputs], reuse=reuse) as inner:
        layer = v1.layers.BatchNormalization(
            momentum=decay,
            epsilon=epsilon,
            center=center,
            scale=scale,
            trainable=trainable,
            _scope=inner,
            _reuse=reuse,
        )
        outputs = layer(inputs, training=is_training)
        if updates_collections is None:  # at once, instead of with the training step
            with v1.control_dependencies(layer.get_updates_for(inputs)):
                outputs = v1.identity(outputs)
        return activation_fn(outputs) if activation_fn else outputs


def _pool(
    function: Any,
    inputs: Any,
    kernel_size: Any,
    stride: Any = 2,
    padding: str = "VALID",
    scope: str | None = None,
    **options: Any,
) -> Any:
    _refuse("pool2d", options)
    sizes = [1, *_two(kernel_size), 1], [1, *_two(stride), 1]
    return function(inputs, *sizes, padding.upper(), name=scope)


def _two(size: Any) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else tuple(size)


def _flatten(inputs: Any, outputs_collections: Any = None, scope: str | None = None) -> Any:
    _refuse("flatten", {"outputs_collections": outputs_collections})
    count = inputs.shape[1:].num_elements()
    with v1.name_scope(scope, "Flatten", [inputs]):
        return v1.reshape(inputs, [-1, count] if count else [v1.shape(inputs)[0], -1])


def _dropout(
    inputs: Any,
    keep_prob: Any = 0.5,
    noise_shape: Any = None,
    is_training: Any = True,
    outputs_collections: Any = None,
    scope: str | None = None,
) -> Any:
    _refuse("dropout", {"outputs_collections": outputs_collections})
    with v1.name_scope(scope, "Dropout", [inputs]):
        dropped = v1.nn.dropout(inputs, rate=1 - keep_prob, noise_shape=noise_shape)
        if isinstance(is_training, bool):
            return dropped if is_training else v1.identity(inputs)
        return v1.cond(is_training, lambda: dropped, lambda: inputs)


OPTIMIZERS = {
    "Adagrad": lambda rate: v1.train.AdagradOptimizer(rate),
    "Adam": lambda rate: v1.train.AdamOptimizer(rate),
    "Ftrl": lambda rate: v1.train.FtrlOptimizer(rate),
    "Momentum": lambda rate: v1.train.MomentumOptimizer(rate, 0.9),
    "RMSProp": lambda rate: v1.train.RMSPropOptimizer(rate),
    "SGD": lambda rate: v1.train.GradientDescentOptimizer(rate),
}


def _optimize_loss(
    loss: Any,
    global_step: Any,
    learning_rate: Any,
    optimizer: Any,
    clip_gradients: float | None = None,
    learning_rate_decay_fn: Any = None,
    variables: Any = None,
    **options: Any,
) -> Any:
    """The operation that makes one step, and gives the loss."""
    _refuse("optimize_loss", options)
    step = v1.train.get_global_step() if global_step is None else global_step
    if learning_rate_decay_fn:
        learning_rate = learning_rate_decay_fn(learning_rate, step)
    if isinstance(optimizer, str):
        optimizer = OPTIMIZERS[optimizer]
    if not isinstance(optimizer, v1.train.Optimizer):
        optimizer = optimizer(learning_rate)
    v1.summary.scalar("loss", loss)
    with v1.control_dependencies(v1.get_collection(v1.GraphKeys.UPDATE_OPS)):
        loss = v1.identity(loss)
    pairs = optimizer.compute_gradients(loss, variables or v1.trainable_variables())
    if clip_gradients is not None:
        gradients, clipped = zip(*pairs, strict=True)
        pairs = zip(v1.clip_by_global_norm(gradients, clip_gradients)[0], clipped, strict=True)
    applied = optimizer.apply_gradients(pairs, global_step=step)
    with v1.control_dependencies([applied]):
        return v1.identity(loss)
