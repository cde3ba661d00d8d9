"""Programs of TensorFlow 1 run unchanged: `python -m trainer tf1 SCRIPT …`."""

from __future__ import annotations

import re
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest

from tests.support.budgets import soak, variants
from tests.support.command import Up, write
from tests.support.paths import REPOSITORY
from tests.support.tf1_scripts import tf1
from trainer import data, flags
from trainer.data import digits, idx, tutorial
from trainer.exceptions import DataError, UsageError

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
