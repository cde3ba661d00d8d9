"""Programs of TensorFlow 0.x, and of `tf.contrib`, get under `tf1` what release 1.0 gave them."""

from __future__ import annotations

import re
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


LOSSES = """
import numpy as np
import tensorflow as tf
from tensorflow.contrib import legacy_seq2seq, seq2seq

random = np.random.RandomState(1)
scores = random.randn(2, 3, 5).astype("f")  # examples, steps, words
words = random.randint(0, 5, [2, 3])
weights = np.array([[1, 1, 0.5], [1, 0, 0]], "f")
each = np.log(np.exp(scores).sum(2)) - np.take_along_axis(scores, words[:, :, None], 2)[:, :, 0]
each *= weights
steps = [list(np.swapaxes(one, 0, 1)) for one in (scores, words, weights)]
whole = tf.constant(scores), words, weights
by_example = each.sum(1) / weights.sum(1)
known = [
    (tf.nn.seq2seq.sequence_loss_by_example(*steps), by_example),
    (legacy_seq2seq.sequence_loss_by_example(*steps, average_across_timesteps=False), each.sum(1)),
    (tf.nn.seq2seq.sequence_loss(*steps), by_example.mean()),
    (legacy_seq2seq.sequence_loss(*steps, average_across_batch=False), by_example.sum()),
    (seq2seq.sequence_loss(*whole), each.sum() / weights.sum()),
    (seq2seq.sequence_loss(*whole, average_across_batch=False), by_example),
    (seq2seq.sequence_loss(*whole, average_across_timesteps=False),
     each.sum(0) / (weights.sum(0) + 1e-12)),
    (seq2seq.sequence_loss(*whole, average_across_timesteps=False, average_across_batch=False),
     each),
]
with tf.Session() as session:
    for place, (value, expected) in enumerate(known):
        got = session.run(value)
        assert np.allclose(got, expected, atol=1e-5), (place, got, expected)
print("all of them")
"""


def test_losses_of_sequences(tmp_path: Path) -> None:
    """Given what language models of 0.x and 1.x are trained with, then it computes what it did."""
    (tmp_path / "old.py").write_text(LOSSES)
    done = tf1(tmp_path, "old.py")
    assert done.stdout == "all of them\n", done.stderr


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
    "tf.contrib.legacy_seq2seq.model_with_buckets": "the loop over `cell(input, state)` with",
    "tf.nn.seq2seq.rnn_decoder": "write the loop over `cell(input, state)` with `tf.nn.raw_rnn`",
    "tf.contrib.losses.log_loss": "TensorFlow 2 has removed it; see `tf.losses`",
    "tf.contrib.layers.embed_sequence": "or write it with `tf.get_variable` and `tf.nn`",
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


CALLS = """
import functools, re, tempfile
import numpy as np
import tensorflow as tf
from tensorflow.python.util import tf_inspect

folder = tempfile.mkdtemp()
w = tf.get_variable("w", [2])
saver = tf.train.Saver([w])
keys, values = tf.constant(["a", "b"]), tf.constant([1, 2], tf.int64)
pairs = tf.lookup.KeyValueTensorInitializer(keys, values)
cell = tf.nn.rnn_cell.BasicLSTMCell(3)
one = tf.ones([1, 4])

def loop(time, output, state, loop_state):
    done, next_state = time >= 2, cell.zero_state(1, tf.float32) if output is None else state
    return done[None] if done.shape == [] else done, one, next_state, output, None

known = {
    "tf.GradientTape": lambda: tf.GradientTape().__enter__,
    "tf.add_n": lambda: tf.add_n([w, w]),
    "tf.data.Dataset": lambda: tf.data.Dataset.range(3).prefetch(1),
    "tf.get_static_value": lambda: tf.get_static_value(tf.constant(7)) == 7,
    "tf.get_variable": lambda: tf.get_variable("v", [2]),
    "tf.lookup.StaticHashTable": lambda: tf.lookup.StaticHashTable(pairs, -1).lookup(keys),
    "tf.lookup.StaticVocabularyTable": lambda: tf.lookup.StaticVocabularyTable(pairs, 2),
    "tf.make_tensor_proto": lambda: tf.make_tensor_proto([1]),
    "tf.nn.dynamic_rnn": lambda: tf.nn.dynamic_rnn(cell, one[None], dtype=tf.float32),
    "tf.nn.raw_rnn": lambda: tf.nn.raw_rnn(cell, loop),
    "tf.nn.static_rnn": lambda: tf.nn.static_rnn(cell, [one], dtype=tf.float32),
    "tf.train.AdamOptimizer": lambda: tf.train.AdamOptimizer(0.1).minimize(tf.reduce_sum(w)),
    "tf.train.Checkpoint": lambda: tf.train.Checkpoint(w=w),
    "tf.train.MonitoredTrainingSession": lambda: tf.train.MonitoredTrainingSession(),
    "tf.train.checkpoints_iterator":
        lambda: next(iter(tf.train.checkpoints_iterator(folder, timeout=1))),
    "tf.train.load_checkpoint": lambda: tf.train.load_checkpoint(folder).get_tensor("w"),
}
with tf.Session() as session:
    session.run(w.initializer)
    saver.save(session, folder + "/model.ckpt", global_step=1)
for path in NAMES:
    found = functools.reduce(getattr, path.split(".")[1:], tf)
    if callable(found):
        known.pop(path)()
    else:
        assert dir(found), path
assert not known, known
for path, replaced in MEMBERS.items():
    for name in replaced.split():
        assert hasattr(functools.reduce(getattr, path.split(".")[1:], tf), name), (path, name)
print("all of them")
"""
MEMBERS = {
    "tf.losses": "absolute_difference cosine_distance hinge_loss log_loss mean_squared_error "
    "mean_pairwise_squared_error sigmoid_cross_entropy softmax_cross_entropy add_loss get_losses "
    "sparse_softmax_cross_entropy compute_weighted_loss get_total_loss",
    "tf.metrics": "accuracy auc mean mean_iou precision recall recall_at_k true_positives",
    "tf.data.experimental": "map_and_batch parallel_interleave shuffle_and_repeat AUTOTUNE "
    "group_by_window make_csv_dataset",
    "tf.distribute": "MirroredStrategy OneDeviceStrategy",
    "tf.distribute.experimental": "ParameterServerStrategy MultiWorkerMirroredStrategy",
    "tf.distribute.cluster_resolver": "TFConfigClusterResolver SlurmClusterResolver",
    "tf.feature_column": "numeric_column embedding_column bucketized_column",
    "tf.layers": "dense conv2d conv2d_transpose separable_conv2d batch_normalization dropout",
    "tf.nn.rnn_cell": "BasicLSTMCell LSTMCell GRUCell MultiRNNCell DropoutWrapper",
    "tf.saved_model": "builder loader simple_save tag_constants",
    "tf.compat.v2.summary": "create_file_writer scalar histogram image",
    "tf.train": "MomentumOptimizer AdagradOptimizer RMSPropOptimizer ProximalAdagradOptimizer",
    "tf.keras": "Sequential Model",
}
"""Names in TensorFlow for what modules of `tf.contrib` had under the same ones."""


def test_each_remedy_names_what_there_is(tmp_path: Path) -> None:
    """Given the remedies, when all that they name is asked for, then TensorFlow has it, and what
    can be called does what the sentence wants it for; modules have what the old ones had."""
    names = {
        name
        for remedy in old_names.REMEDIES.values()
        for name in re.findall(r"`(tf\.[\w.]+)`", remedy)
    }
    given = f"NAMES = {sorted(names)!r}\nMEMBERS = {MEMBERS!r}\n"
    (tmp_path / "old.py").write_text(given + CALLS)
    done = tf1(tmp_path, "old.py")
    assert done.stdout == "all of them\n", done.stderr


def test_what_1_0_refused_has_a_remedy(tmp_path: Path) -> None:
    """Given a program of 0.x that release 1.0 refused, then the last line says what to write."""
    (tmp_path / "old.py").write_text(REUSED)
    done = tf1(tmp_path, "old.py")
    assert done.returncode == 1, done
    assert "with tf.variable_scope(tf.get_variable_scope()):" in done.stderr.splitlines()[-1]
