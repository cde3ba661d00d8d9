"""Programs of TensorFlow 1 and 0.x run unchanged: `python -m trainer tf1 SCRIPT …`."""

from __future__ import annotations

import json
import re
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest

from tests.support.budgets import soak, variants
from tests.support.command import Up, write
from tests.support.lazily import tf
from tests.support.paths import REPOSITORY
from tests.support.ports import free_ports
from tests.support.tf1_scripts import tf1
from trainer import data, flags
from trainer.data import digits, idx, tutorial
from trainer.exceptions import DataError, UsageError
from trainer.tf1 import old_names

EXAMPLES = REPOSITORY / "docs" / "examples" / "tf1"
CLUSTER = """
name = "tf1"
[jobs.ps]
tasks = ["localhost:auto"]
[jobs.worker]
tasks = ["localhost:auto", "localhost:auto"]
[run]
command = ["{{python}}", "{{trainer}}", "tf1", "{script}", "--job_name={{job}}",
           "{index}={{index}}", "--ps_hosts={{ps_hosts}}", "--worker_hosts={{worker_hosts}}",
           "--data_dir={data}", {flags}]
workdir = "{folder}"
finish_timeout = 15
"""
TOWERS = """
name = "towers"
[jobs.worker]
tasks = ["localhost:auto"]
ready = "started"
[run]
command = ["{{python}}", "{{trainer}}", "tf1", "mnist_towers.py", "--num_gpus=2",
           "--data_dir={data}", "--log_dir={log}", "--training_steps=20"]
workdir = "{folder}"
"""


@pytest.fixture
def idx_files(tmp_path: Path) -> Path:
    """A small set in MNIST's four files."""
    images, labels = digits.load()
    folder = tmp_path / "MNIST_data"
    folder.mkdir()
    for stem, chosen in (("train", slice(0, 600)), ("t10k", slice(600, 700))):
        pixels = images[chosen].reshape(-1, 28, 28)
        idx.write(folder / f"{stem}-images-idx3-ubyte.gz", pixels)
        idx.write(folder / f"{stem}-labels-idx1-ubyte", labels[chosen])
    return folder


@pytest.mark.soak
def test_the_example_trains_in_a_cluster_and_starts_warm() -> None:
    """The cluster file of the documentation, as it is: placeholders, steps, a clean end."""
    with Up("up", str(EXAMPLES / "async.toml"), "--json") as up:
        up.state("worker:1", "warming")
        up.state("worker:0", "running")
        assert up.wait() == 0, (
            up.transcript()
        )  # worker:1 may look for the variables every 30 s only
    assert {e["task"] for e in up.of("metric")} >= {"worker:0"}
    assert max(e["step"] for e in up.of("metric")) > 300


@pytest.mark.prove
@pytest.mark.parametrize(
    ("script", "index", "more", "line"),
    [
        ("mnist_supervisor.py", "--task_index", '"--train_steps=80"', "validation cross entropy"),
        soak("mnist_async.py", "--task_id", '"--sync", "--training_steps=80"', "global steps)"),
    ],
    ids=["supervisor", "synchronous"],
)
def test_other_programs_of_the_time_train_in_a_cluster(
    tmp_path: Path, idx_files: Path, script: str, index: str, more: str, line: str
) -> None:
    """From IDX files."""
    text = CLUSTER.format(script=script, index=index, flags=more, data=idx_files, folder=EXAMPLES)
    with Up("up", str(write(tmp_path, text)), "--json") as up:
        up.log("worker:0", line)
        assert up.wait() == 0, up.transcript()
    chief = [e for e in up.of("task") if e["task"] == "worker:0"][-1]
    assert (chief["state"], chief["exit_code"]) == ("exited", 0)
    assert not any("embedded digits" in e["text"] for e in up.of("log"))


@pytest.mark.soak
def test_towers_with_queues_train(tmp_path: Path, idx_files: Path) -> None:
    """Devices that are not there are replaced, queue runners feed, the saver writes; the run ends
    with the program."""
    text = TOWERS.format(data=idx_files, log=tmp_path / "log", folder=EXAMPLES)
    with Up("up", str(write(tmp_path, text)), "--json") as up:
        up.log("worker:0", "step 20, loss = ")
        assert up.wait() == 0, up.transcript()
    assert max(e["step"] for e in up.of("metric")) == 20
    assert (tmp_path / "log" / "model-20.index").exists()


CHECKS = """
import os, sys
import numpy as np
import tensorflow as tf
import tensorflow.contrib.layers as layers
from tensorflow import contrib
from tensorflow.contrib.framework import get_or_create_global_step
from tensorflow.examples.tutorials.mnist import input_data
from trainer import own
import library

assert sys.argv == [os.path.join(".", "check.py"), "--x", "1"], sys.argv
assert __name__ == "__main__" and not tf.executing_eagerly()
assert own.tf is tf and own.NAME == "the user's", own
assert library.tf is not tf and not hasattr(library.tf, "placeholder")
assert contrib is tf.contrib and layers is contrib.layers
tf.app.flags.DEFINE_string("log_dir", "/d", "")
tf.app.flags.DEFINE_integer("x", 0, "")
assert (tf.app.flags.FLAGS.log_dir, tf.app.flags.FLAGS.x) == ("/d", 1)

weights = tf.constant([[3.0, 4.0]])
step = get_or_create_global_step()
with tf.Session() as session:
    assert session.run(layers.l2_regularizer(0.5)(weights)) == 6.25
    assert session.run(layers.l1_regularizer(0.5)(weights)) == 3.5
    assert layers.l2_regularizer(0.0)(weights) is None
    matrix = tf.get_variable("m", [300, 100], initializer=layers.xavier_initializer())
    session.run(tf.global_variables_initializer())
    assert 0.11 < np.abs(session.run(matrix)).max() <= (6 / 400) ** 0.5
    assert session.run(step) == 0

for name in ("tf.contrib.slim", "tf.contrib.layers.embed_sequence", "tf.contrib.learn.DNN"):
    try:
        eval(name)
    except AttributeError as error:
        assert str(error).startswith(f"{name} is not part of tf1: "), error
    else:
        raise AssertionError(name)
for line in (
    "import tensorflow.contrib.slim",
    "from tensorflow.contrib import slim",
    "from tensorflow.contrib.layers import embed_sequence",
    "from tensorflow import estimator",
):
    try:
        exec(line)
    except ImportError as error:
        print(str(error).partition(";")[0])
try:
    tf.estimator.Estimator
except AttributeError as error:
    print(str(error).partition(";")[0])
for module, name in ((tf, "estimator"), (tf.train, "nothing_such"), (tf.contrib, "slim")):
    assert not hasattr(module, name) and getattr(module, name, 1) == 1

mnist = input_data.read_data_sets("MNIST_data", one_hot=True, validation_size=40)
train = mnist.train
assert (train.num_examples, mnist.validation.num_examples) == (560, 40)
assert train.images.shape == (560, 784) and train.images.dtype == np.float32
assert 0.99 < train.images.max() <= 1.0 and train.labels.shape == (560, 10)
seen = []
for _ in range(4):
    images, labels = train.next_batch(160)
    assert images.shape == (160, 784) and labels.sum() == 160
    seen += [tuple(image.nonzero()[0]) for image in images]
assert train.epochs_completed == 1
assert set(seen[:560]) == {tuple(image.nonzero()[0]) for image in train.images}
plain = input_data.read_data_sets("MNIST_data", reshape=False, dtype=tf.uint8)
assert plain.test.images.shape == (100, 28, 28, 1) and plain.test.images.max() == 255
assert plain.test.labels.shape == (100,) and plain.validation.num_examples == 60
first, _ = plain.test.next_batch(10, shuffle=False)
assert (first == plain.test.images[:10]).all()
print("all of it")
sys.exit("with words")
"""


def test_a_program_finds_what_it_knows(tmp_path: Path, idx_files: Path) -> None:
    """Version 1's interface in the script and the modules beside it, TensorFlow as it is in
    libraries; stand-ins compute what they did; what is not covered says so."""
    (tmp_path / "check.py").write_text(CHECKS)
    own = tmp_path / "trainer"
    own.mkdir()
    (own / "__init__.py").touch()
    (own / "own.py").write_text('import tensorflow as tf\nNAME = "the user\'s"\n')
    library = tmp_path / "site-packages"
    library.mkdir()
    (library / "library.py").write_text("import tensorflow as tf\n")
    script = f"import sys; sys.path.append({str(library)!r})\n{CHECKS}"
    (tmp_path / "check.py").write_text(script)
    done = tf1(tmp_path, "./check.py", "--x", "1", cold=True)
    slim = "tf.contrib.slim is not part of tf1: TensorFlow 2 has removed it"
    missing = f"is not part of tf1: TensorFlow {version('tensorflow')} has no such name"
    assert done.stdout.splitlines() == [
        *(slim, slim),
        "tf.contrib.layers.embed_sequence is not part of tf1: TensorFlow 2 has removed it",
        *(f"tf.estimator {missing}", f"tf.estimator {missing}"),
        "tf1: 60 of 600 training examples are for validation",
        "all of it",
    ], done
    assert done.returncode == 1 and done.stderr.endswith("with words\n")


PLACES = [
    ("/", "/train.py", True),
    ("/", "/usr/lib/site-packages/library.py", False),
    ("/work", "/work/train.py", True),
    ("/work", "/workshop/train.py", False),
]


def test_a_script_anywhere_gets_version_1(tmp_path: Path) -> None:
    """In the root of a container, too."""
    (tmp_path / "check.py").write_text(
        "from trainer.tf1 import interface\n"
        f"for folder, file, _ in {PLACES}:\n"
        "    module = interface._import_for(folder, __import__)('tensorflow', {'__file__': file})\n"
        "    print(module is interface.v1, module is interface.tensorflow)\n"
    )
    done = tf1(tmp_path, "check.py")
    assert done.stdout.splitlines() == [f"{own} {not own}" for _, _, own in PLACES], done.stderr


def test_a_failure_is_the_scripts_own(tmp_path: Path) -> None:
    """The traceback begins in the script; broken data is one line."""
    script = tmp_path / "fails.py"
    script.write_text("import tensorflow as tf\ntf.app.run(main=lambda words: [][len(words)])\n")
    done = tf1(tmp_path, str(script))
    trace = done.stderr[done.stderr.index("Traceback") :].splitlines()
    assert trace[1] == f'  File "{script}", line 2, in <module>'
    assert done.returncode == 1 and trace[-1] == "IndexError: list index out of range"
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "train-labels-idx1-ubyte").write_bytes(b"\0\0\x08\x01")
    script.write_text(
        "from tensorflow.examples.tutorials.mnist import input_data\n"
        f"input_data.read_data_sets({str(tmp_path / 'data')!r})\n"
    )
    done = tf1(tmp_path, str(script))
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "trainer: " in done.stderr and "no train-images-idx3-ubyte" in done.stderr


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), "give a script: python -m trainer tf1 SCRIPT ARGUMENTS…"),
        (("--steps=3",), "give a script"),
        (("absent.py",), "absent.py: no such file"),
    ],
)
def test_without_a_script_it_says_how(words: tuple[str, ...], expected: str) -> None:
    """Wrong usage is status 2, before TensorFlow is imported."""
    with pytest.raises(UsageError, match=re.escape(expected)):
        flags.parse(["tf1", *words])


def test_batches_without_numpy_types_are_arrays(idx_files: Path) -> None:
    """The reader alone, as a program uses it without TensorFlow."""
    from trainer.data.tutorial import read_data_sets

    sets = read_data_sets(str(idx_files), seed=1)
    images, labels = sets.train.next_batch(7)
    assert images.shape == (7, 784) and labels.dtype == np.uint8
    again = read_data_sets(str(idx_files), seed=1).train.next_batch(7)
    assert (again[0] == images).all() and (again[1] == labels).all()


def test_a_split_without_examples_has_no_batches(idx_files: Path) -> None:
    """The split is an error that names its size, not a loop without an end."""
    from trainer.data.tutorial import read_data_sets

    sets = read_data_sets(str(idx_files), validation_size=0)
    assert sets.validation.num_examples == 0
    with pytest.raises(DataError, match="no examples"):
        sets.validation.next_batch(10)


@variants(
    ("examples", "asked", "held"),
    [(60_000, 10_000, 10_000), (60_000, 55_000, 55_000), (600, 0, 0), (600, 300, 300)],
    test=1,
)
def test_validation_has_the_size_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, examples: int, asked: int, held: int
) -> None:
    """The full set's as TensorFlow 1 gave it."""
    sets = sets_of(monkeypatch, examples, validation_size=asked)
    assert (sets.validation.num_examples, sets.train.num_examples) == (held, examples - held)


def test_validation_leaves_most_of_a_small_set_and_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Programs ask for 5,000 of 60,000 examples; the embedded digits have fewer."""
    assert sets_of(monkeypatch, 1400).validation.num_examples == 140
    assert "tf1: 140 of 1400 training examples are for validation\n" in capsys.readouterr().out
    for wrong in (-1, 60_001):
        with pytest.raises(DataError, match=f"is {wrong}: it must be between 0 and"):
            sets_of(monkeypatch, 1400, validation_size=wrong)


def sets_of(
    monkeypatch: pytest.MonkeyPatch, examples: int, validation_size: int = tutorial.VALIDATION
) -> tutorial.Datasets:
    """The sets that a program reads where there are so many examples to train on."""
    images = np.zeros((examples, 784), np.uint8)
    split = data.Split(images, np.zeros(examples, np.uint8))
    monkeypatch.setattr(data, "load", lambda *_, **__: data.Dataset("zeros", split, split))
    return tutorial.read_data_sets("absent", validation_size=validation_size)


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
still = layers.batch_norm(tf.ones([4, 2]), updates_collections=None, scope="still")
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    session.run(still)
    (moved,) = [v for v in tf.global_variables() if v.op.name == "still/moving_mean"]
    assert np.allclose(session.run(moved), 0.001), session.run(moved)
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


WAITS = """
import threading
import time
import tensorflow as tf

cluster = tf.train.ClusterSpec({"worker": ["localhost:PORT0", "localhost:PORT1"]})
first = tf.train.Server(cluster, job_name="worker", task_index=0)
second = tf.train.Server(cluster, job_name="worker", task_index=1)
with tf.device("/job:worker/task:0"):
    w = tf.Variable(1.0, name="w")
    step = tf.train.get_or_create_global_step()
    init = tf.global_variables_initializer()
chief = tf.Session(first.target)
threading.Timer(5, lambda: chief.run(init)).start()
began = time.time()
with tf.train.MonitoredTrainingSession(second.target, is_chief=False) as session:
    print("has", session.run(w))
manager = tf.train.SessionManager(recovery_wait_secs=7)
print("default", tf.train.SessionManager()._recovery_wait_secs, manager._recovery_wait_secs)
print("supervisor", tf.train.Supervisor(is_chief=False, graph=tf.Graph())._recovery_wait_secs)
"""


def test_a_worker_looks_every_second_and_says_that_it_waits(tmp_path: Path) -> None:
    """The chief initialises five seconds later: the worker says once that it waits, and then has
    the values; what a program asks for itself holds."""
    script = WAITS
    for number, port in enumerate(free_ports(2)):
        script = script.replace(f"PORT{number}", str(port))
    (tmp_path / "waits.py").write_text(script)
    done = tf1(tmp_path, "waits.py")
    assert done.stdout.splitlines() == [
        "tf1: this program waits for the chief's variables",
        "has 1.0",
        "default 1 7",
        "supervisor 1",
    ], done.stderr


SERVER = """
import sys
import tensorflow as tf

FLAGS = tf.app.flags.FLAGS
tf.app.flags.DEFINE_string("job", "worker", "")
tf.app.flags.DEFINE_integer("task_id", 0, "")
tf.app.flags.DEFINE_boolean("sync", False, "")
CLUSTER = {"worker": ["localhost:PORT0", "localhost:PORT1"], "local": ["localhost:PORT1"]}

def main(_):
    server = tf.train.Server(CLUSTER, job_name=FLAGS.job, task_index=FLAGS.task_id)
    print("started", server.target.partition(":")[0])

try:
    tf.app.run()
except Exception as error:
    print(error)
"""
REFUSED = "trainer: worker:1 runs as worker:0: the program "


@pytest.mark.parametrize(
    ("task", "words", "said"),
    [
        (
            "worker:1",
            ["--taske_id=1", "--nosync"],
            f"{REFUSED}does not know --taske_id",
        ),
        ("worker:1", ["--sync"], f"{REFUSED}starts the server of task 0"),
        ("worker:1", ["--task_id=1"], ""),
        ("worker:0", ["--taske_id=0"], ""),
        ("main:1", ["--taske_id=1"], ""),
        ("local:1", ["--job=local"], ""),
        ("worker:7", [], ""),
    ],
)
def test_a_program_that_is_another_task_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task: str, words: list[str], said: str
) -> None:
    """Where the task that was started is in its cluster, too; a program may have another one. It
    fails also where the program catches exceptions, as one of the tutorials' does."""
    script, places = SERVER, [f"localhost:{port}" for port in free_ports(2)]
    for number, place in enumerate(places):
        script = script.replace(f"localhost:PORT{number}", place)
    (tmp_path / "server.py").write_text(script)
    monkeypatch.setenv("TFMUX_TASK", f"mnist-1/{task}/1;")
    spec = {"worker": places, "local": places[1:], "main": places}
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": spec}))
    done = tf1(tmp_path, "server.py", *words)
    assert (done.returncode, done.stdout) == ((1, "") if said else (0, "started grpc\n")), done
    assert said in done.stderr


def test_a_program_with_a_cluster_of_its_own_may_be_any_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that forks a ps and its workers, in the notebooks that teach it: each is another task
    than the one that was started."""
    places = [f"localhost:{port}" for port in free_ports(4)]
    script = SERVER.replace("localhost:PORT0", places[0]).replace("localhost:PORT1", places[1])
    (tmp_path / "server.py").write_text(script)
    monkeypatch.setenv("TFMUX_TASK", "mnist-1/worker:0/1;")
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": {"worker": places[2:]}}))
    done = tf1(tmp_path, "server.py", "--task_id=1")
    assert (done.returncode, done.stdout) == (0, "started grpc\n"), done.stderr


TIMEOUT = """
import tensorflow as tf

cluster = tf.train.ClusterSpec({"ps": ["localhost:PORT0"], "worker": ["localhost:PORT1"]})
ps = tf.train.Server(cluster, job_name="ps", task_index=0)
worker = tf.train.Server(cluster, job_name="worker", task_index=0)
config = tf.ConfigProto(operation_timeout_in_ms=400)
with tf.device("/job:ps/task:0"):
    full = tf.FIFOQueue(1, tf.float32, name="full")
    empty = tf.FIFOQueue(1, tf.float32, name="empty")
    put = full.enqueue(1.0, name="put")
    got = empty.dequeue(name="got")
    fed = tf.identity(got, name="fed")
with tf.device("/job:worker/task:0"):
    batch = tf.FIFOQueue(1, tf.float32, name="batches").dequeue(name="batch")
    both = tf.add(fed, batch, name="both")
    plain = tf.add(fed, 1.0)

def call(session, what, feeds=None):
    try:
        print(session.run(what, feeds))
    except tf.errors.DeadlineExceededError as error:
        print(error.message.splitlines()[-1])

with tf.Session(worker.target, config=config) as session:
    session.run(put)
    call(session, put)
    call(session, [got])
    call(session, both)
    call(session, both, {fed: 1.0})
    call(session, plain, {fed: 1.0})
tf.reset_default_graph()
with tf.Session(config=config) as session:
    call(session, tf.FIFOQueue(1, tf.float32).dequeue())
"""


def test_a_call_that_takes_too_long_says_where_its_operations_are(tmp_path: Path) -> None:
    """And which of them can wait; nothing of what it does not run, nor of a session without
    servers."""
    script = TIMEOUT
    for number, port in enumerate(free_ports(2)):
        script = script.replace(f"PORT{number}", str(port))
    (tmp_path / "late.py").write_text(script)
    done = tf1(tmp_path, "late.py")
    late = "Operation timed out."
    both = "batch on worker:0, got on ps:0"
    assert done.stdout.splitlines() == [
        f"{late} It had operations on ps:0; what can wait: put on ps:0",
        f"{late} It had operations on ps:0; what can wait: got on ps:0",
        f"{late} It had operations on ps:0, worker:0; what can wait: {both}",
        f"{late} It had operations on worker:0; what can wait: batch on worker:0",
        "2.0",
        "Timed out waiting for notification",
    ], done.stderr
