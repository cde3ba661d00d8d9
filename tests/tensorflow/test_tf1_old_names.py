"""Programs of TensorFlow 0.x, and of `tf.contrib`, get under `tf1` what release 1.0 gave them."""

from __future__ import annotations

from pathlib import Path

from tests.support.lazily import tf
from tests.support.tf1_scripts import tf1
from trainer.tf1 import old_names

NAMES = """
import numpy as np
import tensorflow as tf
from tensorflow.python.ops import rnn, rnn_cell

a, b = tf.constant([[1.0, 2.0]]), tf.constant([[3.0, 5.0]])
labels, logits = tf.constant([[0.0, 1.0]]), tf.constant([[1.0, 3.0]])
classes = tf.constant([[0]], tf.int64)
step = tf.Variable(0, trainable=False, name="step")
tf.scalar_summary("loss", tf.reduce_sum(a))
tf.histogram_summary(tag="a", values=a)
tf.contrib.deprecated.scalar_summary(tags="old", values=1.0)
sparse = tf.SparseTensor([[0, 1]], [7.0], [1, 2])
tf.image_summary("image", tf.zeros([1, 2, 2, 1]), max_images=2)
merged = tf.merge_all_summaries()
loss = np.log(1 + np.exp(-2.0))
batch = tf.ones([2, 3, 4])
known = [
    (tf.mul(a, b), [[3, 10]]),
    (tf.sub(b, a), [[2, 3]]),
    (tf.neg(a), [[-1, -2]]),
    (tf.inv(b), [[1 / 3, 0.2]]),
    (tf.pack([1, 2]), [1, 2]),
    (tf.unpack(a)[0], [1, 2]),
    (tf.select([True], a, b), [[1, 2]]),
    (tf.select(condition=[True], t=a, e=b), [[1, 2]]),
    (tf.listdiff([1, 2, 3], [2])[0], [1, 3]),
    (tf.batch_matmul(batch, batch, adj_y=True)[0, 0], [4, 4, 4]),
    (tf.concat(0, [a, b]), [[1, 2], [3, 5]]),
    (tf.concat(1, values=[a, b]), [[1, 2, 3, 5]]),
    (tf.concat(concat_dim=1, values=[a, b]), [[1, 2, 3, 5]]),
    (tf.concat([a, b], 1), [[1, 2, 3, 5]]),
    (tf.concat(tf.constant(1), [a, b]), [[1, 2, 3, 5]]),
    (tf.split(1, 2, a)[1], [[2]]),
    (tf.split(1, 2, value=a)[1], [[2]]),
    (tf.split(split_dim=1, num_split=2, value=a)[1], [[2]]),
    (tf.split(a, 2, 1)[1], [[2]]),
    (tf.split(a, [1, 1], axis=1)[1], [[2]]),
    (tf.sparse_split(1, 2, sparse)[1].values, [7]),
    (tf.reverse(a, [False, True]), [[2, 1]]),
    (tf.reverse(a, [1]), [[2, 1]]),
    (tf.shape(tf.image.resize_images(tf.zeros([1, 2, 2, 1]), 4, 6)), [1, 4, 6, 1]),
    (tf.shape(tf.image.resize_images(tf.zeros([1, 2, 2, 1]), [4, 6])), [1, 4, 6, 1]),
    (tf.nn.softmax_cross_entropy_with_logits(logits, labels), [loss]),
    (tf.nn.softmax_cross_entropy_with_logits(labels=labels, logits=logits), [loss]),
    (tf.nn.softmax_cross_entropy_with_logits(logits, labels, "named"), [loss]),
    (tf.nn.sparse_softmax_cross_entropy_with_logits(logits, [1]), [loss]),
    (tf.nn.sigmoid_cross_entropy_with_logits(a, targets=b)
     - tf.nn.sigmoid_cross_entropy_with_logits(labels=b, logits=a), [[0, 0]]),
    (tf.nn.nce_loss(a, tf.zeros(1), b, classes, 1, 1)
     - tf.nn.nce_loss(a, tf.zeros(1), classes, b, 1, 1), [0]),
    (tf.image.per_image_whitening is tf.image.per_image_standardization, True),
    (np.reshape(np.arange(2), newshape=(2, 1)), [[0], [1]]),
]
optimizer = tf.train.SyncReplicasOptimizer(
    tf.train.GradientDescentOptimizer(0.1), 2, replica_id=0, total_num_replicas=2)
assert isinstance(optimizer, tf.train.SyncReplicasOptimizer)
outputs, _ = rnn.rnn(rnn_cell.BasicLSTMCell(3), tf.split(0, 2, tf.ones([2, 4])), dtype=tf.float32)
known.append((tf.shape(outputs[1]), [1, 3]))

with tf.Session() as session:
    session.run(tf.initialize_all_variables())
    for place, (value, expected) in enumerate(known):
        got = session.run(value) if isinstance(value, tf.Tensor) else value
        assert np.allclose(got, expected), (place, got, expected)
    writer = tf.train.SummaryWriter("logs", session.graph_def)
    writer.add_summary(session.run(merged), 1)
    writer.close()
print("all of them")
"""


def test_names_and_arguments_of_0_x(tmp_path: Path) -> None:
    """Given a program with names, argument names and argument orders of 0.x beside 1.0's, when it
    runs, then each computes what 1.0 computes."""
    (tmp_path / "old.py").write_text(NAMES)
    done = tf1(tmp_path, "old.py")
    assert done.stdout == "all of them\n", done.stderr
    assert list((tmp_path / "logs").iterdir())


def test_the_table_leads_to_names_that_there_are() -> None:
    """Given the table of renames, then TensorFlow has each new name, and no name is in two of its
    tables; those of cells need legacy Keras, and are tried by a program above."""
    for old, new in old_names.RENAMED.items():
        assert not old_names.remedy(old)
        if not new.endswith("_rnn"):
            found = tf.compat.v1
            for word in new.split(".")[1:]:
                found = getattr(found, word)
            assert callable(found), new


CONTRIB = """
import numpy as np
import tensorflow as tf
from tensorflow.contrib import layers, rnn
from tensorflow.contrib.rnn import BasicLSTMCell, static_rnn
import tensorflow.contrib.rnn as module

assert module is rnn and BasicLSTMCell is tf.nn.rnn_cell.BasicLSTMCell
outputs, _ = static_rnn(BasicLSTMCell(3), [tf.ones([1, 4])] * 2, dtype=tf.float32)
x = tf.random_normal([5, 8, 8, 2])
y = layers.conv2d(x, 4, 3, normalizer_fn=layers.batch_norm, scope="first")
y = layers.convolution2d(y, 4, [3, 3], stride=2, padding="VALID", activation_fn=None)
y = layers.flatten(layers.max_pool2d(y, 2, padding="SAME"))
with tf.variable_scope("top"):
    y = layers.fully_connected(layers.dropout(y, 0.9, is_training=False), 3, tf.nn.tanh)
with tf.variable_scope("top", reuse=True):
    again = layers.fully_connected(tf.zeros([1, y.shape[1]]) if False else tf.zeros([1, 16]), 3)
loss = tf.reduce_mean(tf.square(y - 0.5))
step = tf.train.get_or_create_global_step()
train = layers.optimize_loss(loss, None, learning_rate=0.1, optimizer="Adagrad", clip_gradients=5.0)
names = sorted(v.op.name for v in tf.trainable_variables() if "rnn" not in v.op.name)
print(*names)
print(len(tf.get_collection(tf.GraphKeys.UPDATE_OPS)), y.shape, outputs[1].shape)
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    first = np.mean([session.run(train) for _ in range(5)])
    for _ in range(60):
        session.run(train)
    last = np.mean([session.run(train) for _ in range(5)])
    assert last < first and session.run(step) == 70, (first, last, session.run(step))
    mean = [v for v in tf.global_variables() if v.op.name.endswith("moving_mean")]
    assert np.abs(session.run(mean[0])).max() > 0
try:
    layers.fully_connected(tf.zeros([1, 2]), 3, variables_collections=["mine"])
except TypeError as error:
    print(error)
"""


def test_layers_and_cells_of_contrib(tmp_path: Path) -> None:
    """Given a program of `tf.contrib.layers` and `rnn`, when it runs, then variables have the
    names that checkpoints of its time have, and it learns; an option that is not there is named."""
    (tmp_path / "old.py").write_text(CONTRIB)
    done = tf1(tmp_path, "old.py")
    assert done.stdout.splitlines() == [
        "Conv/biases Conv/weights first/BatchNorm/beta first/weights "
        "top/fully_connected/biases top/fully_connected/weights",
        "2 (5, 3) (1, 3)",
        "tf.contrib.layers.fully_connected: variables_collections is not part of tf1",
    ], done.stderr


ABSENT = {
    "tf.estimator.train_and_evaluate": "in the loop of a `tf.train.MonitoredTrainingSession`",
    "tf.nn.seq2seq.sequence_loss": "write the loop over `cell(input, state)`, or use `tf.keras`",
    "tf.contrib.losses.log_loss": "TensorFlow 2 has removed it; see `tf.losses`",
    "tf.contrib.layers.embed_sequence": "see `tf.layers`, or write it with `tf.get_variable`",
    "tf.contrib.rnn.AttentionCellWrapper": "see `tf.nn.rnn_cell` and `tf.nn.dynamic_rnn`",
    "tf.contrib.session_bundle.exporter": "see `tf.saved_model`",
}
REUSED = """
import tensorflow as tf
w = tf.get_variable("w", [2])
tf.get_variable_scope().reuse_variables()
tf.train.MomentumOptimizer(0.1, 0.9).minimize(tf.reduce_sum(w))
"""


def test_what_is_not_there_has_a_remedy(tmp_path: Path) -> None:
    """Given names without a stand-in, when a program asks for them, then one sentence has the name
    and what to write instead."""
    asked = "".join(
        f"try: {path}\nexcept AttributeError as error: print(error)\n" for path in ABSENT
    )
    (tmp_path / "old.py").write_text(f"import tensorflow as tf\n{asked}")
    said = tf1(tmp_path, "old.py").stdout.splitlines()
    assert len(said) == len(ABSENT), said
    for line, (path, remedy) in zip(said, ABSENT.items(), strict=True):
        name, _, rest = line.partition(" is not part of tf1: ")
        assert path.startswith(name) and remedy in rest, line


def test_what_1_0_refused_has_a_remedy(tmp_path: Path) -> None:
    """Given a program of 0.x that release 1.0 refused, then the last line says what to write."""
    (tmp_path / "old.py").write_text(REUSED)
    done = tf1(tmp_path, "old.py")
    assert done.returncode == 1, done
    assert "with tf.variable_scope(tf.get_variable_scope()):" in done.stderr.splitlines()[-1]
